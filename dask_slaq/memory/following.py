"""Past runs in the engine of a scheduler, and jobs that go on where they were.

A job whose client or scheduler was lost goes on if its owner opens it again within ten minutes. A
training that begins from scratch then, as its first loss tells, is a new run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import numpy as np
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.fairly import oldest_of_most
from dask_slaq.core.memory import Kind, PastRun, PastRuns, PastStages, StagedRun, kind_of_name
from dask_slaq.core.reports import is_usable
from dask_slaq.core.safely import safely
from dask_slaq.core.trials import PastModel, PastSearches
from dask_slaq.memory.unfinished import LAPSE, Unfinished

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.memory import ExpectedStages, PastStages, StagedRun
    from dask_slaq.core.recording import Recorder
    from dask_slaq.memory.store import RunStore

__all__ = ["MEMORY_TOPIC", "Memory"]

logger = logging.getLogger(__name__)

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"
#: Seconds between two checkpoints.
PERIOD = 5.0
#: Number of the newest losses kept of each job one by one, and growth of the distance between the
#: iterations of older ones.
RECENT, GROWTH = 64, 1.15
#: Maximum number of jobs of which the end is not known.
MOST_UNFINISHED = 1000
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
    """Past runs of the jobs on a scheduler, as long as it runs. It never raises.

    The engine of these jobs, which has `runs` as its memory, is asked for when it is needed.
    `FiledMemory` keeps all in a file: what is done for that alone does nothing here.

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

    def __init__(self, engine: Callable[[], Engine | Recorder]) -> None:
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self._stages: PastStages | None = None
        self.searches = PastSearches()
        self.store: RunStore | None = None
        self.following: dict[str, Following] = {}
        self._engine = engine
        self._unfinished: OrderedDict[tuple[str, str], Unfinished] = OrderedDict()
        self._ending: dict[str, str] = {}  # keys of jobs that are being removed
        self._timer = PeriodicCallback(self.checkpoint, PERIOD * 1000)

    @property
    def stages(self) -> PastStages:
        """Stages of past runs; made for the first of them."""
        if self._stages is None:
            self._stages = PastStages()
        return self._stages

    def fail(self, error: Exception) -> None:
        """End the memory, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self.following.clear()
            logger.error("past runs are no longer remembered: %s", self.broken, exc_info=error)

    # Coming and going

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

    def report(self, name: str, loss: float, *, anew: bool = False) -> None:
        """Record a `loss` of the job `name`, before the engine takes it in. O(1).

        `anew` if its training begins again with it.
        """
        job = self.following.get(name)
        if job is None or not (anew or is_usable(loss)):
            return
        try:  # not `safely`, which would take longer than all of this
            if job.past is not None or anew:
                past, job.past = job.past, None
                if past is None or _is_from_scratch(past.run, loss):
                    job = self._begin_anew(name, past)
            if is_usable(loss):
                job.add(float(loss))
        except Exception as error:
            self.fail(error)

    def _begin_anew(self, name: str, past: Unfinished | None) -> Following:
        """Make a job new. The run that it went on from, if any, has failed."""
        if past is not None:
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
            self._keep_stages(StagedRun(job.kind, stages, time()))
        run = self._run_of(name, job)
        if run is None:
            self._discard(job.key)
        elif outcome is not None:
            self._ending[name] = job.key
        else:
            one = Unfinished(job.key, job.owner, run)
            self._keep_unfinished(one)
            self._write([one])

    @safely
    def keep_models(self, name: str, models: list[PastModel]) -> None:
        """Keep the models of a search that is about to end, for the next one of its kind."""
        if (job := self.following.get(name)) is not None:
            self.searches.add(job.owner, job.kind.name, models)

    def models_like(self, name: str, owner: str, kind: Kind | None) -> list[PastModel]:
        """Return the models of past searches like a job of an owner; `kind` is as for `begin`."""
        return self.searches.of(owner, (kind or kind_of_name(name)).name)

    # Runs of which the end is not known

    def _keep_unfinished(self, one: Unfinished, newest: bool = True) -> None:
        """Keep a run for `LAPSE` seconds; if `newest`, in place of one of the same job."""
        at = one.run.job, one.owner
        if newest or at not in self._unfinished:
            self._unfinished[at] = one
        if len(self._unfinished) > MOST_UNFINISHED:
            self._lose(self._unfinished.pop(oldest_of_most(self._unfinished, itemgetter(1))))

    def _drop_lapsed(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        before = time() - LAPSE
        for at in [at for at, one in self._unfinished.items() if one.run.ended < before]:
            self._lose(self._unfinished.pop(at))

    def _lose(self, one: Unfinished) -> None:
        """Remember that an unfinished run has failed."""
        self._ending[one.run.job] = one.key
        self.runs.add(replace(one.run, outcome="failed"))

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
        if job is None or self.broken is not None or self._stages is None:
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

    # The end of the scheduler

    @safely
    def ended(self, name: str) -> None:
        """Discard what the engine did not remember of a job that it has removed."""
        if (key := self._ending.pop(name, None)) is not None:
            self._discard(key)

    def _keep(self, run: PastRun) -> None:
        """Keep a run that has just been added to the memory of the engine."""
        self._ending.pop(run.job, None)

    @safely
    def checkpoint(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        self._drop_lapsed()

    def _keep_stages(self, staged: StagedRun) -> None:
        self.stages.add(staged)

    # What is done for a file

    def _discard(self, key: str) -> None:
        """Drop what is stored of a run that is not remembered."""

    def _write(self, some: list[Unfinished]) -> None:
        """Store runs of which the end is not known."""

    def _load(self, kind: str) -> asyncio.Future[Any] | None:
        """Load the runs of a kind off the event loop, once. Returns None if it was loaded."""
        return None

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what is stored of a job that is about to begin, but do not wait for long.

        `kind` is what its user stated.
        """

    def keep_audit(self, event: dict[str, Any]) -> None:
        """Store an `event` of the audit."""

    def keep_ended(self, event: dict[str, Any]) -> None:
        """Store the last alert of a job."""

    def lately(self, since: float, then: Callable[[list[dict[str, Any]]], None]) -> None:
        """Call `then` with the last alerts of jobs that ended on earlier schedulers.

        They ended `since` a Unix time.
        """

    # What people look at

    def about(self) -> dict[str, Any]:
        """Return the state of the memory as plain values.

        They are ``file`` (None without one), ``runs`` (remembered in this process), ``stored``
        (safe on disk since the scheduler started) and ``failed`` (why nothing is stored any more).
        """
        return {"file": None, "runs": len(self.runs), "stored": 0, "failed": self.broken}

    async def all_ended(self, here: Iterable[dict[str, Any]], since: float) -> list[dict[str, Any]]:
        """Return the jobs that ended `since` a Unix time, `here` or on earlier schedulers."""
        return [each for each in here if each["ended"] >= since]

    async def audit(self, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those `said` that are not stored."""
        return list(said)

    # The end of the scheduler

    @safely
    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        self._timer.stop()
        self.checkpoint()
        self.following.clear()

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()


def _is_from_scratch(run: PastRun, loss: float) -> bool:
    """Return whether a training that reports `loss` next began anew, rather than going on.

    Its loss is then more like the first than like the last losses of the run.
    """
    first, last = float(run.loss[0]), float(np.median(run.loss[-5:]))
    return abs(loss - first) < abs(loss - last)
