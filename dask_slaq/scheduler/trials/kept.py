"""Searches that go on for a time after their driver has gone: the scheduler wants their results.

It wants nothing while the driver is there, so that this may cancel its tasks and drop its futures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from time import monotonic, time
from typing import Any

from distributed.scheduler import Scheduler, TaskState
from tornado.ioloop import PeriodicCallback

from dask_slaq.scheduler.trials.running import RunningSearch


class KeptSearch:
    """Search that is kept for some `seconds` without its driver."""

    def __init__(self, search: RunningSearch, owner: str, seconds: float) -> None:
        self.search, self.owner, self.seconds = search, owner, seconds
        self.client = search.pool.client  # the driver's
        self.wants = f"slaq-kept-{search.run}"  # client that wants the tasks meanwhile
        self.keys: dict[Any, None] = {}  # of tasks that the driver wanted when it left, in order
        self.gone: float | None = None  # when it left, or an exception left its block
        self.failed = False  # whether that was an exception
        self.taken = 0.0  # when another driver took it over
        self.over = False  # whether the search has ended

    @property
    def name(self) -> str:
        """Name of the search."""
        return self.search.pool.name


class KeptSearches:
    """Searches of one scheduler that are kept, by name. `end` ends one that runs.

    A client that took a search over must want its tasks after the seconds of `grace`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        end: Callable[[str], None],
        enter: Callable[..., Any],
        grace: float = 30.0,
    ) -> None:
        self._grace = grace
        self._scheduler, self._end, self._enter = scheduler, end, enter
        self._kept: dict[str, KeptSearch] = {}
        self._timer = PeriodicCallback(partial(enter, self.look), 1000)

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, search: RunningSearch, owner: str, seconds: float) -> None:
        """Keep a search that begins; an earlier one of its name is forgotten."""
        self.forget(search.pool.name)
        self._kept[search.pool.name] = KeptSearch(search, owner, seconds)
        self._timer.start()

    def find(self, name: str, owner: str) -> KeptSearch | None:
        """Return what is kept of a search, or None."""
        kept = self._kept.get(name)
        return kept if kept is not None and kept.owner == owner else None

    def of(self, search: RunningSearch) -> KeptSearch | None:
        """Return what is kept of a running search, or None."""
        kept = self._kept.get(search.pool.name)
        return kept if kept is not None and kept.search is search else None

    def end(self, search: RunningSearch) -> None:
        """Remember the tasks of a search that ends."""
        if (kept := self.of(search)) is not None:
            self._add_wanted(kept)
            kept.over = True

    def hand_over(self, kept: KeptSearch, search: RunningSearch) -> None:
        """Let the client of a search, the same or a new one of its name, have what is kept."""
        self._add_wanted(kept)
        kept.search, kept.client, kept.taken = search, search.pool.client, monotonic()
        kept.gone, kept.failed, kept.over = None, False, False

    def client_leaves(self, client: str) -> None:
        """Want the tasks of the searches of a client that leaves. Dask drops its own next."""
        for kept in self._kept.values():
            if kept.client == client:
                self.leave(kept)

    def leave(self, kept: KeptSearch, *, failed: bool = False) -> None:
        """Want the tasks of a search whose driver leaves, or whose block `failed`."""
        kept.gone, kept.failed = kept.gone or monotonic(), kept.failed or failed
        self._add_wanted(kept)
        known = self._scheduler.tasks
        keys = [k for k in kept.keys if k in known and _is_wanted_by(known[k], kept.client)]
        if keys:
            self._scheduler.client_desires_keys(keys, kept.wants)

    def _add_wanted(self, kept: KeptSearch) -> None:
        """Add the tasks of a search that its driver wants, in the order of their submission."""
        tasks = kept.search.pool.tasks
        new = [ts for ts in tasks if ts.key not in kept.keys and _is_wanted_by(ts, kept.client)]
        kept.keys |= dict.fromkeys(ts.key for ts in sorted(new, key=lambda ts: ts.priority or ()))

    def look(self) -> None:
        """Drop what is wanted again by a driver, and end what is over its time."""
        now, known = monotonic(), self._scheduler.tasks
        for kept in list(self._kept.values()):
            if kept.gone is None:
                if kept.wants in self._scheduler.clients:
                    late = now - kept.taken > self._grace
                    keys = [k for k in kept.keys if k in known]
                    some = [k for k in keys if late or _is_wanted_by(known[k], kept.client)]
                    self._release(kept, some, all_of_them=late or len(some) == len(keys))
                if kept.over and not any(key in known for key in kept.keys):
                    self.forget(kept.name)
            elif not kept.failed and kept.client in self._scheduler.clients:
                kept.gone = None  # it has not left
            elif now - kept.gone > kept.seconds:
                self.forget(kept.name)
                self._end(kept.name)

    def forget(self, name: str) -> None:
        """Keep a search no longer."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            # Not at once: this may be called inside a transition.
            asyncio.get_running_loop().call_soon(self._enter, self._release, kept, list(kept.keys))
        if not self._kept:
            self._timer.stop()

    def forget_all(self) -> None:
        """Keep nothing."""
        for name in list(self._kept):
            self.forget(name)

    def _release(self, kept: KeptSearch, keys: Collection[Any], all_of_them: bool = True) -> None:
        known = [key for key in keys if key in self._scheduler.tasks]
        if kept.wants not in self._scheduler.clients:
            return
        self._scheduler.client_releases_keys(known, kept.wants, f"slaq-kept-{time()}")
        if all_of_them:
            del self._scheduler.clients[kept.wants]


def _is_wanted_by(ts: TaskState, client: str) -> bool:
    return any(cs.client_key == client for cs in ts.who_wants or ())
