"""Losses that are reported in the block of a job: which metric counts, and how they are counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from dask_slaq.core.reports import as_loss, is_usable
from dask_slaq.core.settings import shown
from dask_slaq.core.task_reports import NO_LOSS, Iterations, as_metrics, as_step

logger = logging.getLogger(__name__)


class Losses:
    """Losses of one job, whose first metric is the loss unless one is named by `metric`.

    Several threads may report at once. `iterations` and `reports` are those of the present block.
    What is reported is a score if it `negates`: minus it is the loss.
    """

    def __init__(self, job: str, metric: str) -> None:
        self._job, self._named, self._metric = job, metric, metric
        self._lock = threading.RLock()
        self._warned: set[str] = set()  # causes that this block has warned about
        self.negates = False
        self.begin()

    def begin(self) -> None:
        """Count from the beginning of a block."""
        self.iterations, self.reports = Iterations(), 0
        self._warned.clear()

    def loss_of(self, given: float | Mapping[str, float], step: int | None) -> float | None:
        """Return the loss among reported metrics; None, with a warning, if it is not there."""
        if self.iterations.goes_back(step):
            self._metric = self._named
        metrics = as_metrics(given, self._metric)
        if not metrics:
            self._warn_once(NO_LOSS % (self._metric, ", ".join(map(shown, given))))  # type: ignore[arg-type]
            return None
        name, value = next(iter(metrics.items()))
        if isinstance(given, Mapping):
            self._metric = self._metric or name
        return -value if self.negates else value

    def report(self, loss: float, step: int | None, say: Callable[..., bool]) -> float:
        """Count a loss that `say` sends to the scheduler, if that could be queued. Returns it."""
        loss, step = as_loss(loss), as_step(step)
        with self._lock:
            anew = self.iterations.goes_back(step)
            iterations = Iterations() if anew else replace(self.iterations)
            iteration = iterations.count(step)
            more = ({} if step is None else {"step": iteration}) | ({"anew": True} if anew else {})
            if say("slaq-report", loss=loss, **more):
                self.iterations, self.reports = iterations, self.reports + 1
        if not is_usable(loss):
            self._warn_once(f"a loss of {loss} was dropped: only its iteration counts")
        if iterations.repeated:
            self._warn_once("a step was not above the last one: it counts as the next iteration")
        return loss

    def _warn_once(self, why: str) -> None:
        cause = why.partition(":")[2]
        with self._lock:
            new = cause not in self._warned
            self._warned.add(cause)
        if new:
            logger.warning("job %s: %s", self._job, why)
