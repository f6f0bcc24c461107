"""Runs that go on: their curves so far, and whether a training goes on where one was lost."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.memory import Kind, Run, kind_of_name

if TYPE_CHECKING:
    from dask_slaq.memory import Unfinished

__all__ = ["Following", "is_from_scratch", "last_resort", "losses_of"]

FloatArray = NDArray[np.float64]

#: Number of the newest losses kept of each job one by one, and growth of the distance between the
#: iterations of older ones.
RECENT, GROWTH = 64, 1.15


def last_resort(name: str) -> Kind:
    """Return the kind of a job of which nothing but the name is known."""
    return kind_of_name(name) or Kind(name)


@dataclass
class Following:
    """Bounded loss history of a running job; a report costs a microsecond.

    Attributes
    ----------
    key : str
        Identifies its run in the store.
    owner : str
    past : Unfinished or None
        The run that it went on from, until its first report shows that it does.
    resumed : int
        Iterations of that run.
    counted : bool
        Whether the job's ``max_iter`` counts these iterations.
    written, at : float
        Iterations and time, in seconds since 1970, at the last checkpoint.
    """

    key: str
    owner: str
    past: Unfinished | None = None
    resumed: int = 0
    counted: bool = False
    written: int = 0
    at: float = 0.0
    count: int = 0
    _next: int = 1
    _iteration: list[int] = field(default_factory=list)
    _loss: list[float] = field(default_factory=list)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, loss: float) -> None:
        """Add the loss of the next iteration."""
        self.count += 1
        self._recent.append(loss)
        if self.count >= self._next:
            self._next = max(self.count + 1, math.ceil(self.count * GROWTH))
            self._iteration.append(self.count)
            self._loss.append(loss)

    def count_resumed(self) -> int:
        """Return `resumed`, for a maximum number of iterations that is to count them."""
        self.counted = True
        return self.resumed

    def run(self, job: str, kind: Kind, work: float, tasks: float, now: float) -> Run | None:
        """Return the run so far, with the newest losses one by one.

        Parameters
        ----------
        job : str
        kind : Kind
        work : float
            Core-seconds per iteration, 0 if unknown.
        tasks : float
            Parallel tasks of an iteration.
        now : float
            Seconds since 1970.

        Returns
        -------
        Run or None
            None with fewer than two losses.
        """
        if self.count < 2:
            return None
        first = self.count - len(self._recent) + 1
        older = np.searchsorted(self._iteration, first)
        return Run(
            job,
            kind,
            np.concatenate([self._iteration[:older], np.arange(first, self.count + 1)]).astype(int),
            np.concatenate([self._loss[:older], list(self._recent)]).astype(float),
            iterations=self.count,
            outcome="failed",
            work=work if work > 0 else math.nan,
            tasks=tasks if work > 0 else math.nan,
            ended=now,
        )


def losses_of(run: Run, most: int) -> FloatArray:
    """Return the losses of the last iterations of a run, interpolated between those kept.

    Parameters
    ----------
    run : Run
    most : int
        Maximum number of iterations.

    Returns
    -------
    (n,) array
    """
    first = max(run.iterations - most, 0) + 1
    return np.interp(np.arange(first, run.iterations + 1), run.iteration, run.loss)


def is_from_scratch(run: Run, loss: float) -> bool:
    """Return whether a training that reports `loss` next began anew, rather than going on.

    Its loss is then more like the first than like the last losses of the run.
    """
    first, last = float(run.loss[0]), float(np.median(run.loss[-5:]))
    return abs(loss - first) < abs(loss - last)
