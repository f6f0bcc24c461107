"""Past runs in the engine of a scheduler, and in a file if ``slaq.memory`` names one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any

from tornado.ioloop import PeriodicCallback

from dask_slaq.core.memory import Kind, PastRuns, Run
from dask_slaq.memory import LAPSE, RunStore, Unfinished
from dask_slaq.scheduler.memory.following import Following, last_resort
from dask_slaq.scheduler.memory.resuming import Resuming
from dask_slaq.scheduler.memory.safely import safely

if TYPE_CHECKING:
    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["MEMORY_TOPIC", "Memory"]

logger = logging.getLogger(__name__)

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"
#: Maximum number of past runs read of one kind, and of runs awaiting acknowledgement.
MOST_LOADED, MOST_UNSAFE = 64, 10_000
#: Seconds between two checkpoints, and for which opening a job waits for the store.
PERIOD, PATIENCE = 5.0, 1.0
#: Largest absolute loss that forecasts take.
MAX_LOSS = 1e300


class _Runs(PastRuns):
    """Past runs of an engine. Those that end are passed on."""

    def __init__(self, keep: Callable[[Run], None]) -> None:
        super().__init__()
        self._keep = keep

    def add(self, run: Run) -> None:
        """Add a run that has ended."""
        super().add(run)
        self._keep(run)

    def recall(self, run: Run) -> None:
        """Add a run from the store."""
        super().add(run)


class Memory:
    """Past runs of the jobs on a scheduler. Its methods never raise.

    Parameters
    ----------
    plugin : SlaqPlugin
    path : str or None
        File of the store; None to remember runs until the scheduler ends.

    Attributes
    ----------
    runs : PastRuns
        Memory of the engine.
    store : RunStore or None
    following : dict of str to Following
        What is remembered of each running job.
    broken : str or None
        The error that ended the memory.
    """

    def __init__(self, plugin: SlaqPlugin, path: str | None) -> None:
        self.plugin = plugin
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self.following: dict[str, Following] = {}
        self._resuming = Resuming(self)
        self._ending: dict[str, str] = {}  # keys of jobs that are being removed
        self._unsafe: dict[str, str] = {}  # jobs of runs that are being written, by key
        self._loading: dict[str, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer = PeriodicCallback(self.checkpoint, PERIOD * 1000)
        self.store = None if path is None else RunStore(path, self._acknowledge)
        self._left: asyncio.Future[Any] | None = None
        if self.store is not None:
            self.store.lapse(time())
            self._left = self._loop.run_in_executor(None, self.store.unfinished, time() - LAPSE)
            self._left.add_done_callback(self._take_up)

    def fail(self, error: Exception) -> None:
        """End the memory, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self.following.clear()
            logger.error("past runs are no longer remembered: %s", self.broken, exc_info=error)

    @safely
    def _take_up(self, left: asyncio.Future[list[Unfinished]]) -> None:
        """Take up what an earlier scheduler left."""
        for one in left.result():
            self._resuming.keep(one, newest=False)

    # Coming and going

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what the store knows of a job that is about to begin, but do not wait for long.

        Parameters
        ----------
        name : str
        kind : Kind or None
            Kind that its user stated.
        """
        if self.store is None or self.broken is not None:
            return
        waiting = [self._left, self._load((kind or last_resort(name)).name)]
        if pending := [future for future in waiting if future is not None and not future.done()]:
            await asyncio.wait(pending, timeout=PATIENCE)

    def _load(self, kind: str) -> asyncio.Future[Any] | None:
        """Load the runs of a kind off the event loop, once."""
        if self.store is None:
            return None
        if kind not in self._loading:
            found = self._loop.run_in_executor(None, self.store.load, kind, MOST_LOADED)
            found.add_done_callback(self._recall)
            self._loading[kind] = found
        return self._loading[kind]

    @safely
    def _recall(self, found: asyncio.Future[list[Run]]) -> None:
        for run in reversed(found.result()):
            self.runs.recall(run)

    @safely
    def begin(self, name: str, owner: str) -> None:
        """Follow the new job `name` of an `owner`."""
        self.following[name] = Following(uuid.uuid4().hex, owner)
        if not self._timer.is_running():
            self._timer.start()

    async def resume(self, name: str, owner: str, kind: Kind | None) -> int:
        """Give a job that has just begun the losses of its unfinished run. See `Resuming`."""
        if self.broken is None:
            try:
                return await self._resuming.resume(name, owner, kind)
            except Exception as error:
                self.fail(error)
        return 0

    @safely
    def set_kind(self, name: str, kind: Kind) -> None:
        """Set the `kind` of the job `name`, as soon as the runs of that kind are loaded."""
        if (job := self.following.get(name)) is None:
            return
        found = self._load(kind.name)
        if found is None or found.done():
            self._set_kind(name, job, kind)
        else:
            found.add_done_callback(lambda _: self._set_kind(name, job, kind))

    @safely
    def _set_kind(self, name: str, job: Following, kind: Kind) -> None:
        if self.following.get(name) is job:
            self._resuming.check_kind(name, kind)
            self.plugin.engine.set_kind(name, kind)

    def report(self, name: str, loss: float) -> None:
        """Record a `loss` of the job `name`, before the engine takes it in. O(1)."""
        job = self.following.get(name)
        if job is None or not -MAX_LOSS <= loss <= MAX_LOSS:  # the engine refuses it
            return
        try:  # not `safely`, which would take longer than all of this
            if job.past is not None:
                job = self._resuming.check_loss(name, float(loss))
            job.add(float(loss))
        except Exception as error:
            self.fail(error)

    @safely
    def end(self, name: str, outcome: str | None) -> None:
        """Prepare for the end of a job, which is about to be removed from the engine.

        Parameters
        ----------
        name : str
        outcome : {"done", "stopped", "failed"} or None
            None if its client was lost: it may come back.
        """
        job = self.following.pop(name, None)
        if not self.following:
            self._timer.stop()
        if job is None:
            return
        run = self._resuming.run_of(name, job)
        if run is None:
            if self.store is not None:
                self.store.discard(job.key)
        elif outcome is not None:
            self._ending[name] = job.key
        else:
            one = Unfinished(job.key, job.owner, run)
            self._resuming.keep(one)
            if self.store is not None:
                self.store.checkpoint([one])

    @safely
    def ended(self, name: str) -> None:
        """Discard what was written of a job whose run the engine did not remember."""
        key = self._ending.pop(name, None)
        if key is not None and self.store is not None:
            self.store.discard(key)

    def _keep(self, run: Run) -> None:
        """Store a run that has just been added to the memory of the engine."""
        key = self._ending.pop(run.job, None)
        if self.store is None or key is None:
            return
        if len(self._unsafe) < MOST_UNSAFE:
            self._unsafe[key] = run.job
        self.store.add(key, run)

    def lose(self, one: Unfinished) -> None:
        """Remember that an unfinished run has failed."""
        self._ending[one.run.job] = one.key
        self.runs.add(replace(one.run, outcome="failed"))

    def _acknowledge(self, keys: Sequence[str]) -> None:
        """Tell which runs are safe on disk. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._tell, tuple(keys))

    @safely
    def _tell(self, keys: Sequence[str]) -> None:
        for key in keys:
            event = {"event": "stored", "job": self._unsafe.pop(key, ""), "key": key}
            self.plugin.scheduler.log_event(MEMORY_TOPIC, event)

    @safely
    def keep_audit(self, event: dict[str, Any]) -> None:
        """Store an `event` of the audit."""
        if self.store is not None:
            self.store.add_audit(event)

    async def audit(self, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those `said` that are not stored."""
        if self.store is None:
            return list(said)
        kept = await self._loop.run_in_executor(None, _read_audit, self.store)
        known = {(event.get("at"), event.get("message")) for event in kept}
        more = [event for event in said if (event["at"], event["message"]) not in known]
        return sorted([*kept, *more], key=lambda event: float(event.get("at", 0.0)))

    @safely
    def checkpoint(self) -> None:
        """Write the running jobs that have reported since the last time, but not too many."""
        self._resuming.drop_lapsed()
        if self.store is not None:
            self.store.checkpoint(self._resuming.due())

    def count_resumed(self, name: str) -> int:
        """Return the iterations that a job has from before it was opened again, for its end."""
        job = self.following.get(name)
        return 0 if job is None else job.count_resumed()

    # What people look at

    def like_runs(self, name: str) -> int:
        """Return the number of like runs on which the forecast of a job rests."""
        with contextlib.suppress(Exception):
            return int(self.plugin.engine.likeness(name))
        return 0

    def kind_name(self, name: str) -> str | None:
        """Return the name of the kind of a job, None for unowned tasks."""
        kind = self.plugin.engine.remembering.kinds.get(name)
        return None if kind is None else kind.name

    def about(self) -> dict[str, Any]:
        """Return the state of the memory as plain values.

        Returns
        -------
        dict
            ``file`` (None without one), ``runs`` (remembered in this process), ``stored`` (safe on
            disk since the scheduler started), ``failed`` (why nothing is stored any more).
        """
        store = self.store
        return {
            "file": None if store is None else str(store.path),
            "runs": len(self.runs),
            "stored": 0 if store is None else store.stored,
            "failed": self.broken or (None if store is None else store.failed),
        }

    # The end of the scheduler

    @safely
    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        self._timer.stop()
        self.checkpoint()
        self.following.clear()
        if self.store is not None:
            self.store.close(timeout=0)

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()
        if self.store is not None:
            await self._loop.run_in_executor(None, self.store.close)


def _read_audit(store: RunStore) -> list[dict[str, Any]]:
    store.flush(PATIENCE)
    return store.audit()
