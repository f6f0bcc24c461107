"""Records of tasks: which pool owns each, which pools wait for it, and what runs on workers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from time import monotonic
from typing import Any

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.dispatch import Handover, Way
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGangs
from dask_slaq.scheduler.pools.placed_by_dask import is_dasks, is_direct
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.slots import SentTasks
from dask_slaq.scheduler.pools.wakes import Wakes

#: States of tasks that are not finished.
UNFINISHED = frozenset({"released", "waiting", "queued", "no-worker", "processing"})


class TaskRecords:
    """Tasks of all pools, and what these have on workers. Changes no task of Dask's.

    `lends` is whether jobs may use more threads than their cap while nobody else wants these.
    """

    def __init__(
        self, scheduler: Scheduler, sent: SentTasks, gangs: PinnedGangs, wakes: Wakes, lends: bool
    ) -> None:
        self._scheduler, self._sent, self.gangs, self._wakes = scheduler, sent, gangs, wakes
        self.lends = lends
        self.numbers = itertools.count()  # of tasks: they order those of equal priority
        self.pool_of: dict[Any, Pool] = {}  # of each task, by key
        self.wanted: dict[TaskState, set[Pool]] = {}  # tasks that pools of others wait for
        # Unfinished tasks that a task has submitted, and the task that has submitted each.
        self.inner: dict[TaskState, set[TaskState]] = {}
        self.submitter: dict[TaskState, TaskState] = {}
        self.holding = False  # whether ready tasks are held
        # Models that have left their worker, by key: their search sends them, and no pool.
        self.migrating: dict[Any, TaskState] = {}
        self.models_move = False  # whether there may be any

    # Questions

    def job_of(self, key: Any) -> str | None:
        """Return the name of the job that owns a task, or None."""
        pool = self.pool_of.get(key)
        return None if pool is None else pool.name

    def listed(self, task: Handover) -> Iterable[Pool]:
        """Return all pools that a ready task is listed in, if it is in several."""
        wanted = self.wanted.get(task.ts)
        return (self.pool_of[task.ts.key], *wanted) if wanted else ()

    def waiting_for(self, ts: TaskState) -> Collection[Pool]:
        """Return the pools that wait for a task of another one."""
        return self.wanted.get(ts, ())

    def in_pool(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in a pool until it is sent, or for its search."""
        if ts.key in self.migrating:
            return True
        pool = self.pool_of.get(ts.key) if self.holding else None
        return pool is not None and self.waits(pool, ts, is_direct(ts))

    def waits(self, pool: Pool, ts: TaskState, direct: bool) -> bool:
        """Return whether a ready task waits in its pool while tasks are held.

        One that Dask alone places, a `direct` one, only waits for its gang or for a limit.
        """
        if not direct or (self.gangs.of_task and self.gangs.is_open(ts)):
            return True
        strict = not self.lends and pool.granted.most < math.inf
        return (strict or pool.holds_all) and not is_dasks(ts)

    # Who owns a task

    def own(
        self, pool: Pool, tasks: Iterable[TaskState], submitter: TaskState | None = None
    ) -> None:
        """Put `tasks` into `pool`. Tasks that another pool owns stay there, but are wanted.

        Unowned tasks that a job names move to it: they are of an earlier block of its name. The
        `submitter` is the task that has submitted them, if one has.
        """
        pool.is_open |= pool.ended > 0
        for ts in tasks:
            current = self.pool_of.get(ts.key)
            if current is not None and pool.reports and not current.reports:
                self._move(ts, pool)
            elif current is None and ts.run_spec is not None:
                self.pool_of[ts.key] = pool
                pool.tasks.add(ts)
                if ts.state in UNFINISHED:
                    pool.unfinished.add(ts)
                if submitter is not None:
                    self._submit(pool, ts, submitter)
                if ts.processing_on is not None and ts not in ts.processing_on.long_running:
                    self.record(pool, ts)
                elif ts.worker_restrictions and len(ts.worker_restrictions) == 1:
                    self.gangs.add(pool, ts, next(iter(ts.worker_restrictions)), monotonic())
            for each in (ts, *ts.dependencies):
                if self.pool_of.get(each.key, pool) is not pool:
                    self.want(pool, each)
        if submitter is not None:
            self.lend(submitter)

    def _submit(self, pool: Pool, ts: TaskState, submitter: TaskState) -> None:
        pool.inner.add(ts)
        if ts.state in UNFINISHED:
            self.submitter[ts] = submitter
            self.inner.setdefault(submitter, set()).add(ts)

    def _move(self, ts: TaskState, pool: Pool) -> None:
        """Move a task with what it was charged in advance from its pool to another one."""
        if ts in self.gangs.of_task:
            return  # its members stay together
        before = self.pool_of[ts.key]
        task, unfinished = before.ready.get(ts), ts in before.unfinished
        before.pop(ts)
        sent = before.running.get(ts)
        if sent is not None:
            self.leave(sent)
        self.part(ts, pool)
        pool.tasks.add(ts)
        if unfinished:
            pool.unfinished.add(ts)
        if task is not None:
            task.pool = pool
            pool.push(task)
        if sent is not None:
            before.charge(-sent.prepaid, sent)
            pool.charge(sent.prepaid, sent)
            self.enter(pool, ts, sent)

    def part(self, ts: TaskState, pool: Pool) -> None:
        """Have another pool own a task, which that is still to add."""
        self.pool_of[ts.key].drop(ts)
        self.wanted.get(ts, set()).discard(pool)
        self.pool_of[ts.key] = pool

    def want(self, pool: Pool, ts: TaskState) -> None:
        """Record that a pool waits for a task of another pool, and for what that task waits for."""
        found = [ts]
        while found:
            ts = found.pop()
            current = self.pool_of.get(ts.key)
            if current is None or current is pool or ts.state not in UNFINISHED:
                continue
            wanted_by = self.wanted.setdefault(ts, set())
            if pool not in wanted_by:
                wanted_by.add(pool)
                found.extend(ts.waiting_on or ts.dependencies)
                if ts in current.ready and not self.gangs.is_open(ts):
                    pool.push(current.ready[ts])
                    self._wakes.soon()

    def disown(self, pool: Pool, heir: Pool | None) -> None:
        """Give all tasks of a closed pool to another one, or to none."""
        for ts, wanted_by in list(self.wanted.items()):
            wanted_by.discard(pool)
            if not wanted_by:
                del self.wanted[ts]
        for ts, task in list(pool.ready.items()):
            mine = self.pool_of.get(ts.key) is pool
            pool.pop(ts)
            if mine and heir is not None:
                task.pool = heir
                heir.push(task, filed=not self.gangs.is_open(ts))
            for other in self.wanted.get(ts, ()) if mine and heir is None else ():
                other.pop(ts)
        for ts, sent in list(pool.running.items()):
            self.leave(sent)
            if heir is not None:
                self.enter(heir, ts, sent)
        for ts in pool.tasks:
            if heir is not None:
                self.pool_of[ts.key] = heir
            else:
                self.forget(ts)
        if heir is not None:
            heir.tasks |= pool.tasks
            heir.unfinished |= pool.unfinished
            heir.inner |= pool.inner
            heir.holds.update(pool.holds)
        for tasks in (pool.tasks, pool.unfinished, pool.inner, pool.holds):
            tasks.clear()  # whatever refers to the pool still

    def forget(self, ts: TaskState) -> None:
        """Forget a task."""
        self.pool_of.pop(ts.key, None)
        if self.inner:
            self.inner.pop(ts, None)
        if self.submitter or self.wanted or self.gangs.of_task:
            self.is_done(ts)

    def is_done(self, ts: TaskState) -> None:
        """Record that nobody waits for a task any more."""
        submitter = self.submitter.pop(ts, None)
        if submitter is not None and (some := self.inner.get(submitter)) is not None:
            some.discard(ts)
            if not some:
                del self.inner[submitter]
                self.lend(submitter)
        self.wanted.pop(ts, None)
        if self.gangs.of_task:
            self.gangs.remove(ts)

    # What runs on workers

    def lend(self, ts: TaskState) -> None:
        """Let the unfinished tasks that a task has submitted have what it holds, or no longer.

        It may wait for them. Else the limit of their owner would keep them from running for ever.
        """
        pool = self.pool_of.get(ts.key)
        if pool is None:
            return
        lends, sent = ts in self.inner, pool.running.get(ts)
        if sent is not None:
            pool.lend(sent, lends)
        if sent is None and ts.processing_on is not None and not lends and ts.resource_restrictions:
            pool.holds[ts] = tuple(ts.resource_restrictions.items())
        else:
            pool.holds.pop(ts, None)
        if lends and self.holding:
            self._wakes.look_at.update(self._scheduler.workers)
            self._wakes.soon()

    def record(self, pool: Pool, ts: TaskState) -> None:
        """Record a task that Dask has sent to a worker."""
        like = pool.durations.like(ts)
        task = Handover(pool, ts, like, way=Way.SENT, tag=pool.service)
        task.order, task.soonest = (math.inf, next(self.numbers)), like.soonest
        task.expected = like.expected
        if ts.resource_restrictions:
            task.needs = tuple(ts.resource_restrictions.items())
        if self.gangs.of_task and (gang := self.gangs.of_task.get(ts)) is not None:
            assert ts.processing_on is not None
            task.threads = gang.threads[ts] or ts.processing_on.nthreads
        self.enter(pool, ts, task)

    def enter(self, pool: Pool, ts: TaskState, task: Handover) -> None:
        """Record where a task is that has a worker now."""
        ws = ts.processing_on
        assert ws is not None
        address, task.pool = ws.address, pool
        pool.enter(task, address, moves=not self.lends)
        if task.key is None:
            if not pool.sent_by_dask:
                pool.index_of.sent_by_dask[pool] = None
            pool.sent_by_dask[address] += 1
        self._sent.put(task, ws)

    def leave(self, task: Handover) -> None:
        """Remove a task that is no longer on its worker, or holds no thread there."""
        pool = task.pool
        self._sent.by_worker[task.worker].remove(task, monotonic())
        if task.lends:
            pool.lend(task, False)
        pool.leave(task)
        if task.key is None:
            here = pool.sent_by_dask
            here[task.worker] -= 1
            if not here[task.worker]:
                del here[task.worker]
                if not here:
                    pool.index_of.sent_by_dask.pop(pool, None)
