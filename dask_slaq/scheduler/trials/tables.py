"""What clients and pages are given of searches: their trials."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distributed.protocol import pickle
from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.search_settings import search_is_over
from dask_slaq.core.settings import shown
from dask_slaq.core.trials import EndedSearches, SearchSettings, Trial, row_of
from dask_slaq.scheduler.trials.running import RunningSearch
from dask_slaq.scheduler.trials.states import States

#: Number of searches that are known by their names.
MOST_NAMED = 100


class Tables:
    """Tables of the searches in `running`, and of those that have `ended`."""

    def __init__(
        self,
        scheduler: Scheduler,
        running: Mapping[str, RunningSearch],
        ended: EndedSearches,
        states: States,
    ) -> None:
        self._scheduler, self._running, self._ended = scheduler, running, ended
        self._states = states
        # Last block and settings of each search, by name, the last ones.
        self._named: OrderedDict[str, tuple[str, SearchSettings]] = OrderedDict()

    def begin(self, search: RunningSearch) -> None:
        """Know a search that begins by its name, and by the last block of that."""
        name = search.pool.name
        search.before, _ = self._named.get(name, ("", None))
        self._named[name] = search.run, search.trials.settings
        self._named.move_to_end(name)
        while len(self._named) > MOST_NAMED:
            self._named.popitem(last=False)

    def trials(self, run: str, *, curves: bool = False) -> list[dict[str, Any]]:
        """Return the trials of a search that runs or ended lately, as of `Trials.as_dicts`."""
        for search in self._running.values():
            if search.run == run:
                known = search.trials.as_dicts(curves=curves)
                seen = {trial["key"] for trial in known}
                tasks = search.pool.unfinished - search.pool.inner
                rest = [ts.key for ts in tasks if ts.key not in seen]
                known = known if curves else _without_curves(known)
                about = {"state": "pending", "error": search.lacking}
                return known + [{**row_of(Trial(key, "", "")), **about} for key in rest]
        found = self._ended.get(run)
        for row in found:
            ts = self._scheduler.tasks.get(row["key"]) if row["state"] == "failed" else None
            if ts is not None and ts.state != "erred":
                row["state"] = "retried"  # since then, and nothing more is known of it
        return found if curves else _without_curves(found)

    def train_on(self, run: str, keys: Any, best: int | None, steps: int) -> list[dict[str, Any]]:
        """Return tasks of trials that have ended, and names of their states, which are kept.

        They are the `best` that are done, or those with these keys. They will make `steps` steps.
        """
        search = next((s for s in self._running.values() if s.run == run), None)
        if search is None:
            raise search_is_over()
        ended = {trial.key: trial for trial in search.trials.ended}
        known: Mapping[Any, TaskState] = self._scheduler.tasks
        held = {k: known[k] for k in ended if k in known and known[k].run_spec is not None}
        if keys is None:
            done = [t for t in ended.values() if t.outcome == "done" and not t.diverges]
            done = [t for t in done if t.key not in search.trained_on]
            some = [t for t in done if t.key in held]
            if done and not some:
                raise InvalidSetting(
                    "no future is held of a model of this search that is done, and was not trained "
                    "on before"
                )
            keys = [t.key for t in sorted(some, key=lambda t: (t.losses.latest, t.name))[:best]]
        tasks = [held.get(key) for key in keys]
        for key, ts in zip(keys, tasks, strict=True):
            if ts is None:
                raise InvalidSetting(
                    f"{shown(key)} is not a model of this search that has ended, and whose future "
                    "is held"
                )
        if search.trials.settings.steps is not None:
            most = max(search.trials.settings.steps, steps)
            search.trials.settings = replace(search.trials.settings, steps=most)
        search.trained_on.update(keys)
        dumps: Any = pickle.dumps
        return [
            {"key": key, "task": dumps(ts.run_spec), "states": self._states.pin(key)}
            for key, ts in zip(keys, tasks, strict=True)
            if ts is not None
        ]

    def names(self) -> list[str]:
        """Return the names of the searches that run or ended lately, the newest first."""
        return list(reversed(self._named))

    def table(
        self, name: str, *, curves: bool = True
    ) -> tuple[list[dict[str, Any]], SearchSettings | None]:
        """Return the trials of a search with their curves, and its settings, if it is known."""
        if name not in self._named:
            return [], None
        run, settings = self._named[name]
        search = self._running.get(name)
        settings = settings if search is None else search.trials.settings
        return self.trials(run, curves=curves), settings


def _without_curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of trials without their curves."""
    for row in rows:
        for part in ("steps", "losses", "others"):
            row.pop(part, None)
    return rows
