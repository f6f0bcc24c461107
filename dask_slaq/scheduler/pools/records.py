"""Records of tasks: which pool owns each, which pools wait for it, and what runs on workers."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Any

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.dispatch import DurationEstimate, Handover, Order, Way
from dask_slaq.scheduler.pools.dispatch_rounds import DispatchRounds
from dask_slaq.scheduler.pools.durations import Learned
from dask_slaq.scheduler.pools.label_limits import Limits
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGangs
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.scheduler_patch import SchedulerPatch
from dask_slaq.scheduler.pools.slots import SentTasks
from dask_slaq.scheduler.pools.task_control import TaskControl

#: States of tasks that are not finished.
UNFINISHED = frozenset({"released", "waiting", "queued", "no-worker", "processing"})

#: Ends of tasks that are kept per epoch, from which the speeds of workers are learned.
NEWEST_ENDS = 256


class TaskRecords:
    """Tasks of all pools, and what these have on workers; `TaskTracker` follows what happens.

    `charge` is called as ``charge(job, seconds, at_once)`` for every finished task: who counts them
    sets it. `bound` is called with the `Binding` of every task that goes to a worker.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        patch: SchedulerPatch,
        control: TaskControl,
        sent: SentTasks,
        rounds: DispatchRounds,
        bound: Callable[[Binding], None],
        order: Order,
        limits: Limits,
        gangs: PinnedGangs,
    ) -> None:
        self.scheduler, self.control, self.sent, self.rounds = scheduler, control, sent, rounds
        self._patch, self._bound = patch, bound
        self.charge: Callable[[str, float, int], None]
        self._order, self._index = order, order.waiting
        self.limits, self.gangs = limits, gangs
        self._count = itertools.count()
        self._wanted: dict[TaskState, set[Pool]] = {}  # tasks that pools of others wait for
        self.pool_of: dict[Any, Pool] = {}  # of each task, by key
        # Unfinished tasks that a task has submitted, and the task that has submitted each.
        self._inner: dict[TaskState, set[TaskState]] = {}
        self._submitter: dict[TaskState, TaskState] = {}
        self.holding = False  # whether ready tasks are held
        # Models that have left their worker, by key: their search sends them, and no pool.
        self.migrating: dict[Any, TaskState] = {}
        self.models_move = False  # whether there may be any
        # Virtual time of fair queueing: the highest service of a pool at which a task that has
        # ended was sent, in core-seconds over weight.
        self.served = 0.0
        self.ended, self.took = 0, 0.0  # tasks of pools, and their core-seconds
        # What is like a task that has ended, its name, worker and seconds.
        self._ends: deque[tuple[DurationEstimate, str, str, float]] = deque(maxlen=NEWEST_ENDS)
        # Running tasks that gave up their thread, by key: the Unix time, and what was charged.
        self.seceded_at: dict[Any, tuple[float, float]] = {}
        # Tasks that report what they compute, by key: the Unix time up to which they were charged;
        # None while they wait in a report.
        self.charged_until: dict[Any, float | None] = {}
        self.waited: dict[Any, float] = {}  # seconds of these on their worker
        self.learned = Learned()

    def job_of(self, key: Any) -> str | None:
        """Return the name of the job that owns a task, or None."""
        pool = self.pool_of.get(key)
        return None if pool is None else pool.name

    def listed(self, ts: TaskState) -> Iterable[Pool]:
        """Return all pools that a ready task is listed in, if it is in several."""
        wanted = self._wanted.get(ts)
        return (self.pool_of[ts.key], *wanted) if wanted else ()

    def waiting_for(self, ts: TaskState) -> Collection[Pool]:
        """Return the pools that wait for a task of another one."""
        return self._wanted.get(ts, ())

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
                    self._record(pool, ts)
                elif ts.worker_restrictions and len(ts.worker_restrictions) == 1:
                    self.gangs.add(pool, ts, next(iter(ts.worker_restrictions)), monotonic())
            for each in (ts, *ts.dependencies):
                if self.pool_of.get(each.key, pool) is not pool:
                    self._want(pool, each)
        if submitter is not None:
            self._lend(submitter)

    def _submit(self, pool: Pool, ts: TaskState, submitter: TaskState) -> None:
        pool.inner.add(ts)
        if ts.state in UNFINISHED:
            self._submitter[ts] = submitter
            self._inner.setdefault(submitter, set()).add(ts)

    def _lend(self, ts: TaskState) -> None:
        """Let the unfinished tasks that a task has submitted have what it holds, or no longer.

        It may wait for them. Else the limit of their owner would keep them from running for ever.
        """
        pool = self.pool_of.get(ts.key)
        if pool is None:
            return
        lends, sent = ts in self._inner, pool.running.get(ts)
        if sent is not None:
            pool.lend(sent, lends)
        if sent is None and ts.processing_on is not None and not lends and ts.resource_restrictions:
            pool.holds[ts] = tuple(ts.resource_restrictions.items())
        else:
            pool.holds.pop(ts, None)
        if lends and self.holding:
            self.rounds.look_at.update(self.scheduler.workers)
            self.rounds.soon()

    def _move(self, ts: TaskState, pool: Pool) -> None:
        """Move a task with what it was charged in advance from its pool to another one."""
        if ts in self.gangs.of_task:
            return  # its members stay together
        before = self.pool_of[ts.key]
        task, unfinished = before.ready.get(ts), ts in before.unfinished
        before.pop(ts)
        sent = before.running.get(ts)
        if sent is not None:
            self._leave(sent)
        self._part(ts, pool)
        pool.tasks.add(ts)
        if unfinished:
            pool.unfinished.add(ts)
        if task is not None:
            task.pool = pool
            pool.push(task)
        if sent is not None:
            before.charge(-sent.ahead, sent)
            pool.charge(sent.ahead, sent)
            self._enter(pool, ts, sent)

    def _part(self, ts: TaskState, pool: Pool) -> None:
        """Put a task into another pool."""
        before = self.pool_of[ts.key]
        before.drop(ts)
        self._wanted.get(ts, set()).discard(pool)
        self.pool_of[ts.key] = pool

    def _want(self, pool: Pool, ts: TaskState) -> None:
        """Record that a pool waits for a task of another pool, and for what that task waits for."""
        found = [ts]
        while found:
            ts = found.pop()
            current = self.pool_of.get(ts.key)
            if current is None or current is pool or ts.state not in UNFINISHED:
                continue
            wanted_by = self._wanted.setdefault(ts, set())
            if pool not in wanted_by:
                wanted_by.add(pool)
                found.extend(ts.waiting_on or ts.dependencies)
                if ts in current.ready and not self.gangs.is_open(ts):
                    pool.push(current.ready[ts])
                    self.rounds.soon()

    def disown(self, pool: Pool, heir: Pool | None) -> None:
        """Give all tasks of a closed pool to another one, or to none."""
        for ts, wanted_by in list(self._wanted.items()):
            wanted_by.discard(pool)
            if not wanted_by:
                del self._wanted[ts]
        for ts, task in list(pool.ready.items()):
            mine = self.pool_of.get(ts.key) is pool
            pool.pop(ts)
            if mine and heir is not None:
                task.pool = heir
                heir.push(task, filed=not self.gangs.is_open(ts))
            for other in self._wanted.get(ts, ()) if mine and heir is None else ():
                other.pop(ts)
        for ts, sent in list(pool.running.items()):
            self._leave(sent)
            if heir is not None:
                self._enter(heir, ts, sent)
        for ts in pool.tasks:
            if heir is not None:
                self.pool_of[ts.key] = heir
            else:
                self.control.restore(ts)
                self.control.blame(ts)
                self._forget(ts)
        if heir is not None:
            heir.tasks |= pool.tasks
            heir.unfinished |= pool.unfinished
            heir.inner |= pool.inner
            heir.holds.update(pool.holds)
        for tasks in (pool.tasks, pool.unfinished, pool.inner, pool.holds):
            tasks.clear()  # whatever refers to the pool still

    def _forget(self, ts: TaskState) -> None:
        self.pool_of.pop(ts.key, None)
        for known in (self.seceded_at, self.charged_until, self.waited):
            if known:
                known.pop(ts.key, None)
        if self._inner:
            self._inner.pop(ts, None)
        if self._submitter or self._wanted or self.gangs.of_task:
            self._is_done(ts)

    def _is_done(self, ts: TaskState) -> None:
        """Record that nobody waits for a task any more."""
        submitter = self._submitter.pop(ts, None)
        if submitter is not None and (some := self._inner.get(submitter)) is not None:
            some.discard(ts)
            if not some:
                del self._inner[submitter]
                self._lend(submitter)
        self._wanted.pop(ts, None)
        if self.gangs.of_task:
            self.gangs.remove(ts)

    def _record(self, pool: Pool, ts: TaskState) -> None:
        """Record a task that Dask has sent to a worker."""
        like = pool.durations.like(ts)
        task = Handover(pool, ts, like, way=Way.SENT, tag=pool.service)
        task.order, task.soonest = (math.inf, next(self._count)), like.soonest
        task.expected = like.expected
        if ts.resource_restrictions:
            task.needs = tuple(ts.resource_restrictions.items())
        self._enter(pool, ts, task)

    def _enter(self, pool: Pool, ts: TaskState, task: Handover) -> None:
        ws = ts.processing_on
        assert ws is not None
        address, task.pool = ws.address, pool
        pool.enter(task, address, moves=not self._order.lend)
        if task.key is None:
            if not pool.sent_by_dask:
                pool.index_of.sent_by_dask[pool] = None
            pool.sent_by_dask[address] += 1
        self.sent.put(task, ws)

    def _leave(self, task: Handover) -> None:
        """Remove a task that is no longer on its worker, or holds no thread there."""
        pool = task.pool
        self.sent.by_worker[task.worker].remove(task, monotonic())
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

    def _charge_ahead(self, sent: Handover) -> None:
        """Charge a task in advance, if its compute time is known."""
        if sent.expected < math.inf and not sent.ahead:
            sent.ahead = sent.expected * sent.threads
            sent.pool.charge(sent.ahead, sent)
