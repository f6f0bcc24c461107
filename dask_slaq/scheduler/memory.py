"""Memory of a scheduler: past runs in its engine, and in a file if ``slaq.memory`` names one.

Jobs whose end is not known, because their client or this scheduler was lost, go on where they were
if their owner opens them again within ten minutes. Nothing here raises: without memory, jobs are
scheduled as well as without past runs.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import numpy as np
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.memory import Kind, Run, kind_of_name
from dask_slaq.memory import LAPSE, RunStore, Unfinished

if TYPE_CHECKING:
    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["MEMORY_TOPIC", "Memory"]

logger = logging.getLogger(__name__)

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"
#: Maximum number of past runs read of one kind.
MOST_LOADED = 64
#: Seconds between two checkpoints, and maximum number of jobs in one.
PERIOD, MOST_AT_ONCE = 5.0, 100
#: Number of the newest losses kept of each running job, to go on from.
RECENT = 64
#: Maximum number of jobs of which the end is not known.
MOST_UNFINISHED = 1000
#: Maximum number of iterations that a job gets back, and of those in one step of the event loop.
MOST_ITERATIONS, STEP = 100_000, 500
#: Seconds for which opening a job waits for what an earlier scheduler left.
PATIENCE = 5.0


@dataclass
class Following:
    """What is remembered of a running job.

    Attributes
    ----------
    key : str
        Identifies its run in the store.
    owner : str
    recent : deque of float
        Its newest losses.
    past : Unfinished or None
        The run that it went on from, until its first report shows that it does.
    resumed : int
        Iterations of that run.
    written, at : float
        Iterations and time, in seconds since 1970, at the last checkpoint.
    """

    key: str
    owner: str
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    past: Unfinished | None = None
    resumed: int = 0
    written: int = 0
    at: float = 0.0


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it never raises: an error is logged once, and ends the memory."""

    @functools.wraps(method)
    def call(self: Memory, *args: Any, **kwargs: Any) -> Any:
        if self.broken is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.broken = f"{type(error).__name__}: {error}"
                logger.exception("past runs are no longer remembered")
        return None

    return call


