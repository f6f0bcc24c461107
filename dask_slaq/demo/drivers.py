"""Driver threads, each of which trains one job with its own client."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass, field

from distributed import Client
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.demo.workload import Training


@dataclass
class Record:
    """Outcome of one job.

    Attributes
    ----------
    training : Training
    losses : list of (float, float)
        Unix seconds and loss of every report.
    arrived, ended : float or None
        Unix seconds; None before the event.
    error : str or None
        Traceback of the exception that ended the job; None if there was none.
    """

    training: Training
    losses: list[tuple[float, float]] = field(default_factory=list)
    arrived: float | None = None
    ended: float | None = None
    error: str | None = None


class Driver(threading.Thread):
    """Thread that trains one job from its arrival to its end.

    Parameters
    ----------
    training : Training
    address : str
        Address of the scheduler.
    start : float
        Start of the run in Unix seconds. The job arrives `training.arrival` seconds later.
    """

    def __init__(self, training: Training, address: str, start: float) -> None:
        super().__init__(name=training.name, daemon=True)
        self.record = Record(training)
        self.address = address
        self.due = start + training.arrival
        self._stop_waiting = threading.Event()

    def run(self) -> None:
        try:
            with Client(self.address, set_as_default=False) as client, client.as_current():
                self._train(client)
        except BaseException:
            self.record.error = traceback.format_exc()
        self.record.ended = time()

    def _train(self, client: Client) -> None:
        record = self.record
        X, y = client.get_dataset(record.training.data)
        self._stop_waiting.wait(max(0.0, self.due - time()))
        record.arrived = time()

        # The job block alone would make the estimator report. The inner block also records the
        # losses, all of which the comparison at the end needs.
        with slaq.job(record.training.name, client=client) as job:

            def report(loss: float) -> None:
                record.losses.append((time(), loss))
                job.report(loss)

            with slaq.instrument(report):
                estimator = record.training.estimator()
                estimator.fit(X) if y is None else estimator.fit(X, y)
