"""Task pools: tasks of jobs are bound to workers as late as possible.

While several jobs have tasks, `Seam` keeps ready ones in state ``no-worker``, and `TaskTracker`
files them in the `Pool` of their job. When a slot is free, `Wakeups` calls `Pools.dispatch`:
`Dispatcher` chooses a task and its worker, `TaskTracker` records it, and `TaskControl` sends it. So
a worker can be reclaimed as soon as its running task ends. On any error all held tasks are given
back to Dask, and the error is logged once.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import (
    BACK_WITHIN,
    LINGER,
    LOOK,
    LOOKED_AT,
    QUIET,
    Group,
    Look,
    Order,
    Overload,
)
from dask_slaq.scheduler.event_loop import Steps
from dask_slaq.scheduler.pools.dispatcher import Dispatcher
from dask_slaq.scheduler.pools.durations import Durations
from dask_slaq.scheduler.pools.gangs import Gangs
from dask_slaq.scheduler.pools.label_limits import Limits, label_given
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.seam import Seam
from dask_slaq.scheduler.pools.slots import SentTasks, has_thread
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.tracker import TaskTracker
from dask_slaq.scheduler.pools.wakeups import Wakeups

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.core.dispatch import Contender
    from dask_slaq.core.grants import Terms
    from dask_slaq.core.owner_terms import OwnerGrant

logger = logging.getLogger(__name__)

#: Tasks for which each dispatch pays, where the scheduler validates: all are checked when they are
#: paid for. A check at each dispatch would cost the square of their number.
CHECKED = 25


class Pools:
    """Pools of all jobs on a scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lend: bool,  # whether a job may use slots outside its worker set
        ahead: float,  # seconds before the end of a task at which another one is sent
        epoch: float,  # seconds for which an unused guarantee accrues at most
        fail: Callable[[BaseException], None],
        enter: Callable[..., Any],
        is_registered: Callable[[], bool],
        changed: Callable[[], None],  # called when jobs pass, or no longer
        log_length: int,  # maximum number of remembered bindings
    ) -> None:
        self.scheduler, self.lend = scheduler, lend
        self.epoch = epoch
        self.pools: dict[str, Pool] = {}
        self.groups: dict[str, Group] = {}  # of owners and teams; empty unless they are configured
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self.durations = Durations()  # shared by all jobs, as long as there are any
        self.order = order = Order(
            lend=lend,
            saturation=scheduler.WORKER_SATURATION,
            listed=lambda entry: self.tracker.listed(entry.ts),
            prefers=self._log_preference,
        )
        self.waiting = order.waiting
        self._logged_preference = False
        self._unchecked = 0
        self.seam = seam = Seam(
            scheduler,
            lambda ts: (
                self.tracker.is_held(ts) or (bool(self.limits.most) and self.limits.is_held(ts))
            ),
            lambda ts: bool(self.limits.most) and self.limits.label_of(ts) is not None,
            lambda: self.tracker.count_held(),
            fail,
            lambda ts, plain: self.tracker.flow(ts, plain),
        )
        self.control = control = TaskControl(scheduler, seam)
        self.sent = sent = SentTasks(ahead)
        gangs = Gangs()
        self.wakeups = wakeups = Wakeups(
            lambda: self.dispatch(),
            lambda: bool(self.waiting.pools),
            lambda worker: self.dispatcher.slot_in(worker),
            enter,
        )
        self.limits = limits = Limits(
            scheduler,
            control,
            lambda ts: self.tracker.is_held(ts),
            lambda: self.tracker.holding,
            wakeups.soon,
            enter,
        )
        self.tracker = tracker = TaskTracker(
            scheduler, seam, control, sent, wakeups, self.bindings.append, order, limits, gangs
        )
        self.dispatcher = Dispatcher(scheduler, order, sent, tracker.send, gangs, limits)
        self._is_registered, self._enter, self._changed = is_registered, enter, changed
        self._to_release: deque[TaskState] = deque()
        self._steps = Steps(enter)
        self._held_since = self._hold_until = 0.0
        self.overload = Overload()
        self._passing = 0  # pools that pass
        self._told = False  # whether that was logged since it began
        # With the tasks that had ended, and the core-seconds that these took.
        self._looked = (monotonic(), thread_time(), 0, 0.0)
        self._choosing = 0.0  # seconds for which dispatches have computed since
        self._seen: dict[Pool, tuple[int, float]] = {}  # tasks of pools, and their core-seconds

    @property
    def draining(self) -> Collection[str]:
        """Addresses of the workers that get no further task, because they are to be closed."""
        return self.dispatcher.draining

    def drain(self, workers: Collection[str]) -> None:
        """Send no further task to some `workers`, and to all others again."""
        before, self.dispatcher.draining = self.draining, workers
        for address in before:
            if address not in workers and address in self.scheduler.workers:
                self.slots_changed(address)

    # Jobs come and go

    def add(
        self,
        name: str,
        client: str,
        *,
        reports: bool = True,
        weight: float = 1.0,
        gang: bool = False,
        owner: str = "",
        group: Group | None = None,
    ) -> Pool:
        """Open a pool for a job of a client, or for its unowned tasks if it never `reports`.

        Its `owner` is of this `group` until the next decision.
        """
        if not self.pools:
            self.durations = Durations()
        durations = Durations(self.durations)
        pool = self.pools[name] = Pool(
            name, owner, weight, gang, self.waiting,
            most_accrued=self.epoch, client=client, reports=reports, durations=durations,
        )  # fmt: skip
        pool.workers = frozenset(self.scheduler.workers)
        pool.service = self.tracker.served
        if group is not None:
            pool.group = group
            group.add(pool)
            self.groups.update((each.name, each) for each in group.line())
        self.review(pool)
        return pool

    def remove(self, name: str, heir: Pool | None = None) -> None:
        """Close a pool. Its unfinished tasks go to the pool `heir`, or back to plain Dask."""
        pool = self.pools.pop(name, None)
        if pool is None:
            return
        self.tracker.settle(pool)
        self._passing -= pool.passes
        self._seen.pop(pool, None)
        if pool.group is not None:
            pool.group.remove(pool)
        if len(self.pools) - self._passing == 1:
            now = monotonic()
            self._hold_until = now + max(now - self._held_since, LINGER)
        if not self.pools:
            self.wakeups.cancel()
            self.overload, self.tracker.passing = Overload(), False
            self.groups = {}  # limits of owners hold nothing without jobs
        held = [ts for ts in pool.ready if ts in pool.tasks]
        self.tracker.disown(pool, heir)
        self.waiting.forget(pool)
        if heir is None:
            # Last: otherwise tasks that become ready again would be held for the closed pool.
            self._release(held)

    @property
    def contended(self) -> bool:
        """Whether there are several pools, or were until recently, or gangs.

        When one job is left alone, its tasks are held for as long again as there was contention,
        and at least `LINGER` seconds: its data lies unevenly, where slots were free, and Dask would
        send its tasks after the data. Pools that pass compete with nobody.
        """
        held = len(self.pools) - self._passing
        if held > 1 or len(self.tracker.gangs.waiting()) > 1:
            return True
        if held and self._keeps_back():
            return True
        return self.tracker.holding and held > 0 and monotonic() < self._hold_until

    def _keeps_back(self) -> bool:
        """Return whether a job that runs on what nobody else wants is beside others that pass."""
        return self._passing > 0 and any(pool.on_spare for pool in self.pools.values())

    # Tasks that are too short to be chosen

    def review(self, pool: Pool) -> None:
        """Let a pool pass, or no longer: whether Dask sends its tasks while others are held."""
        if self._review(pool) and self.tracker.holding:
            self._decide_anew(pool)

    def _review(self, pool: Pool) -> bool:
        """Set whether a pool passes. Returns whether that has changed."""
        passes = self.overload.lasts and self._may_pass(pool)
        if passes:
            ended, used = self._seen.get(pool, (0, 0.0))
            if pool.ended > ended:
                seconds = (pool.used - used) / (pool.ended - ended)
                passes = self.overload.is_short(seconds, self.scheduler.total_nthreads)
                self._seen[pool] = pool.ended, pool.used
            else:  # nothing new is known of it: if it is new itself, it is like the others
                passes = pool.passes or (not pool.ended and self._passing > 0)
        if passes == pool.passes:
            return False
        pool.passes = passes
        self._passing += 1 if passes else -1
        if not passes:
            self.tracker.record_all(pool)
        return True

    def _decide_anew(self, pool: Pool) -> None:
        """Have Dask decide anew on the waiting tasks of a pool: they pass, or are held."""
        waiting = [ts for ts in pool.unfinished if ts.state in self.control.WAITING]
        self._release(ts for ts in waiting if pool.passes or ts not in pool.ready)

    def _may_pass(self, pool: Pool) -> bool:
        """Return whether a pool has no limit and no promise, which hold only for what is held."""
        if pool.paused or pool.gang or pool.floor or pool.on_spare or self.draining:
            return False
        if not self.lend and pool.most < math.inf:
            return False
        return pool.group is None or not any(group.is_limited for group in pool.group.line())

    def _look(self) -> None:
        """Find out whether the scheduler is what tasks wait for, and let jobs pass if it is."""
        if (now := monotonic()) - self._looked[0] < LOOK:
            return
        looked, before = (now, thread_time(), self.tracker.ended, self.tracker.took), self._looked
        seconds, computed, ended, took = (
            new - old for new, old in zip(looked, before, strict=True)
        )
        lasted = self.overload.lasts
        idle = self._idle_share(now, seconds, took)
        self.overload.look(Look(seconds, computed, self._choosing, int(ended), idle))
        self._looked, self._choosing = looked, 0.0
        if not (lasted or self.overload.lasts):
            return
        for pool in self.pools.values():
            self.tracker.settle(pool)
        known_first = sorted(self.pools.values(), key=lambda pool: not pool.ended)
        changed = [pool for pool in known_first if self._review(pool)]
        if changed:
            self._changed()
        self.tracker.passing = self.overload.lasts and not self.tracker.holding
        for pool in changed if self.tracker.holding else ():
            self._decide_anew(pool)
        if not self.overload.lasts:
            self._told = False
        elif self._passing and not self._told:
            self._told = True
            logger.warning(
                "the scheduler has no time to choose tasks: plain Dask sends those of %d of %d "
                "jobs, which take less than %.2g s, until it has",
                self._passing,
                len(self.pools),
                self.overload.cost * self.scheduler.total_nthreads,
            )

    def _idle_share(self, now: float, seconds: float, took: float) -> float:
        """Return the share of all threads that had nothing to run in the last `seconds`.

        It is 0 if no more tasks are ready than there are threads. Tasks that ended `took`
        core-seconds.
        """
        threads = sum(ws.nthreads for ws in self.scheduler.running)
        if not threads or sum(len(pool.ready) for pool in self.pools.values()) <= threads:
            return 0.0
        sent = (sent for pool in self.pools.values() for sent in pool.running.values())
        long = sum(s.threads for s in sent if s.start is not None and now - s.start > seconds)
        return 1.0 - (took / seconds + long) / threads

    @property
    def follows_tasks(self) -> bool:
        """Whether the plugin is told of transitions: not after a failure or when unregistered."""
        return self._is_registered()

    @property
    def holds_or_releases(self) -> bool:
        """Whether tasks are held, or are still to be given back to Dask."""
        return self.tracker.holding or bool(self._to_release)

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks. Tasks that wait already are converted in small batches."""
        if holding == self.tracker.holding:
            return
        self.tracker.holding = holding
        self.tracker.passing = self.overload.lasts and not holding
        pools = self.pools.values()
        ready = {ts for pool in pools for ts in pool.ready}
        if holding:
            self._held_since = monotonic()
            self.seam.install()
            for pool in pools:
                pool.service = self.tracker.served
                pool.touch()
                if pool.passes:
                    self.tracker.record_all(pool)
            self.wakeups.look_at = set(self.scheduler.workers)
            waiting = (
                ts
                for pool in pools
                for ts in pool.unfinished
                if ts.state in self.control.WAITING and not pool.passes
            )
            self._release(ts for ts in waiting if ts not in ready)
        else:
            if not (self.limits or self.tracker.models_move):
                self.seam.remove()
            self.control.restore_all()
            known = self.scheduler.tasks
            self._release(ready | {known[key] for key in self.tracker.unsure if key in known})

    def let_models_move(self, moving: bool) -> None:
        """Hold models that have left their worker, or no longer."""
        if moving == self.tracker.models_move:
            return
        self.tracker.models_move = moving
        if moving:
            self.seam.install()
        else:
            self.tracker.leave_to_dask(list(self.tracker.away.values()))
            if not (self.limits or self.tracker.holding):
                self.seam.remove()

    def give_up(self) -> None:
        """Leave every task to Dask, after a failure, which may have left any record wrong.

        So one that cannot be undone hinders no other, and Dask decides anew on all tasks that wait
        for a worker, not only on those that are known to be held.
        """
        undo: list[Callable[[], object]] = [
            *(partial(self.let_models_move, False), partial(self.hold, False)),
            *(partial(self.set_limits, {}), self.control.let_rest),
            *(partial(self._give_up, pool) for pool in self.pools.values()),
        ]
        for each in undo:
            try:
                each()
            except Exception:
                logger.exception("some tasks could not be given back to Dask in order")
        self.tracker.holding = self.tracker.models_move = False
        self.tracker.away.clear()
        self._release(list(self.scheduler.unrunnable))

    def _give_up(self, pool: Pool) -> None:
        self.tracker.disown(pool, None)

    def set_limits(self, most: Mapping[str, int]) -> None:
        """Limit the number of tasks at once by label, and no other labels. See `Limits`."""
        if not (most or self.limits.most):
            return
        limits = self.limits
        changed = most.keys() ^ limits.most.keys()
        if most:
            self.seam.install()
        elif not (self.tracker.holding or self.tracker.models_move):
            self.seam.remove()
        limits.set(most)
        # Tasks of labels that had no limit were queued or filed as any other, and vice versa.
        tasks = self.scheduler.tasks.values() if changed else ()
        waiting = (ts for ts in tasks if ts.state in self.control.WAITING)
        self._release([ts for ts in waiting if label_given(ts) in changed])

    def _release(self, tasks: Iterable[TaskState]) -> None:
        """Release tasks, so that they are held or left to Dask's own scheduling, as it is now.

        They go through `released`, so that Dask decides whether to queue them.
        """
        self._to_release.extend(tasks)
        if self._to_release and not self._steps.pending:
            self._steps.begin(self._release_some())

    def _release_some(self) -> Iterator[None]:
        while self._to_release:
            count = min(self._steps.TOGETHER, len(self._to_release))
            self.control.release([self._to_release.popleft() for _ in range(count)], "released")
            yield

    def apply(
        self,
        terms: Iterable[Terms],
        owners: Mapping[str, OwnerGrant],
        owner_of: Mapping[str, str],
        *,
        by_service: bool,
    ) -> None:
        """Put the terms of all jobs, and the grants of all owners, if there are any, into force.

        `by_service` means that guarantees do not count, except for floors that were set.
        """
        now = monotonic()
        for each in terms:
            pool = self.pools[each.job]
            pool.put_into_force(each, now, guaranteed=pool.floor or not by_service)
        self.groups = {
            name: Group(
                grant.max_threads,
                grant.deserved,
                grant.tokens,
                grant.spare,
                resources=grant.max_resources or {},
                name=name,
            )
            for name, grant in owners.items()
        }
        for name, grant in owners.items():
            if grant.team:  # a client that names no owner has the name ""
                self.groups[name].team = self.groups.get(grant.team)
        for name, pool in self.pools.items() if self.groups else ():
            pool.group = group = self.groups[owner_of[name]]
            group.add(pool)
            group.tokens -= sum(sent.ahead for sent in pool.running.values())
        self.wakeups.soon()

    def _log_preference(self, pool: Contender) -> None:
        """Log once for whom priorities count."""
        if not self._logged_preference:
            self._logged_preference = True
            logger.warning(
                "tasks of %s have a priority: it counts among the work of their owner, and not "
                "before the work of others",
                pool.name,
            )

    # Workers and slots

    def slots_changed(self, worker: str) -> None:
        """Look at a worker that joined or resumed, which may be on a host that tasks wait for."""
        if self.groups:
            ready = {ts for pool in self.pools.values() for ts in pool.ready}
            self._release(ts for ts in ready if ts.host_restrictions)
        self.wakeups.look_at.add(worker)
        self.wakeups.soon()

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self.wakeups.forget(worker)
        self.dispatcher.forget_worker(worker)
        for pool in self.pools.values():
            pool.forget_worker(worker)
        for gang in self.tracker.gangs.waiting():
            if worker in gang.members.values():
                self.tracker.let_go(gang)

    def dispatch(self) -> None:
        """Fill free slots."""
        if not (self.tracker.holding and self.follows_tasks):
            return
        now, begin = monotonic(), thread_time()
        for gang in self.tracker.gangs.waiting():
            if gang.overdue(now):
                self.tracker.let_go(gang)
            elif not gang.complete(now):
                self.wakeups.later("", QUIET)
        looked_at, self.wakeups.look_at = self.wakeups.look_at, set()
        self.dispatcher.dispatch(looked_at)
        left = self.dispatcher.unserved
        self.wakeups.looked(left, spare=self.dispatcher.has_spare)
        if self.dispatcher.kept:
            self.wakeups.later("", BACK_WITHIN)
        if self.dispatcher.later < math.inf:
            self.wakeups.later("", self.dispatcher.later)
        for address, seconds in self.dispatcher.again.items():
            self.wakeups.later(address, seconds)
        if self.scheduler.validate:
            self._unchecked += CHECKED
            if self._unchecked >= len(self.tracker.owner):
                self._unchecked = 0
                self.check()
        self._choosing += thread_time() - begin
        self._look()

    def tick(self, factor: float) -> int:
        """Fade old records by `factor` and look for free slots on all workers, once per epoch.

        Returns the number of pools with a task that waited although it could use a free thread.
        Other than 0, it shows a bug.
        """
        self.tracker.charge_gangs()
        for pool in self.pools.values():
            pool.fade(factor)
        self._look()
        if self.wakeups.due or not self.tracker.holding:
            return 0
        before = self._stranded([pool for pool in self.pools.values() if pool.ready])
        self.wakeups.look_at = set(self.scheduler.workers)
        self.dispatch()
        return len(before) - len(self._stranded(before))

    def _stranded(self, pools: Iterable[Pool]) -> list[Pool]:
        """Return the pools that have a task that could use a free thread."""
        free = [ws for ws in self.dispatcher.running if has_thread(ws)]
        if not free or self.dispatcher.kept:
            return []
        busy = any(ws.processing for ws in self.scheduler.workers.values())
        return [pool for pool in pools if self._is_stranded(pool, free, busy)]

    def _is_stranded(self, pool: Pool, free: Collection[WorkerState], busy: bool) -> bool:
        """Return whether a task of a pool could use one of the workers with a free thread."""
        workers = self.scheduler.workers
        if self.dispatcher.key(pool) is None:
            return False
        for entry in islice(pool.first_ready(), LOOKED_AT):
            if busy and (pool.gang or entry.rootish):
                continue  # it waits for the rest of the gang, or for tasks that use root tasks
            if any(not has_thread(workers[a]) for a in entry.homes if a in workers):
                continue
            if pool.group is not None and not pool.group.supplies(entry.kind.resources or ()):
                continue
            allowed = (ws for ws in free if self.lend or ws.address in pool.workers)
            if self.limits.room_in_pools(entry.kind.label) and any(map(entry.kind.suits, allowed)):
                return True
        return False

    def keep_waiting(self) -> None:
        """Restart ``no-workers-timeout`` for held tasks that some worker could run."""
        unrunnable, running = self.scheduler.unrunnable, self.scheduler.running
        self.limits.keep_waiting()
        for ts in self.tracker.away.values() if running else ():
            if unrunnable.pop(ts, None) is not None:
                unrunnable[ts] = monotonic()
        for pool in self.pools.values():
            possible = {kind: any(map(kind.allows, running)) for kind in pool.kinds}
            for ts, entry in pool.ready.items():
                if possible.get(entry.kind, True) and unrunnable.pop(ts, None) is not None:
                    unrunnable[ts] = monotonic()

    # Checks: for tests, and where Dask's own validation is on

    def left_over(self) -> list[str]:
        """Describe what is left although no job runs. Empty if nothing is."""
        from dask_slaq.scheduler.pools.checks import left_over

        return left_over(self)

    def check(self) -> None:
        """Raise `AssertionError` unless all records agree with the scheduler."""
        from dask_slaq.scheduler.pools.checks import check

        check(self)

    def check_task(self, key: Any) -> None:
        """Raise `AssertionError` unless the records of one task agree with the scheduler."""
        from dask_slaq.scheduler.pools.checks import check_task

        check_task(self, key)
