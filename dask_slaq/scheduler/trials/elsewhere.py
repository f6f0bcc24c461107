"""Models of a search that are computed for others too: each search knows how they end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.trials.running import OUTCOMES

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.trials import EndedSearches
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs
    from dask_slaq.scheduler.trials.running import RunningSearch

__all__ = ["Elsewhere"]


class Elsewhere:
    """Models that train elsewhere, of the searches in `running`; others are `over`.

    `ask` has the next choice made, and `end_if_over` ends a search whose last model has ended.
    """

    def __init__(
        self,
        jobs: ScheduledJobs,
        running: Mapping[str, RunningSearch],
        over: EndedSearches,
        ask: Callable[[], None],
        end_if_over: Callable[[RunningSearch], None],
    ) -> None:
        self._scheduler, self._tracker = jobs.scheduler, jobs.pools.tracker
        self._running, self._over, self._ask, self._end_if_over = running, over, ask, end_if_over

    def submitted(self, client: str, keys: Collection[Any]) -> None:
        """Follow a graph of a client: some tasks may be known to others, or have ended before.

        A cell of a notebook that is run again submits the same tasks, and nothing is computed. So
        does whoever calls the same function with the same arguments. The annotations of such tasks
        are those of their first submission.
        """
        self._ask()  # a model that others want is not given up
        if (search := self._block_of(client)) is None:
            return
        ended = []
        for key in keys:
            ts: TaskState = self._scheduler.tasks[key]
            if ts.run_spec is None or key in search.trials.alive or search.trials.has_ended(key):
                continue
            if ts.state not in OUTCOMES and self._tracker.owner.get(key) is search.pool:
                continue
            run = (ts.annotations or {}).get("slaq_search", "")
            if ts.state != "released" and run not in search.runs:
                search.elsewhere[key] = run if isinstance(run, str) else ""
                if ts.state in OUTCOMES:
                    ended.append(key)
        self._take_over(search, ended)

    def _block_of(self, client: str) -> RunningSearch | None:
        """Return the search of a client in whose block its last graph was submitted, if any was."""
        latest = next(reversed(self._scheduler.computations), None)
        about = {} if latest is None else latest.annotations
        block = about.get("slaq_search"), about.get("slaq_job"), client  # a job in it has its own
        some = (search for search in self._running.values() if search.outcome is None)
        return next((s for s in some if (s.run, s.pool.name, s.pool.client) == block), None)

    def rows_of(
        self, search: RunningSearch, keys: Collection[Any]
    ) -> dict[Any, list[dict[str, Any]]]:
        """Return rows of models that train elsewhere, with curves, as far as they are known."""
        found: dict[Any, list[dict[str, Any]]] = {}
        if not (some := set(keys)):
            return found
        for run in {*(search.elsewhere[key] for key in some), search.before} - {""}:
            for other in self._running.values():
                if run in other.runs and other is not search:
                    rows = other.trials.as_dicts(curves=True, only=some)
                    break
            else:
                rows = [row for row in self._over.get(run) if row["key"] in some]
            mine: dict[Any, list[dict[str, Any]]] = {}
            for row in rows:
                mine.setdefault(row["key"], []).append(row)
            found = {**mine, **found} if run == search.before else {**found, **mine}
        return found

    def _take_over(self, search: RunningSearch, keys: Collection[Any]) -> None:
        """Know models that were trained elsewhere, and have ended."""
        rows = self.rows_of(search, keys)
        for key in keys:
            run = search.elsewhere.pop(key)
            state = OUTCOMES[self._scheduler.tasks[key].state]
            for row in rows.get(key, ()):
                over = row["state"] in ("done", "pruned", "stopped", "failed")
                search.trials.restore(row if over else {**row, "state": state, "ended": time()})
            if key not in rows:
                search.unknown[key] = run

    def model_ended(self, search: RunningSearch, key: Any) -> None:
        """Follow the end of a model that others have trained."""
        ts, name = self._scheduler.tasks.get(key), search.pool.name
        if self._running.get(name) is not search or key not in search.elsewhere:
            return
        outcome = "" if ts is None else OUTCOMES.get(ts.state, "")
        if outcome and ts is not None and key in search.trials.alive:
            search.trials.end(key, outcome, str(ts.exception_text or ""))
            del search.elsewhere[key]
        elif outcome:
            self._take_over(search, [key])
        elif ts is None or not ts.who_wants:
            search.trials.drop(key)
            del search.elsewhere[key]
        if search.outcome is not None:
            self._end_if_over(search)

    def begins(self, key: Any) -> None:
        """Follow a task of no search that a worker begins: a model may be computed for others."""
        ts: TaskState = self._scheduler.tasks[key]
        run = (ts.annotations or {}).get("slaq_search")
        for search in self._running.values() if run is not None else ():
            wanted_by = [cs.client_key for cs in ts.who_wants or ()]
            if run in search.runs and search.pool.client in wanted_by:
                search.elsewhere[key] = run
