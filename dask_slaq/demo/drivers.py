"""Drivers: each trains one job in a thread of its own, with a client of its own."""

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
    """What became of one job.

    Attributes
    ----------
    training : Training
    losses : list of (float, float)
        Unix seconds and loss of every report.
    arrived, ended : float or None
        Unix seconds; None while it has not.
    error : str or None
        Traceback of what ended the job, if not its last iteration.
    """

    training: Training
    losses: list[tuple[float, float]] = field(default_factory=list)
    arrived: float | None = None
    ended: float | None = None
    error: str | None = None


class Driver(threading.Thread):
    """Trains one job from its arrival to its end.

    Parameters
    ----------
    training : Training
    address : str
        Of the scheduler.
    start : float
        Unix seconds at which the run starts; the job arrives `training.arrival` later.
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

        # The job block would let the estimator report by itself; this inner one does the
        # same and keeps the losses, because the comparison at the end needs all of them.
        with slaq.job(record.training.name, client=client) as job:

            def report(loss: float) -> None:
                record.losses.append((time(), loss))
                job.report(loss)

            with slaq.instrument(report):
                estimator = record.training.estimator()
                estimator.fit(X) if y is None else estimator.fit(X, y)
