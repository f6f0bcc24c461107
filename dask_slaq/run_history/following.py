"""Past runs in the engine of a scheduler, as long as it runs, and in a file if there is one."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.run_history import MOST_KINDS, Kind, PastRun, PastRuns, kind_of_name
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import is_number
from dask_slaq.core.trials import PastModel, PastSearches

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.run_history.store import RunStore

logger = logging.getLogger(__name__)

#: Number of kinds above which those of which no run is remembered any more no longer count as read.
MOST_LOADED_KINDS = 2 * MOST_KINDS


class _Runs(PastRuns):
    """Past runs of an engine. Those that end are passed on."""

    def __init__(self, keep: Callable[[PastRun], None]) -> None:
        super().__init__()
        self._keep = keep

    def add(self, run: PastRun) -> None:
        """Add a run that has ended."""
        super().add(run)
        self._keep(run)

    def recall(self, run: PastRun) -> None:
        """Add a run from the store."""
        super().add(run)


class RunHistory:
    """Past runs of the jobs on a scheduler, also in the file `path`. It never raises.

    The `engine`, which has `runs`, is asked for when needed.
    """

    def __init__(self, path: str | None, engine: Callable[[], Engine]) -> None:
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self.searches = PastSearches()
        self.store: RunStore | None = None
        self.following: dict[str, Kind] = {}  # jobs, and the kinds with which they were opened
        self._engine = engine
        self._loading: dict[str, asyncio.Future[list[PastRun]]] = {}  # kinds that are being read
        self._loaded: set[str] = set()  # kinds that were read, but for forgotten ones
        self._loop = asyncio.get_running_loop()
        if path is not None:
            from dask_slaq.run_history.store import RunStore  # and SQLite

            self.store = RunStore(path)
            self._read(self._recall_searches, self.store.events, "searches")

    def fail(self, error: Exception) -> None:
        """End the run history, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self.following.clear()
            logger.error("past runs are no longer remembered: %s", self.broken, exc_info=error)

    # Jobs

    @safely
    def begin(self, name: str, kind: Kind | None = None) -> None:
        """Follow a new job. `kind` is what its user stated."""
        self.following[name] = kind or kind_of_name(name)

    @safely
    def set_kind(self, name: str, kind: Kind) -> None:
        """Set the `kind` of the job `name`, as soon as the runs of that kind are loaded."""
        if (opened := self.following.get(name)) is None:
            return
        found = self._load(kind.name)
        if found is None or found.done():
            self._set_kind(name, opened, kind)
        else:
            found.add_done_callback(lambda _: self._set_kind(name, opened, kind))

    @safely
    def _set_kind(self, name: str, opened: Kind, kind: Kind) -> None:
        if self.following.get(name) is opened:
            self._engine().set_kind(name, kind)

    @safely
    def begin_anew(self, name: str) -> None:
        """Make a job new, since its training begins again."""
        engine, now = self._engine(), monotonic()
        was, owner = engine.jobs[name], engine.jobs.owner[name]
        kind = engine.remembering.kinds.get(name) or kind_of_name(name)
        settings, paused = was.settings, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, owner=owner, kind=kind, **settings)
        if paused:
            engine.pause(name)

    @safely
    def end(self, name: str) -> None:
        """Follow a job no longer."""
        self.following.pop(name, None)

    @safely
    def keep_models(
        self, name: str, owner: str, models: list[PastModel], *, maximize: bool
    ) -> None:
        """Keep the models of a search of an owner that is about to end, for the next one."""
        if models and (kind := self.following.get(name)) is not None:
            about = {"owner": owner, "kind": kind.name, "maximize": maximize, "ended": time()}
            found = self.searches.add(owner, (kind.name, maximize), models)
            if self.store is not None:
                self.store.add_event("searches", {**about, "models": found})

    def _recall_searches(self, found: list[dict[str, Any]]) -> None:
        """Take up the models of searches on earlier schedulers."""
        for search in found:
            models = [PastModel(*model) for model in search["models"]]
            self.searches.add(search["owner"], (search["kind"], search["maximize"]), models)

    def models_like(
        self, name: str, owner: str, kind: Kind | None, *, maximize: bool
    ) -> list[PastModel]:
        """Return the models of past searches like a job of an owner; `kind` is as for `begin`."""
        return self.searches.of(owner, ((kind or kind_of_name(name)).name, maximize))

    # What is done for a file

    def _read(
        self, then: Callable[[Any], object], read: Callable[..., Any], *given: Any
    ) -> asyncio.Future[Any]:
        """Read something off the event loop, and call `then` with it."""
        found = self._loop.run_in_executor(None, read, *given)
        found.add_done_callback(functools.partial(self._take, then))
        return found

    @safely
    def _take(self, then: Callable[[Any], object], found: asyncio.Future[Any]) -> None:
        then(found.result())

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what is stored of a job that is about to begin, but do not wait for long."""
        if self.broken is None:
            loading = self._load((kind or kind_of_name(name)).name)
            if loading is not None and not loading.done():
                await asyncio.wait([loading], timeout=1.0)

    def _load(self, kind: str) -> asyncio.Future[list[PastRun]] | None:
        """Load the runs of a kind off the event loop, once. Returns None if it was loaded."""
        if self.store is None or kind in self._loaded:
            return None
        if kind not in self._loading:
            then = functools.partial(self._recall, kind)
            # Maximum number of past runs read of one kind.
            self._loading[kind] = self._read(then, self.store.load, kind, 64)
        return self._loading[kind]

    def _recall(self, kind: str, found: list[PastRun]) -> None:
        del self._loading[kind]
        if len(self._loaded) >= MOST_LOADED_KINDS:  # those without runs are read again
            self._loaded = {known for known in self._loaded if self.runs.knows(known)}
        self._loaded.add(kind)
        for run in reversed(found):
            self.runs.recall(run)

    @safely
    def _keep(self, run: PastRun) -> None:
        """Store a run that has just been added to the past runs of the engine."""
        if self.store is not None:
            self.store.add(run)

    @safely
    def keep_event(self, table: str, event: dict[str, Any]) -> None:
        """Store an event of the ``"audit"``, or the last alert of a job that has ``"ended"``."""
        if self.store is not None:
            self.store.add_event(table, event)

    def lately(self, since: float, then: Callable[[list[dict[str, Any]]], None]) -> None:
        """Call `then` with the alerts of jobs that ended `since` a Unix time, before this."""

        def late(found: list[dict[str, Any]]) -> None:
            then([x for x in found if is_number(x.get("ended")) and x["ended"] >= since])

        if self.store is not None:
            self._read(late, self.store.events, "ended")

    # What people look at

    def like_runs(self, name: str) -> int:
        """Return the number of like runs on which the forecast of a job rests."""
        with contextlib.suppress(Exception):
            return self._engine().likeness(name)
        return 0

    def kind_name(self, name: str) -> str | None:
        """Return the name of the kind of a job, None for unowned tasks."""
        kind = self._engine().remembering.kinds.get(name)
        return None if kind is None else kind.name

    def about(self) -> dict[str, Any]:
        """Return ``file``, ``runs`` (in memory), ``stored`` (on disk now) and ``failed``."""
        store, runs = self.store, len(self.runs)
        if store is None:
            return {"file": None, "runs": runs, "stored": 0, "failed": self.broken}
        failed = self.broken or store.failed
        return {"file": str(store.path), "runs": runs, "stored": store.stored, "failed": failed}

    async def _stored(self, table: str) -> list[dict[str, Any]]:
        if self.store is None:
            return []
        return await self._loop.run_in_executor(None, self.store.events, table)

    async def all_ended(self, here: Iterable[dict[str, Any]], since: float) -> list[dict[str, Any]]:
        """Return the jobs that ended `since` a Unix time, `here` or on earlier schedulers."""
        found = {(each["job"], each["ended"]): each for each in here}
        kept = await self._stored("ended")
        found = {(each.get("job"), each.get("ended", 0.0)): each for each in kept} | found
        return sorted(
            (each for (_, ended), each in found.items() if ended >= since),
            key=lambda each: float(each["ended"]),
        )

    async def audit(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those of `events` that are not stored."""
        kept = await self._stored("audit")
        known = {(event.get("at"), event.get("message")) for event in kept}
        more = [event for event in events if (event["at"], event["message"]) not in known]
        return sorted([*kept, *more], key=lambda event: float(event.get("at", 0.0)))

    # The end of the scheduler

    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        self.following.clear()
        if self.store is not None:
            self.store.close(timeout=0)

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()
        if self.store is not None:
            try:
                await self._loop.run_in_executor(None, self.store.close)
            except RuntimeError:  # the program ends, and no other thread takes work any more
                self.store.close()
