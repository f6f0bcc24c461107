"""Models that may have killed their worker: each goes on apart from the others.

Dask blames all that a worker computed when it died, and may start it together again: what is there
each time fails with the model that kills.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.pools import load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.core.trials import Trial
    from dask_slaq.scheduler.pools import TaskTracker
    from dask_slaq.scheduler.trials.running import RunningSearch

__all__ = ["Suspects"]


class Suspects:
    """Suspects of the searches in `running`; `hold` is called before any is kept from Dask.

    What trained on a worker when it died is suspect until it has reported a further step, or ended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        tracker: TaskTracker,
        running: Mapping[str, RunningSearch],
        hold: Callable[[], None],
    ) -> None:
        self._scheduler, self._tracker, self._running = scheduler, tracker, running
        self._hold = hold
        self._spares = False  # whether anything may be spared that trains beside a suspect

    def worker_dies(self, worker: str, searches: Collection[RunningSearch]) -> None:
        """Suspect, and hold, what trained on a worker. Dask decides next where it goes on."""
        for search in searches:
            for ts, waits in self._on_workers(search):
                if ts.processing_on.address == worker and not waits:
                    trial = search.trials.alive.get(ts.key)
                    done = 0 if trial is None else trial.step
                    search.suspects[ts.key] = max(search.suspects.get(ts.key, 0), done)
                    self._hold()
                    self._tracker.away[ts.key] = ts

    @staticmethod
    def reported(search: RunningSearch, trial: Trial) -> bool:
        """Follow a report. Returns whether its model is suspect no longer."""
        done = search.suspects.get(trial.key)
        if done is None or trial.step <= done:
            trial.turn = trial.turn if done is None else trial.reports  # it keeps its thread
            return False
        del search.suspects[trial.key]
        return True

    def tried(self) -> set[str]:
        """Return the workers on which a suspect is, unless it may need a lock of another one."""
        found = set()
        for search in self._running.values():
            for key in search.suspects:
                ts, trial = self._scheduler.tasks.get(key), search.trials.alive.get(key)
                if ts is not None and ts.processing_on and not (trial and trial.held_up):
                    found.add(ts.processing_on.address)
        return found

    def next(
        self, search: RunningSearch, allowed: Mapping[Any, Collection[str]]
    ) -> Iterator[tuple[RunningSearch, Any, str]]:
        """Yield suspects without a state that are held, and to which of the workers `allowed`."""
        taken: set[str] = set()
        workers: Mapping[str, WorkerState] = self._scheduler.workers
        for key in () if search.pool.paused else search.suspects:
            held = key in self._tracker.away and key not in search.trials.alive
            some = {workers[a] for a in allowed.get(key, ()) if held and a not in taken}
            if some:
                worker = min(some, key=lambda ws: (load(ws) / ws.nthreads, ws.address)).address
                taken.add(worker)
                yield search, key, worker

    def spare(self) -> None:
        """Let the death of a worker with a suspect count against that alone."""
        tried = self.tried()
        if tried or self._spares:
            for search in self._running.values():
                for ts, waits in self._on_workers(search):
                    beside = ts.processing_on.address in tried and ts.key not in search.suspects
                    control = self._tracker.control
                    (control.excuse if waits or beside else control.blame)(ts)
        self._spares = bool(tried)

    def _on_workers(self, search: RunningSearch) -> Iterator[tuple[Any, bool]]:
        """Yield the models of a search on workers, and whether each waits in its report."""
        known: Mapping[Any, TaskState] = self._scheduler.tasks
        alive = search.trials.alive
        for key in {**search.begun, **alive}:
            ts = known.get(key)
            if ts is not None and ts.processing_on is not None:
                yield ts, key in alive and alive[key].waits and key not in search.left
