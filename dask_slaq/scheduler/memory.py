"""Memory of a scheduler: past runs in its engine, and in a file if ``slaq.memory`` names one.

Jobs whose end is not known, because their client or this scheduler was lost, go on where they were
if their owner opens them again within ten minutes. Nothing here raises: without memory, jobs are
scheduled as well as without past runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from tornado.ioloop import PeriodicCallback

from dask_slaq.core.memory import Kind, PastRuns, Run, kind_of_name
from dask_slaq.memory import LAPSE, RunStore, Unfinished
from dask_slaq.scheduler.unfinished import Following, is_from_scratch, losses_of

if TYPE_CHECKING:
    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["MEMORY_TOPIC", "Memory", "last_resort"]

logger = logging.getLogger(__name__)

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"
#: Maximum number of past runs read of one kind.
MOST_LOADED = 64
#: Seconds between two checkpoints, and maximum number of jobs in one.
PERIOD, MOST_AT_ONCE = 5.0, 100
#: Maximum number of jobs of which the end is not known, and of runs that are not safe yet.
MOST_UNFINISHED, MOST_UNSAFE = 1000, 10_000
#: Maximum number of iterations that a job gets back, and of those in one step of the event loop.
MOST_ITERATIONS, STEP = 100_000, 500
#: Seconds for which opening a job waits for the store.
PATIENCE = 1.0


def last_resort(name: str) -> Kind:
    """Return the kind of a job of which nothing but the name is known."""
    return kind_of_name(name) or Kind(name)


class _Runs(PastRuns):
    """Past runs of an engine. Those that end are passed on to the store."""

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


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it never raises: an error is logged once, and ends the memory."""

    @functools.wraps(method)
    def call(self: Memory, *args: Any, **kwargs: Any) -> Any:
        if self.broken is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.fail(error)
        return None

    return call


