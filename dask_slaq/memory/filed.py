"""Past runs of a scheduler in its file."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dask_slaq.core.memory import MOST_KINDS, Kind, PastRun, StagedRun, kind_of_name
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import is_number
from dask_slaq.memory.following import Memory
from dask_slaq.memory.store import RunStore

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder

__all__ = ["FiledMemory"]

#: What is loaded of a kind: runs, newest first, and stages of runs, oldest first.
_Loaded = tuple[list[PastRun], list[StagedRun]]

#: Maximum number of past runs read of one kind.
MOST_LOADED = 64
#: Number of kinds above which those of which no run is remembered any more no longer count as read.
MOST_LOADED_KINDS = 2 * MOST_KINDS
#: Seconds for which opening a job waits for the store.
PATIENCE = 1.0


class FiledMemory(Memory):
    """Memory in the file `path`. Events for `MEMORY_TOPIC` are passed to `tell`. See `Memory`."""

    store: RunStore

    def __init__(
        self,
        path: str,
        engine: Callable[[], Engine | Recorder],
        tell: Callable[[dict[str, str]], object],
    ) -> None:
        super().__init__(engine)
        self._tell = tell
        self._loading: dict[str, asyncio.Future[_Loaded]] = {}  # kinds that are being read
        self._loaded: set[str] = set()  # kinds that were read, but for forgotten ones
        self._loop = asyncio.get_running_loop()
        self.store = store = RunStore(path, self._acknowledge)
        self._ends = 0  # number of ends that were stored
        ends = self._loop.run_in_executor(None, store.ends)
        ends.add_done_callback(self._recall_ends)

    @safely
    def _recall_ends(self, ends: asyncio.Future[list[tuple[bool, float]]]) -> None:
        """Count the ends of jobs on earlier schedulers."""
        self._engine().jobs.ends.recall(ends.result())

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what the store knows of a job that is about to begin, but do not wait for long.

        `kind` is what its user stated.
        """
        if self.broken is not None:
            return
        loading = self._load((kind or kind_of_name(name)).name)
        if loading is not None and not loading.done():
            await asyncio.wait([loading], timeout=PATIENCE)

    def _load(self, kind: str) -> asyncio.Future[_Loaded] | None:
        """Load the runs of a kind off the event loop, once. Returns None if it was loaded."""
        if kind in self._loaded:
            return None
        if kind not in self._loading:
            found = self._loop.run_in_executor(None, _read, self.store, kind)
            found.add_done_callback(functools.partial(self._recall, kind))
            self._loading[kind] = found
        return self._loading[kind]

    @safely
    def _recall(self, kind: str, found: asyncio.Future[_Loaded]) -> None:
        del self._loading[kind]
        if len(self._loaded) >= MOST_LOADED_KINDS:  # those without runs are read again
            self._loaded = {known for known in self._loaded if self.runs.knows(known)}
        self._loaded.add(kind)
        runs, stages = found.result()
        for run in reversed(runs):
            self.runs.recall(run)
        for staged in stages:
            self.stages.add(staged)

    @safely
    def judged(self) -> None:
        """Store how well the end of a job was foretold, if one was judged."""
        ends = self._engine().jobs.ends
        if ends.judged > self._ends:
            self._ends = ends.judged
            self.store.add_end(*ends.held[-1])

    def _keep_stages(self, staged: StagedRun) -> None:
        super()._keep_stages(staged)
        self.store.add_stages(staged)

    @safely
    def _keep(self, run: PastRun) -> None:
        """Store a run that has just been added to the memory of the engine."""
        self.store.add(uuid.uuid4().hex, run)

    def _acknowledge(self, key: str, job: str) -> None:
        """Tell that a run is safe on disk. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            event = {"event": "stored", "job": job, "key": key}
            self._loop.call_soon_threadsafe(self._tell, event)

    def about(self) -> dict[str, Any]:
        """Return the state of the memory; see `Memory`."""
        store = self.store
        return {
            **super().about(),
            "file": str(store.path),
            "stored": store.stored,
            "failed": self.broken or store.failed,
        }

    @safely
    def keep_audit(self, event: dict[str, Any]) -> None:
        """Store an `event` of the audit."""
        self.store.add_event("audit", event)

    @safely
    def keep_ended(self, event: dict[str, Any]) -> None:
        """Store the last alert of a job."""
        self.store.add_event("ended", event)

    def lately(self, since: float, then: Callable[[list[dict[str, Any]]], None]) -> None:
        """Call `then` with the jobs that ended on earlier schedulers; see `Memory`."""
        found = self._loop.run_in_executor(None, self.store.events, "ended")
        found.add_done_callback(functools.partial(self._found, since, then))

    @safely
    def _found(
        self,
        since: float,
        then: Callable[[list[dict[str, Any]]], None],
        found: asyncio.Future[list[dict[str, Any]]],
    ) -> None:
        then([x for x in found.result() if is_number(x.get("ended")) and x["ended"] >= since])

    async def all_ended(self, here: Iterable[dict[str, Any]], since: float) -> list[dict[str, Any]]:
        """Return the jobs that ended `since` a Unix time, `here` or on earlier schedulers."""
        found = {(each["job"], each["ended"]): each for each in here}
        kept = await self._loop.run_in_executor(None, self.store.events, "ended")
        found = {(each.get("job"), each.get("ended", 0.0)): each for each in kept} | found
        return sorted(
            (each for (_, ended), each in found.items() if ended >= since),
            key=lambda each: float(each["ended"]),
        )

    async def audit(self, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those `said` that are not stored."""
        kept = await self._loop.run_in_executor(None, self.store.events, "audit")
        known = {(event.get("at"), event.get("message")) for event in kept}
        more = [event for event in said if (event["at"], event["message"]) not in known]
        return sorted([*kept, *more], key=lambda event: float(event.get("at", 0.0)))

    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        super().stop()
        self.store.close(timeout=0)

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()
        try:
            await self._loop.run_in_executor(None, self.store.close)
        except RuntimeError:  # the program ends, and no other thread takes work any more
            self.store.close()


def _read(store: RunStore, kind: str) -> _Loaded:
    return store.load(kind, MOST_LOADED), store.stages(kind)
