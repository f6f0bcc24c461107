"""Jobs whose end is not known, because their client or their scheduler was lost.

They go on where they were if their owner opens them again within ten minutes. A training that
begins from scratch then, as its first loss tells, is a new run.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.memory import Kind, Run
from dask_slaq.memory import LAPSE, Unfinished
from dask_slaq.scheduler.memory.following import (
    Following,
    is_from_scratch,
    last_resort,
    losses_of,
)

if TYPE_CHECKING:
    from dask_slaq.scheduler.memory.memory import Memory

__all__ = ["Resuming"]

logger = logging.getLogger(__name__)

#: Maximum number of jobs of which the end is not known, and of those in one checkpoint.
MOST_UNFINISHED, MOST_AT_ONCE = 1000, 100
#: Maximum number of iterations that a job gets back, and of those in one step of the event loop.
MOST_ITERATIONS, STEP = 100_000, 500


class Resuming:
    """Unfinished runs of the jobs on a scheduler.

    Parameters
    ----------
    memory : Memory
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._unfinished: OrderedDict[tuple[str, str], Unfinished] = OrderedDict()

    def keep(self, one: Unfinished, newest: bool = True) -> None:
        """Keep an unfinished run for `LAPSE` seconds.

        Parameters
        ----------
        one : Unfinished
        newest : bool
            Whether it replaces one of the same job and owner.
        """
        at = one.run.job, one.owner
        if newest or at not in self._unfinished:
            self._unfinished[at] = one
        if len(self._unfinished) > MOST_UNFINISHED:
            self._memory.lose(self._unfinished.popitem(last=False)[1])

    def drop_lapsed(self) -> None:
        """Count unfinished runs that nobody took up in time as failed."""
        before = time() - LAPSE
        for at in [at for at, one in self._unfinished.items() if one.run.ended < before]:
            self._memory.lose(self._unfinished.pop(at))

    async def resume(self, name: str, owner: str, kind: Kind | None) -> int:
        """Give a job that has just begun the losses of its unfinished run, if there is one.

        Parameters
        ----------
        name : str
        owner : str
        kind : Kind or None
            Kind that its user stated; an unfinished run of another kind has failed.

        Returns
        -------
        int
            Iterations of the unfinished run; 0 if there is none.
        """
        self.drop_lapsed()
        job, engine = self._memory.following.get(name), self._memory.plugin.engine
        one = self._unfinished.pop((name, owner), None)
        if one is None or job is None:
            return 0
        if kind is not None and kind.name != one.run.kind.name:
            self._memory.lose(one)
            return 0
        losses = losses_of(one.run, MOST_ITERATIONS).tolist()
        job.key, job.past, job.resumed = one.key, one, len(losses)
        if kind is None:
            engine.set_kind(name, one.run.kind)
        for start in range(0, len(losses), STEP):
            if self._memory.following.get(name) is not job:  # its client left meanwhile
                return 0
            now = monotonic()
            for loss in losses[start : start + STEP]:
                job.add(loss)
                engine.report(name, loss, now)
            await asyncio.sleep(0)
        logger.info("job %s goes on after %d iterations", name, len(losses))
        return len(losses)

    def check_kind(self, name: str, kind: Kind) -> None:
        """Make the job `name` new if its `kind` differs from that of the run that it resumed."""
        past = self._memory.following[name].past
        if past is not None and past.run.kind.name != kind.name:
            self._begin_anew(name, past)

    def check_loss(self, name: str, loss: float) -> Following:
        """Make the job `name` new if its first own `loss` shows that it began from scratch."""
        job = self._memory.following[name]
        past, job.past = job.past, None
        if past is not None and is_from_scratch(past.run, loss):
            return self._begin_anew(name, past)
        return job

    def _begin_anew(self, name: str, past: Unfinished) -> Following:
        """Make a job new. The run that it went on from has failed."""
        memory, job = self._memory, self._memory.following[name]
        memory.lose(past)
        engine, now = memory.plugin.engine, monotonic()
        was, owner, kind = engine.jobs[name], engine.jobs.owner[name], self._kind_of(name)
        limits: dict[str, Any] = {
            "min_share": was.min_share,
            "max_share": was.max_share,
            "target": was.target,
        }
        most = None if was.max_iter is None else int(was.max_iter)
        if most is not None and job.counted:
            most = max(most - job.resumed, 1)
        weight, paused = was.weight, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, weight=weight, max_iter=most, owner=owner, kind=kind, **limits)
        if paused:
            engine.pause(name)
        memory.following[name] = job = Following(uuid.uuid4().hex, job.owner)
        return job

    def due(self) -> list[Unfinished]:
        """Return the runs to write now, and count them as written."""
        following, now = self._memory.following, time()
        some = []
        for name, job in list(following.items()):
            unchanged = job.count == job.written and now - job.at < LAPSE / 4
            if unchanged or job.past is not None:
                continue
            job.written, job.at = job.count, now
            if (run := self.run_of(name, job)) is not None:
                some.append(Unfinished(job.key, job.owner, run))
                following[name] = following.pop(name)  # so that all have their turn
            if len(some) >= MOST_AT_ONCE:
                break
        return some

    def run_of(self, name: str, job: Following) -> Run | None:
        """Return the run of `job`, called `name`, so far, None if it has learned nothing."""
        engine = self._memory.plugin.engine
        if name not in engine.jobs:
            return None
        seen = engine.jobs[name].runtime
        return job.run(name, self._kind_of(name), seen.work, seen.width, time())

    def _kind_of(self, name: str) -> Kind:
        kind: Kind | None = self._memory.plugin.engine.remembering.kinds.get(name)
        return kind or last_resort(name)