class Memory:
    """Past runs of the jobs on a scheduler.

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
    broken : str or None
        The error that ended the memory.
    """

    def __init__(self, plugin: SlaqPlugin, path: str | None) -> None:
        self._plugin = plugin
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self._following: dict[str, Following] = {}
        self._ending: dict[str, str] = {}  # keys of jobs that are being removed
        self._unsafe: dict[str, str] = {}  # jobs of runs that are being written, by key
        self._unfinished: OrderedDict[tuple[str, str], Unfinished] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer = PeriodicCallback(self.checkpoint, PERIOD * 1000)
        self.store = None if path is None else RunStore(path, self._acknowledge)
        self._found: asyncio.Future[Any] | None = None
        if self.store is not None:
            self.store.lapse(time())
            self._found = self._loop.run_in_executor(None, self.store.unfinished, time() - LAPSE)
            self._found.add_done_callback(self._take_unfinished)

    def fail(self, error: Exception) -> None:
        """End the memory, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            logger.error("past runs are no longer remembered: %s", self.broken, exc_info=error)

    @safely
    def _take_unfinished(self, found: asyncio.Future[list[Unfinished]]) -> None:
        for one in found.result()[-MOST_UNFINISHED:]:
            self._unfinished.setdefault((one.run.job, one.owner), one)

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
        waiting = [self._load((kind or last_resort(name)).name)]
        if self._found is not None:
            waiting.append(self._found)
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
        """Follow a new job of an owner."""
        self._following[name] = Following(uuid.uuid4().hex, owner)
        if not self._timer.is_running():
            self._timer.start()

    @safely
    def set_kind(self, name: str, kind: Kind) -> None:
        """Set the kind of a running job, as soon as the runs of that kind are loaded."""
        job = self._following.get(name)
        if job is None:
            return
        found = self._load(kind.name)
        if found is None or found.done():
            self._set_kind(name, job, kind)
        else:
            found.add_done_callback(lambda _: self._set_kind(name, job, kind))

    @safely
    def _set_kind(self, name: str, job: Following, kind: Kind) -> None:
        if self._following.get(name) is not job:
            return
        if job.past is not None and job.past.run.kind.name != kind.name:
            self._begin_anew(name, job)
        self._plugin.engine.set_kind(name, kind)

    @safely
    def report(self, name: str, loss: float) -> None:
        """Record a reported loss, before the engine takes it in. O(1)."""
        job = self._following.get(name)
        if job is None:
            return
        if job.past is not None:
            if is_from_scratch(job.past.run, loss):
                self._begin_anew(name, job)
            job.past = None
        job.add(float(loss))

    @safely
    def end(self, name: str, outcome: str | None) -> None:
        """Prepare for the end of a job, which is about to be removed from the engine.

        Parameters
        ----------
        name : str
        outcome : {"done", "stopped", "failed"} or None
            None if its client was lost: it may come back.
        """
        job = self._following.pop(name, None)
        if not self._following:
            self._timer.stop()
        if job is None:
            return
        run = self._run_of(name, job)
        if run is None:
            if self.store is not None:
                self.store.discard(job.key)
        elif outcome is not None:
            self._ending[name] = job.key
        else:
            self._unfinished[name, job.owner] = one = Unfinished(job.key, job.owner, run)
            if len(self._unfinished) > MOST_UNFINISHED:
                self._lose(self._unfinished.popitem(last=False)[1])
            if self.store is not None:
                self.store.checkpoint([one])

    def _keep(self, run: Run) -> None:
        """Store a run that has just been added to the memory of the engine."""
        key = self._ending.pop(run.job, None)
        if self.store is None or key is None:
            return
        if len(self._unsafe) < MOST_UNSAFE:
            self._unsafe[key] = run.job
        self.store.add(key, run)

    def _lose(self, one: Unfinished) -> None:
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
            self._plugin.scheduler.log_event(MEMORY_TOPIC, event)

    # Runs that go on

    async def resume(self, name: str, owner: str, kind: Kind | None) -> None:
        """Give a job that has just been opened the losses of its unfinished run, if there is one.

        Parameters
        ----------
        name : str
        owner : str
        kind : Kind or None
            Kind that its user stated; an unfinished run of another kind has failed.
        """
        try:
            await self._resume(name, owner, kind)
        except Exception as error:
            self.fail(error)

    async def _resume(self, name: str, owner: str, kind: Kind | None) -> None:
        self._drop_lapsed()
        job, engine = self._following.get(name), self._plugin.engine
        one = self._unfinished.pop((name, owner), None)
        if one is None or job is None or self.broken is not None:
            return
        if kind is not None and kind.name != one.run.kind.name:
            self._lose(one)
            return
        losses = losses_of(one.run, MOST_ITERATIONS).tolist()
        job.key, job.past, job.resumed = one.key, one, len(losses)
        if kind is None:
            engine.set_kind(name, one.run.kind)
        for start in range(0, len(losses), STEP):
            if self._following.get(name) is not job:  # its client left meanwhile
                return
            now = monotonic()
            for loss in losses[start : start + STEP]:
                job.add(loss)
                engine.report(name, loss, now)
            await asyncio.sleep(0)
        logger.info("job %s goes on after %d iterations", name, len(losses))

    def _begin_anew(self, name: str, job: Following) -> None:
        """Make a job new whose training began from scratch. Its past run has failed."""
        if job.past is not None:
            self._lose(job.past)
        self._following[name] = Following(uuid.uuid4().hex, job.owner)
        engine, now = self._plugin.engine, monotonic()
        was, owner, kind = engine.jobs[name], engine.jobs.owner[name], self._kind_of(name)
        limits = {"min_share": was.min_share, "max_share": was.max_share, "target": was.target}
        most = None if was.max_iter is None else int(was.max_iter)
        if most is not None and job.counted:
            most = max(most - job.resumed, 1)
        weight, paused = was.weight, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, weight=weight, max_iter=most, owner=owner, kind=kind, **limits)
        if paused:
            engine.pause(name)

    def count_resumed(self, name: str) -> int:
        """Return the iterations that a job has from before it was opened again, for its end."""
        job = self._following.get(name)
        if job is None:
            return 0
        job.counted = True
        return job.resumed

    def _drop_lapsed(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        before = time() - LAPSE
        for at in [at for at, one in self._unfinished.items() if one.run.ended < before]:
            self._lose(self._unfinished.pop(at))

    @safely
    def checkpoint(self) -> None:
        """Write the running jobs that have reported since the last time, but not too many."""
        self._drop_lapsed()
        if self.store is None:
            return
        some, now = [], time()
        for name, job in list(self._following.items()):
            unchanged = job.count == job.written and now - job.at < LAPSE / 4
            if unchanged or job.past is not None:
                continue
            job.written, job.at = job.count, now
            if (run := self._run_of(name, job)) is not None:
                some.append(Unfinished(job.key, job.owner, run))
                self._following[name] = self._following.pop(name)  # so that all have their turn
            if len(some) >= MOST_AT_ONCE:
                break
        self.store.checkpoint(some)

    def _run_of(self, name: str, job: Following) -> Run | None:
        """Return the run of a job so far. Changes nothing in the engine."""
        engine = self._plugin.engine
        if name not in engine.jobs:
            return None
        seen = engine.jobs[name].runtime
        return job.run(name, self._kind_of(name), seen.work, seen.width, time())

    def _kind_of(self, name: str) -> Kind:
        kind: Kind | None = self._plugin.engine.remembering.kinds.get(name)
        return kind or last_resort(name)

    # What people look at

    def like_runs(self, name: str) -> int:
        """Return the number of like runs on which the forecast of a job rests."""
        try:
            return int(self._plugin.engine.likeness(name))
        except Exception:
            return 0

    def kind_name(self, name: str) -> str | None:
        """Return the name of the kind of a job, None for unowned tasks."""
        kind = self._plugin.engine.remembering.kinds.get(name)
        return None if kind is None else kind.name

    def about(self) -> dict[str, Any]:
        """Return the state of the memory as plain values: see `Messages.status`."""
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
        self._following.clear()
        if self.store is not None:
            self.store.close(timeout=0)

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()
        if self.store is not None:
            await self._loop.run_in_executor(None, self.store.close)