class Memory:
    """Past runs of the jobs on a scheduler.

    Parameters
    ----------
    plugin : SlaqPlugin
        With an engine.
    path : str or None
        File of the store; None to remember runs until the scheduler ends.

    Attributes
    ----------
    store : RunStore or None
    broken : str or None
        The error that ended the memory.
    """

    def __init__(self, plugin: SlaqPlugin, path: str | None) -> None:
        self._plugin = plugin
        self.broken: str | None = None
        self._following: dict[str, Following] = {}
        self._unfinished: OrderedDict[tuple[str, str], Unfinished] = OrderedDict()
        self._loaded: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.store = None if path is None else RunStore(path, self._acknowledge)
        self._job_of: dict[str, str] = {}
        self._ready: asyncio.Future[Any] | None = None
        self._timer = PeriodicCallback(self.checkpoint, PERIOD * 1000)
        if self.store is not None:
            self._ready = asyncio.ensure_future(self._read_unfinished(self.store))

    async def _read_unfinished(self, store: RunStore) -> None:
        now = time()
        store.lapse(now)
        try:
            found = await self._loop.run_in_executor(None, store.unfinished, now - LAPSE)
        except Exception:
            logger.exception("what an earlier scheduler left in %s cannot be read", store.path)
            return
        for one in found[-MOST_UNFINISHED:]:
            self._unfinished.setdefault((one.run.job, one.owner), one)

    # Coming and going

    async def ready(self) -> None:
        """Wait until it is known what an earlier scheduler left, but not for long."""
        if self._ready is not None:
            await asyncio.wait([self._ready], timeout=PATIENCE)

    @safely
    def begin(self, name: str, owner: str, kind: Kind | None) -> None:
        """Follow a new job, and load the runs of its kind.

        Parameters
        ----------
        name : str
        owner : str
        kind : Kind or None
            Kind that its user stated.
        """
        self._following[name] = Following(uuid.uuid4().hex, owner)
        self._load(kind or kind_of_name(name))
        if not self._timer.is_running():
            self._timer.start()

    @safely
    def set_kind(self, name: str, kind: Kind) -> None:
        """Set the kind of a running job, and load the runs of that kind."""
        job = self._following.get(name)
        if job is None:
            return
        if job.past is not None and job.past.run.kind.name != kind.name:
            self._begin_anew(name, job)
        self._plugin.engine.set_kind(name, kind)
        self._load(kind)

    @safely
    def report(self, name: str, loss: float) -> None:
        """Record a reported loss, before the engine takes it in. O(1)."""
        job = self._following.get(name)
        if job is None:
            return
        if job.past is not None:
            if _is_from_scratch(job.past.run, loss):
                self._begin_anew(name, job)
            job.past = None
        job.recent.append(loss)

    @safely
    def end(self, name: str, outcome: str | None) -> None:
        """Remember the run of a job that is about to be removed from the engine.

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
        run = self._run_of(name, outcome or "failed")
        if run is None:
            if self.store is not None:
                self.store.discard(job.key)
        elif outcome is None:
            self._keep(Unfinished(job.key, job.owner, self._detailed(name, job, run)))
        else:
            self._remember(job.key, run)

    def _keep(self, one: Unfinished) -> None:
        self._unfinished[one.run.job, one.owner] = one
        self._unfinished.move_to_end((one.run.job, one.owner))
        if len(self._unfinished) > MOST_UNFINISHED:
            self._fail(self._unfinished.popitem(last=False)[1])
        if self.store is not None:
            self.store.checkpoint([one])

    def _fail(self, one: Unfinished) -> None:
        self._remember(one.key, replace(one.run, outcome="failed"))

    def _remember(self, key: str, run: Run) -> None:
        self._plugin.engine.remember(run)
        if self.store is not None:
            self._job_of[key] = run.job
            self.store.add(key, run)

    def _acknowledge(self, keys: Sequence[str]) -> None:
        """Tell which runs are safe on disk. Called in the writer's thread."""
        self._loop.call_soon_threadsafe(self._tell, tuple(keys))

    @safely
    def _tell(self, keys: Sequence[str]) -> None:
        for key in keys:
            event = {"event": "stored", "job": self._job_of.pop(key, ""), "key": key}
            self._plugin.scheduler.log_event(MEMORY_TOPIC, event)

    # Past runs

    def _load(self, kind: Kind | None) -> None:
        """Load the runs of a kind off the event loop, if they were not loaded before."""
        if self.store is None or kind is None or kind.name in self._loaded:
            return
        self._loaded.add(kind.name)
        found = self._loop.run_in_executor(None, self.store.load, kind.name, MOST_LOADED)
        found.add_done_callback(self._loaded_runs)

    @safely
    def _loaded_runs(self, found: asyncio.Future[list[Run]]) -> None:
        for run in reversed(found.result()):
            self._plugin.engine.remember(run)

    def like_runs(self, name: str) -> int:
        """Return the number of like runs on which the forecast of a job rests."""
        try:
            return int(self._plugin.engine.likeness(name))
        except Exception:
            return 0

    def about(self) -> dict[str, Any]:
        """Return the state of the memory as plain values, for the status."""
        store = self.store
        return {
            "file": None if store is None else str(store.path),
            "stored": 0 if store is None else store.stored,
            "dropped": 0 if store is None else store.dropped,
            "failed": self.broken or (None if store is None else store.failed),
        }

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
            self.broken = f"{type(error).__name__}: {error}"
            logger.exception("past runs are no longer remembered")

    async def _resume(self, name: str, owner: str, kind: Kind | None) -> None:
        self._drop_lapsed()
        job = self._following.get(name)
        one = self._unfinished.pop((name, owner), None)
        if one is None or job is None or self.broken is not None:
            return
        if kind is not None and kind.name != one.run.kind.name:
            self._fail(one)
            return
        job.key, job.past, job.resumed = one.key, one, min(one.run.iterations, MOST_ITERATIONS)
        if kind is None:
            self._plugin.engine.set_kind(name, one.run.kind)
            self._load(one.run.kind)
        losses = losses_of(one.run, MOST_ITERATIONS).tolist()
        job.recent.extend(losses[-RECENT:])
        for start in range(0, len(losses), STEP):
            if self._following.get(name) is not job:  # its client left meanwhile
                return
            now = monotonic()
            for loss in losses[start : start + STEP]:
                self._plugin.engine.report(name, loss, now)
            await asyncio.sleep(0)
        logger.info("job %s goes on after %d iterations", name, len(losses))

    def _begin_anew(self, name: str, job: Following) -> None:
        """Make a job new whose training began from scratch. Its past run has failed."""
        if job.past is not None:
            self._fail(job.past)
        resumed = job.resumed
        job.key, job.past, job.resumed, job.written = uuid.uuid4().hex, None, 0, 0
        job.recent.clear()
        engine, now = self._plugin.engine, monotonic()
        was, owner = engine.jobs[name], engine.jobs.owner[name]
        limits = {"min_share": was.min_share, "max_share": was.max_share, "target": was.target}
        most = None if was.max_iter is None else max(int(was.max_iter) - resumed, 1)
        kind, weight, paused = engine.kind_of(name), was.weight, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, weight=weight, max_iter=most, owner=owner, kind=kind, **limits)
        if paused:
            engine.pause(name)

    def resumed(self, name: str) -> int:
        """Return the iterations that a running job has from before it was opened again."""
        job = self._following.get(name)
        return 0 if job is None else job.resumed

    def _drop_lapsed(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        before = time() - LAPSE
        for at in [at for at, one in self._unfinished.items() if one.run.ended < before]:
            self._fail(self._unfinished.pop(at))

    @safely
    def checkpoint(self) -> None:
        """Write the running jobs that have reported since the last time, but not too many."""
        self._drop_lapsed()
        if self.store is None:
            return
        engine, some, now = self._plugin.engine, [], time()
        for name, job in list(self._following.items()):
            iterations = engine.jobs[name].iteration if name in engine.jobs else 0
            unchanged = iterations == job.written and now - job.at < LAPSE / 4
            if unchanged or job.past is not None:
                continue
            job.written, job.at = iterations, now
            run = self._run_of(name, "failed")
            if run is not None:
                some.append(Unfinished(job.key, job.owner, self._detailed(name, job, run)))
            # At the end of the line, so that all have their turn.
            self._following[name] = self._following.pop(name)
            if len(some) >= MOST_AT_ONCE:
                break
        self.store.checkpoint(some)

    def _run_of(self, name: str, outcome: str) -> Run | None:
        """Return the run of a job so far; None if it tells nothing."""
        engine = self._plugin.engine
        if name not in engine.jobs or engine.jobs[name].iteration < 2:
            return None
        run: Run | None = engine.run_of(name, outcome=outcome, ended=time())
        return run

    def _detailed(self, name: str, job: Following, run: Run) -> Run:
        """Return a run with the newest losses one by one."""
        recent = np.array(job.recent)
        first = run.iterations - len(recent) + 1
        kept = run.iteration < first
        return replace(
            run,
            iteration=np.concatenate([run.iteration[kept], np.arange(first, run.iterations + 1)]),
            loss=np.concatenate([run.loss[kept], recent]),
        )

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


def losses_of(run: Run, most: int) -> Any:
    """Return the losses of the last iterations of a run, interpolated between those kept.

    Parameters
    ----------
    run : Run
    most : int
        Maximum number of iterations.

    Returns
    -------
    (n,) array
    """
    first = max(run.iterations - most, 0) + 1
    return np.interp(np.arange(first, run.iterations + 1), run.iteration, run.loss)


def _is_from_scratch(run: Run, loss: float) -> bool:
    """Return whether a loss is more like the first than like the last loss of a run."""
    first, last = float(run.loss[0]), float(np.median(run.loss[-5:]))
    return abs(loss - first) < abs(loss - last)
