"""Reports of a job from code that runs in its tasks on workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_slaq.adapters.observing import Address, is_stopping
from dask_slaq.core.errors import NonFiniteLoss, StopTraining
from dask_slaq.worker.reports import number

__all__ = ["Reporter"]


@dataclass(frozen=True)
class Reporter:
    """Picklable function for the tasks of a job: ``report(loss)``. Made by `Job.reporter`.

    Attributes
    ----------
    job : str
        Name of the job.
    address : Address
        Where the losses go.
    """

    job: str
    address: Address

    def __call__(self, loss: float) -> None:
        """Report the loss of the next iteration of the job without blocking; lower is better.

        Parameters
        ----------
        loss : float
            See `Job.report`.

        Raises
        ------
        NonFiniteLoss
            The loss is not a finite number. Nothing is reported.
        StopTraining
            The job was stopped, and its workers know. The loss was reported.
        """
        value = number(loss)
        if not math.isfinite(value):
            raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")
        self.address.report(value)
        if is_stopping(self.address):
            raise StopTraining(f"job {self.job!r} was stopped: end the training loop")
