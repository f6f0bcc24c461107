"""Past runs in the engine of a scheduler and in its file, and jobs that go on where they were.

A job whose client or scheduler was lost goes on if its owner opens it again within ten minutes. A
training that begins from scratch then, as its first loss tells, is a new run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import numpy as np
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.memory import (
    MOST_KINDS,
    ExpectedStages,
    Kind,
    PastRun,
    PastRuns,
    PastStages,
    StagedRun,
    kind_of_name,
)
from dask_slaq.core.reports import is_usable
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import is_number
from dask_slaq.memory.unfinished import LAPSE, Unfinished

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.memory.store import RunStore

__all__ = ["MEMORY_TOPIC", "Memory"]

logger = logging.getLogger(__name__)

#: What is loaded of a kind: runs, newest first, and stages of runs, oldest first.
_Loaded = tuple[list[PastRun], list[StagedRun]]

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"
#: Maximum number of past runs read of one kind.
MOST_LOADED = 64
#: Number of kinds above which those of which no run is remembered any more no longer count as read.
MOST_LOADED_KINDS = 2 * MOST_KINDS
#: Seconds between two checkpoints, and for which opening a job waits for the store.
PERIOD, PATIENCE = 5.0, 1.0
#: Number of the newest losses kept of each job one by one, and growth of the distance between the
#: iterations of older ones.
RECENT, GROWTH = 64, 1.15
#: Maximum number of jobs of which the end is not known, and of those in one checkpoint.
MOST_UNFINISHED, MOST_AT_ONCE = 1000, 100
#: Maximum number of iterations that a job gets back, and of those in one step of the event loop.
MOST_ITERATIONS, STEP = 100_000, 500


@dataclass
class Following:
    """Bounded loss history of a running job; a report costs a microsecond."""

    key: str  # of its run in the store
    owner: str
    kind: Kind  # with which it was opened: later ones are known too late for its first stage
    expected: ExpectedStages | None = None  # None until it is asked for
    past: Unfinished | None = None  # what it goes on from, until a first report shows that it does
    resumed: int = 0  # iterations of that run
    counted: bool = False  # whether the job's `max_iter` counts them
    written: int = 0  # iterations at the last checkpoint
    at: float = 0.0  # seconds since 1970, of the last checkpoint
    count: int = 0
    _next: int = 1
    _iteration: list[int] = field(default_factory=list)
    _loss: list[float] = field(default_factory=list)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, loss: float) -> None:
        """Add the loss of the next iteration."""
        self.count += 1
        self._recent.append(loss)
        if self.count >= self._next:
            self._next = max(self.count + 1, math.ceil(self.count * GROWTH))
            self._iteration.append(self.count)
            self._loss.append(loss)

    def run(self, job: str, kind: Kind, work: float, tasks: float) -> PastRun | None:
        """Return the run so far, with the newest losses one by one; None with fewer than two.

        `work` is in core-seconds per iteration, 0 if unknown; `tasks` are parallel in an iteration.
        """
        if self.count < 2:
            return None
        first = self.count - len(self._recent) + 1
        older = np.searchsorted(self._iteration, first)
        return PastRun(
            job,
            kind,
            np.concatenate([self._iteration[:older], np.arange(first, self.count + 1)]).astype(int),
            np.concatenate([self._loss[:older], list(self._recent)]).astype(float),
            iterations=self.count,
            outcome="failed",
            work=work if work > 0 else math.nan,
            tasks=tasks if work > 0 else math.nan,
            ended=time(),
        )


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


class Memory:
    """Past runs of the jobs on a scheduler, in the file `path` if it is given. It never raises.

    The engine of these jobs, which has `runs` as its memory, is asked for when it is needed. Events
    for `MEMORY_TOPIC` are passed to `tell`.

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

    def __init__(
        self,
        path: str | None,
        engine: Callable[[], Engine | Recorder],
        tell: Callable[[dict[str, str]], object],
    ) -> None:
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self.stages = PastStages()
        self.following: dict[str, Following] = {}
        self._engine, self._tell = engine, tell
        self._unfinished: OrderedDict[tuple[str, str], Unfinished] = OrderedDict()
        self._ending: dict[str, str] = {}  # keys of jobs that are being removed
        self._loading: dict[str, asyncio.Future[_Loaded]] = {}  # kinds that are being read
        self._loaded: set[str] = set()  # kinds that were read, but for forgotten ones
        self._loop = asyncio.get_running_loop()
        self._timer = PeriodicCallback(self.checkpoint, PERIOD * 1000)
        self.store = None if path is None else _open(path, self._acknowledge)
        self._left: asyncio.Future[list[Unfinished]] | None = None
        self._ends = 0  # number of ends that were stored
        if self.store is not None:
            self.store.lapse(time())
            self._left = self._loop.run_in_executor(None, self.store.unfinished, time() - LAPSE)
            self._left.add_done_callback(self._take_up)
            ends = self._loop.run_in_executor(None, self.store.ends)
            ends.add_done_callback(self._recall_ends)

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
            self._keep_unfinished(one, newest=False)

    @safely
    def _recall_ends(self, ends: asyncio.Future[list[bool]]) -> None:
        """Count the ends of jobs on earlier schedulers."""
        self._engine().jobs.ends.recall(ends.result())

    # Coming and going

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what the store knows of a job that is about to begin, but do not wait for long.

        `kind` is what its user stated.
        """
        if self.store is None or self.broken is not None:
            return
        waiting = [self._left, self._load((kind or kind_of_name(name)).name)]
        if pending := [future for future in waiting if future is not None and not future.done()]:
            await asyncio.wait(pending, timeout=PATIENCE)

    def _load(self, kind: str) -> asyncio.Future[_Loaded] | None:
        """Load the runs of a kind off the event loop, once. Returns None if it was loaded."""
        if self.store is None or kind in self._loaded:
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
    def begin(self, name: str, owner: str, kind: Kind | None = None) -> None:
        """Follow the new job `name` of an `owner`. `kind` is what its user stated."""
        self.following[name] = Following(uuid.uuid4().hex, owner, kind or kind_of_name(name))
        if not self._timer.is_running():
            self._timer.start()

    async def resume(self, name: str, owner: str, kind: Kind | None) -> int:
        """Give a job that has just begun the losses of its unfinished run, if there is one.

        Returns the number of its iterations. `kind` is what its user stated; an unfinished run of
        another kind has failed.
        """
        if self.broken is None:
            try:
                return await self._resume(name, owner, kind)
            except Exception as error:
                self.fail(error)
        return 0

    async def _resume(self, name: str, owner: str, kind: Kind | None) -> int:
        self._drop_lapsed()
        job, engine = self.following.get(name), self._engine()
        one = self._unfinished.pop((name, owner), None)
        if one is None or job is None:
            return 0
        if kind is not None and kind.name != one.run.kind.name:
            self._lose(one)
            return 0
        done = one.run.iterations
        losses = one.run.losses(max(done - MOST_ITERATIONS, 0) + 1, done).tolist()
        job.key, job.past, job.resumed = one.key, one, len(losses)
        if kind is None:
            engine.set_kind(name, one.run.kind)
        for start in range(0, len(losses), STEP):
            if self.following.get(name) is not job:  # its client left meanwhile
                return 0
            now = monotonic()
            for loss in losses[start : start + STEP]:
                job.add(loss)
                engine.report(name, loss, now)
            await asyncio.sleep(0)
        logger.info("job %s goes on after %d iterations", name, len(losses))
        return len(losses)

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
            if job.past is not None and job.past.run.kind.name != kind.name:
                self._begin_anew(name, job.past)
            self._engine().set_kind(name, kind)

    def report(self, name: str, loss: float) -> None:
        """Record a `loss` of the job `name`, before the engine takes it in. O(1)."""
        job = self.following.get(name)
        if job is None or not is_usable(loss):
            return
        try:  # not `safely`, which would take longer than all of this
            if job.past is not None:
                past, job.past = job.past, None
                if _is_from_scratch(past.run, loss):
                    job = self._begin_anew(name, past)
            job.add(float(loss))
        except Exception as error:
            self.fail(error)

    def _begin_anew(self, name: str, past: Unfinished) -> Following:
        """Make a job new. The run that it went on from has failed."""
        self._lose(past)
        job, engine, now = self.following[name], self._engine(), monotonic()
        was, owner, kind = engine.jobs[name], engine.jobs.owner[name], self._kind_of(name)
        most = None if was.max_iter is None else int(was.max_iter)
        if most is not None and job.counted:
            most = max(most - job.resumed, 1)
        settings, paused = {**was.settings, "max_iter": most}, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, owner=owner, kind=kind, **settings)
        if paused:
            engine.pause(name)
        self.following[name] = job = Following(uuid.uuid4().hex, job.owner, job.kind)
        return job

    def count_resumed(self, name: str) -> int:
        """Return the iterations that a job has from before it was opened again, for its end."""
        if (job := self.following.get(name)) is None:
            return 0
        job.counted = True
        return job.resumed

    @safely
    def end(self, name: str, outcome: str | None, stages: Mapping[str, tuple[float, int]]) -> None:
        """Prepare for the end of a job, which is about to be removed from the engine.

        The outcome is None if its client was lost: it may come back. `stages` are the core-seconds
        and numbers of blocks of its stages, none for a job without stages.
        """
        job = self.following.pop(name, None)
        if not self.following:
            self._timer.stop()
        if job is None:
            return
        if stages and outcome == "done":
            staged = StagedRun(job.kind, stages, time())
            self.stages.add(staged)
            if self.store is not None:
                self.store.add_stages(staged)
        run = self._run_of(name, job)
        if run is None:
            self._discard(job.key)
        elif outcome is not None:
            self._ending[name] = job.key
        else:
            one = Unfinished(job.key, job.owner, run)
            self._keep_unfinished(one)
            if self.store is not None:
                self.store.checkpoint([one])

    @safely
    def ended(self, name: str) -> None:
        """Store how well its end was foretold, and discard what the engine did not remember."""
        ends = self._engine().jobs.ends
        if self.store is not None and ends.judged > self._ends:
            self._ends = ends.judged
            self.store.add_end(ends.held[-1])
        if (key := self._ending.pop(name, None)) is not None:
            self._discard(key)

    def _discard(self, key: str) -> None:
        if self.store is not None:
            self.store.discard(key)

    def _keep(self, run: PastRun) -> None:
        """Store a run that has just been added to the memory of the engine."""
        key = self._ending.pop(run.job, None)
        if self.store is not None and key is not None:
            self.store.add(key, run)

    def _acknowledge(self, key: str, job: str) -> None:
        """Tell that a run is safe on disk. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            event = {"event": "stored", "job": job, "key": key}
            self._loop.call_soon_threadsafe(self._tell, event)

    # Runs of which the end is not known

    def _keep_unfinished(self, one: Unfinished, newest: bool = True) -> None:
        """Keep a run for `LAPSE` seconds; if `newest`, in place of one of the same job."""
        at = one.run.job, one.owner
        if newest or at not in self._unfinished:
            self._unfinished[at] = one
        if len(self._unfinished) > MOST_UNFINISHED:
            self._lose(self._unfinished.popitem(last=False)[1])

    def _drop_lapsed(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        before = time() - LAPSE
        for at in [at for at, one in self._unfinished.items() if one.run.ended < before]:
            self._lose(self._unfinished.pop(at))

    def _lose(self, one: Unfinished) -> None:
        """Remember that an unfinished run has failed."""
        self._ending[one.run.job] = one.key
        self.runs.add(replace(one.run, outcome="failed"))

    @safely
    def checkpoint(self) -> None:
        """Write the running jobs that have reported since the last time, but not too many."""
        self._drop_lapsed()
        if self.store is not None:
            self.store.checkpoint(self._due())

    def _due(self) -> list[Unfinished]:
        """Return the runs to write now, and count them as written."""
        now, some = time(), []
        for name, job in list(self.following.items()):
            unchanged = job.count == job.written and now - job.at < LAPSE / 4
            if unchanged or job.past is not None:
                continue
            job.written, job.at = job.count, now
            if (run := self._run_of(name, job)) is not None:
                some.append(Unfinished(job.key, job.owner, run))
                self.following[name] = self.following.pop(name)  # so that all have their turn
            if len(some) >= MOST_AT_ONCE:
                break
        return some

    def _run_of(self, name: str, job: Following) -> PastRun | None:
        """Return the run so far, None if it has learned nothing."""
        engine = self._engine()
        if name not in engine.jobs:
            return None
        seen = engine.jobs[name].runtime
        return job.run(name, self._kind_of(name), seen.work, seen.width)

    def _kind_of(self, name: str) -> Kind:
        return self._engine().remembering.kinds.get(name) or kind_of_name(name)

    def expected_stages(self, name: str) -> ExpectedStages:
        """Return what like runs let expect of the stages of a job, the same for its whole life."""
        job = self.following.get(name)
        if job is None or self.broken is not None:
            return {}
        if job.expected is None:
            job.expected = self.stages.expected(job.kind)
        return job.expected

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
        """Return the state of the memory as plain values.

        They are ``file`` (None without one), ``runs`` (remembered in this process), ``stored``
        (safe on disk since the scheduler started) and ``failed`` (why nothing is stored any more).
        """
        store = self.store
        return {
            "file": None if store is None else str(store.path),
            "runs": len(self.runs),
            "stored": 0 if store is None else store.stored,
            "failed": self.broken or (None if store is None else store.failed),
        }

    @safely
    def keep_audit(self, event: dict[str, Any]) -> None:
        """Store an `event` of the audit."""
        if self.store is not None:
            self.store.add_event("audit", event)

    @safely
    def keep_ended(self, event: dict[str, Any]) -> None:
        """Store the last alert of a job."""
        if self.store is not None:
            self.store.add_event("ended", event)

    @safely
    def keep_curve(self, curve: dict[str, Any]) -> None:
        """Store the curve of a job that ended; see `Epochs.curve`."""
        if self.store is not None and curve["times"]:
            self.store.add_event("curves", curve)

    def lately(
        self, since: float, then: Callable[[list[dict[str, Any]], list[dict[str, Any]]], None]
    ) -> None:
        """Call `then` with the jobs that ended `since` a Unix time on earlier schedulers.

        These are their last alerts, and their curves.
        """
        if self.store is None:
            return
        store = self.store

        def read() -> list[list[dict[str, Any]]]:
            return [store.events("ended"), store.events("curves")]

        def found(future: asyncio.Future[list[list[dict[str, Any]]]]) -> None:
            if not future.cancelled() and future.exception() is None:
                ended, curves = future.result()
                ended = [x for x in ended if is_number(x.get("ended")) and x["ended"] >= since]
                then(ended, [x for x in curves if x.get("ended", 0.0) >= since])

        self._loop.run_in_executor(None, read).add_done_callback(found)

    async def all_ended(self, here: Iterable[dict[str, Any]], since: float) -> list[dict[str, Any]]:
        """Return the jobs that ended `since` a Unix time, `here` or on earlier schedulers."""
        found = {(each["job"], each["ended"]): each for each in here}
        if self.store is not None:
            kept = await self._loop.run_in_executor(None, self.store.events, "ended")
            found = {(each.get("job"), each.get("ended", 0.0)): each for each in kept} | found
        return sorted(
            (each for (_, ended), each in found.items() if ended >= since),
            key=lambda each: float(each["ended"]),
        )

    async def audit(self, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those `said` that are not stored."""
        if self.store is None:
            return list(said)
        kept = await self._loop.run_in_executor(None, self.store.events, "audit")
        known = {(event.get("at"), event.get("message")) for event in kept}
        more = [event for event in said if (event["at"], event["message"]) not in known]
        return sorted([*kept, *more], key=lambda event: float(event.get("at", 0.0)))

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
            try:
                await self._loop.run_in_executor(None, self.store.close)
            except RuntimeError:  # the program ends, and no other thread takes work any more
                self.store.close()


def _open(path: str, acknowledge: Callable[[str, str], object]) -> RunStore:
    from dask_slaq.memory.store import RunStore  # not loaded where nothing is kept

    return RunStore(path, acknowledge)


def _read(store: RunStore, kind: str) -> _Loaded:
    return store.load(kind, MOST_LOADED), store.stages(kind)


def _is_from_scratch(run: PastRun, loss: float) -> bool:
    """Return whether a training that reports `loss` next began anew, rather than going on.

    Its loss is then more like the first than like the last losses of the run.
    """
    first, last = float(run.loss[0]), float(np.median(run.loss[-5:]))
    return abs(loss - first) < abs(loss - last)
