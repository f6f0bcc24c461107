"""What clients are told where tasks of a search do not report, or report something odd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dask.utils import key_split

from dask_slaq.core.settings import SILENT, shown
from dask_slaq.core.task_reports import MOST_METRICS
from dask_slaq.core.text import printable

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs
    from dask_slaq.scheduler.trials.running import RunningSearch

__all__ = ["Advice", "name_of"]


class Advice:
    """Advice about the searches in `running`, which is told to their clients."""

    def __init__(self, jobs: ScheduledJobs, running: Mapping[str, RunningSearch]) -> None:
        self._scheduler, self._tracker = jobs.scheduler, jobs.pools.tracker
        self._running, self._tell = running, jobs.tell_client

    def _warn(self, name: str, why: str, **about: Any) -> None:
        self._tell(name, SILENT, job=name, why=why, **about)

    def hear_of_stray(self, told: Mapping[str, Any], worker: str) -> None:
        """Tell the client of a job that its task there reports as if it were one of a search.

        In a search, such a report lacks the loss.
        """
        key: Any = told.get("key")
        ts = pool = None
        with suppress(TypeError):  # not a key
            ts, pool = self._scheduler.tasks.get(key), self._tracker.owner.get(key)
        there = ts is not None and ts.processing_on and ts.processing_on.address == worker
        search = self._running.get(pool.name) if there and pool is not None else None
        if search is not None and isinstance(told.get("has"), list | tuple):
            search.lacks = shown(told.get("metric"))
            names = told["has"][: MOST_METRICS - len(search.has)]
            search.has |= dict.fromkeys(map(printable, names))
        elif there and pool is not None and pool.reports and search is None:
            self._warn(pool.name, "job", tasks=name_of(key))

    def of_silence(self, search: RunningSearch, least: int) -> None:
        """Tell the client which tasks ended without any report, if `least` of a name have."""
        tasks: Mapping[Any, TaskState] = self._scheduler.tasks
        for kind, n in search.unreported.of(least, lambda key: _is_input(tasks.get(key))):
            if search.lacking:
                self._warn(search.pool.name, "metric", tasks=search.lacking)
            else:
                self._warn(search.pool.name, "silent", tasks=kind, n=n)

    def of_unknown(self, search: RunningSearch) -> None:
        """Tell the client that no task was submitted, or of which ones nothing can be known."""
        models = {name_of(trial.key) for trial in search.trials}
        is_empty = not (search.pool.tasks or search.pool.ended or models)
        known: Mapping[Any, TaskState] = self._scheduler.tasks
        some = [key for key, run in search.unknown.items() if is_empty or not run]
        some += [key for key, run in search.elsewhere.items() if not run]
        kinds = [name_of(key) for key in some if not _is_input(known.get(key))]
        if some := [kind for kind in kinds if not models or kind in models]:
            self._warn(search.pool.name, "known", tasks=some[0], n=len(some))
        elif is_empty and not search.elsewhere:
            self._warn(search.pool.name, "empty")

    def of_twin(
        self, search: RunningSearch, key: Any, number: Any, params: Mapping[str, Any]
    ) -> None:
        """Warn of a model that has drawn the same parameters as another one."""
        if search.unreported.is_twin(key, number, params):
            told = ", ".join(f"{name}={shown(value)}" for name, value in params.items())
            self._warn(search.pool.name, "equal", tasks=told[:300])

    def of_metric(self, search: RunningSearch, metric: str) -> None:
        """Warn of a search whose models report losses of two names."""
        if metric not in search.metrics and len(search.metrics) < 2:
            search.metrics.append(metric)
            if len(search.metrics) == 2:
                told = " and ".join(map(shown, search.metrics))
                self._warn(search.pool.name, "metrics", tasks=told)


def name_of(key: Any) -> str:
    """Return the name that a task shares with those of its kind."""
    # joblib's batches tell their size, and whether their calls are of one function.
    return re.sub(r"^mixed_|_\d+_calls$", "", key_split(key))


def _is_input(ts: TaskState | None) -> bool:
    """Return whether a task made what other tasks need: it trained no model."""
    return ts is not None and bool(ts.dependents)
