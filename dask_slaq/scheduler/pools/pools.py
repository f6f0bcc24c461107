"""Task pools: tasks of jobs are bound to workers as late as possible.

While several jobs have tasks, `SchedulerPatch` puts ready ones into Dask's own queue, and
`TaskTracker` files them in the `Pool` of their job. When a slot is free, `DispatchRounds` has
`Dispatcher` choose a task and its worker, `TaskTracker` records it, and `TaskControl` sends it. So
a worker can be reclaimed as soon as its running task ends. On any error all held tasks are given
back to Dask, and the error is logged once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import sub
from time import monotonic, thread_time
from typing import Any

from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.dispatch import Group, Guarantee, JobQueue, Order, Waiting, constants
from dask_slaq.core.grants import Terms
from dask_slaq.core.owners.terms import OwnerGrant
from dask_slaq.scheduler.event_loop import ChunkedWork
from dask_slaq.scheduler.pools import checks
from dask_slaq.scheduler.pools.charges import Charges
from dask_slaq.scheduler.pools.cluster_state import ClusterState
from dask_slaq.scheduler.pools.dispatch_rounds import DispatchRounds
from dask_slaq.scheduler.pools.durations import Durations
from dask_slaq.scheduler.pools.label_limits import Limits, label_given
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGangs
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.records import TaskRecords
from dask_slaq.scheduler.pools.scheduler_patch import SchedulerPatch
from dask_slaq.scheduler.pools.slots import SentTasks, has_thread
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.tracker import TaskTracker
from dask_slaq.scheduler.pools.wakes import Wakes

logger = logging.getLogger(__name__)


class Pools:
    """Pools of all jobs on a scheduler."""

    # For tests, and where Dask's own validation is on.
    left_over = checks.left_over
    check = checks.check
    check_task = checks.check_task

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lend: bool,  # whether a job may use slots outside its worker set
        prefetch: float,  # seconds before the end of a task at which another one is sent
        epoch: float,  # seconds for which an unused guarantee accrues at most
        observe: Callable[[str, float, int], None],  # see `Charges`
        fail: Callable[[BaseException], None],
        enter: Callable[..., Any],
        follows_tasks: Callable[[], bool],  # not after a failure or when unregistered
        log_length: int,  # maximum number of remembered bindings
    ) -> None:
        self.scheduler, self.lend = scheduler, lend
        self.epoch = epoch
        self.pools: dict[str, Pool] = {}
        self.groups: dict[str, Group] = {}  # of owners and teams; empty unless they are configured
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self.durations = Durations()  # shared by all jobs, as long as there are any
        self.waiting: Waiting[JobQueue] = Waiting()
        self.wakes = wakes = Wakes(self.waiting, self._round, enter)
        self.control = control = TaskControl(scheduler)
        self.sent = sent = SentTasks(prefetch)
        gangs = PinnedGangs()
        self.records = records = TaskRecords(scheduler, sent, gangs, wakes, lend)
        self.order = order = Order(
            self.waiting,
            lend=lend,
            saturation=scheduler.WORKER_SATURATION,
            listed=records.listed,
            prefers=self._log_preference,
        )
        self.limits = limits = Limits(scheduler, control, records, wakes, enter)
        self.cluster = ClusterState(scheduler, order, sent, gangs, limits)
        self.rounds = rounds = DispatchRounds(self.cluster, wakes, enter)
        self.charges = charges = Charges(records, observe)
        self.tracker = tracker = TaskTracker(
            scheduler, control, records, charges, sent, rounds, order, limits, self.bindings.append
        )
        self.patch = SchedulerPatch(scheduler, control, tracker, fail)
        self._logged_preference = False
        self._unchecked = 0
        self.follows_tasks = follows_tasks
        self._to_release: deque[TaskState] = deque()
        self._steps = ChunkedWork(enter)
        self._held_since = self._hold_until = 0.0
        # Whether the scheduler was overloaded at the last look, and the clocks and counts then.
        self._overloaded = self._told = False
        self._looked = monotonic(), thread_time(), 0, 0.0

    @property
    def draining(self) -> Collection[str]:
        """Addresses of the workers that get no further task, because they are to be closed."""
        return self.cluster.draining

    def drain(self, workers: Collection[str]) -> None:
        """Send no further task to some `workers`, and to all others again."""
        before, self.cluster.draining = self.draining, workers
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
            account=Guarantee(most_accrued=self.epoch), tokens=Guarantee(most_accrued=self.epoch),
            client=client, reports=reports, durations=durations,
        )  # fmt: skip
        pool.granted.planned = frozenset(self.scheduler.workers)
        pool.service = self.tracker.served
        if group is not None:
            pool.group = group
            group.add(pool)
            self.groups.update((each.name, each) for each in group.line())
        return pool

    def remove(self, name: str, heir: Pool | None = None) -> None:
        """Close a pool. Its unfinished tasks go to the pool `heir`, or back to plain Dask."""
        pool = self.pools.pop(name, None)
        if pool is None:
            return
        if pool.group is not None:
            pool.group.remove(pool)
        if len(self.pools) == 1:
            now = monotonic()
            self._hold_until = now + max(now - self._held_since, 10.0)
        if not self.pools:
            self.rounds.cancel()
            self.groups = {}  # limits of owners hold nothing without jobs
        held = [ts for ts in pool.ready if ts in pool.tasks]
        self.tracker.disown(pool, heir)
        self.waiting.coming.discard(pool)
        if heir is None:
            # Last: otherwise tasks that become ready again would be held for the closed pool.
            self._release(held)

    @property
    def contended(self) -> bool:
        """Whether there are several pools, or were until recently, or gangs.

        When one job is left alone, its tasks are held for as long again as there was contention,
        and for ten seconds at least: its data lies unevenly, where slots were free, and Dask would
        send its tasks after the data.
        """
        if len(self.records.gangs.waiting()) > 1:
            return True
        if self.overloaded:
            return False
        if len(self.pools) > 1:
            return True
        return self.records.holding and bool(self.pools) and monotonic() < self._hold_until

    @property
    def overloaded(self) -> bool:
        """Whether the scheduler has no time to hold tasks, and no limit needs that."""
        return self._overloaded and self.lend and not (self.groups or self.limits.most)

    @property
    def holds_or_releases(self) -> bool:
        """Whether tasks are held, or are still to be given back to Dask."""
        return self.records.holding or bool(self._to_release)

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks. Tasks that wait already are converted in small batches."""
        if holding == self.records.holding:
            return
        self.records.holding = holding
        pools = self.pools.values()
        ready = {*self.patch.queue.held, *(ts for pool in pools for ts in pool.ready)}
        if holding:
            self._held_since = monotonic()
            self.patch.install()
            for pool in pools:
                pool.service = self.tracker.served
                pool.touch()
            self.wakes.look_at = set(self.scheduler.workers)
            waiting = (
                ts for pool in pools for ts in pool.unfinished if ts.state in self.control.WAITING
            )
            self._release(ts for ts in waiting if ts not in ready)
        else:
            if not (self.limits or self.records.models_move):
                self.patch.remove()
            self.control.restore_all()
            self._release(ready)

    def let_models_move(self, moving: bool) -> None:
        """Hold models that have left their worker, or no longer."""
        if moving == self.records.models_move:
            return
        self.records.models_move = moving
        if moving:
            self.patch.install()
        else:
            self.tracker.leave_to_dask(list(self.records.migrating.values()))
            if not (self.limits or self.records.holding):
                self.patch.remove()

    def give_up(self) -> None:
        """Leave every task to Dask, after a failure, which may have left any record wrong.

        So one that cannot be undone hinders no other, and Dask decides anew on all tasks that wait
        for a worker, not only on those that are known to be held.
        """
        undo: list[Callable[[], object]] = [
            *(partial(self.let_models_move, False), partial(self.hold, False)),
            *(partial(self.set_limits, {}), self.control.let_rest),
            *(partial(self.tracker.disown, pool, None) for pool in self.pools.values()),
        ]
        for each in undo:
            try:
                each()
            except Exception:
                logger.exception("some tasks could not be given back to Dask in order")
        self.records.holding = self.records.models_move = False
        self.records.migrating.clear()
        self._release([*self.scheduler.unrunnable, *self.scheduler.queued])

    def set_limits(self, most: Mapping[str, int]) -> None:
        """Limit the number of tasks at once by label, and no other labels. See `Limits`."""
        if not (most or self.limits.most):
            return
        limits = self.limits
        changed = most.keys() ^ limits.most.keys()
        if most:
            self.patch.install()
        elif not (self.records.holding or self.records.models_move):
            self.patch.remove()
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
        if not (self.records.holding or self.limits or self.records.models_move):
            self.patch.remove()

    def apply(
        self,
        terms: Iterable[Terms],
        owners: Mapping[str, OwnerGrant],
        owner_of: Mapping[str, str],
        *,
        by_service: bool,
        by_tokens: bool = False,
    ) -> None:
        """Put the terms of all jobs, and the grants of all owners, if there are any, into force.

        `by_service` means that guarantees do not count, except for floors that were set;
        `by_tokens`, that they are limits.
        """
        now = monotonic()
        for each in terms:
            pool = self.pools[each.job]
            counts = pool.floor or not by_service
            pool.put_into_force(each, now, guaranteed=counts, by_tokens=by_tokens)
        self.groups = {
            name: Group(
                grant.max_threads,
                grant.deserved,
                grant.tokens,
                grant.on_leftovers,
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
            group.tokens -= sum(sent.prepaid for sent in pool.running.values())
        self.wakes.soon()

    def _log_preference(self, pool: JobQueue) -> None:
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
        self.wakes.look_at.add(worker)
        self.wakes.soon()

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self.rounds.forget_worker(worker)
        for pool in self.pools.values():
            pool.forget_worker(worker)
        for gang in self.records.gangs.waiting():
            if worker in gang.members.values():
                self.tracker.let_go(gang)

    def _round(self) -> None:
        dispatcher = self.rounds.dispatcher
        if self.wakes.look_at or dispatcher.free or dispatcher.soon:
            self.dispatch()

    def dispatch(self) -> None:
        """Fill free slots."""
        if not (self.records.holding and self.follows_tasks()):
            return
        now = monotonic()
        for gang in self.records.gangs.waiting() if self.records.gangs.of_task else ():
            if gang.overdue(now):
                self.tracker.let_go(gang)
            elif not gang.complete(now):
                self.rounds.look_in("", constants.QUIET_SECONDS)
        self.rounds.fill(self.tracker)
        if self.scheduler.validate:
            # Each dispatch pays for 25 tasks, and all are checked when they are paid for: a check
            # at each dispatch would cost the square of their number.
            self._unchecked += 25
            if self._unchecked >= len(self.records.pool_of):
                self._unchecked = 0
                self.check()

    def tick(self, factor: float) -> int:
        """Fade old records by `factor` and look for free slots on all workers, once per epoch.

        Returns the number of pools with a task that waited although it could use a free thread.
        Other than 0, it shows a bug.
        """
        self.charges.charge_gangs()
        self._look_at_load()
        now = monotonic()
        # One whose key was that it waits for tokens until now is not late yet.
        waited = {
            pool
            for pool in self.pools.values()
            if pool.cached.key is None and 0 < pool.cached.until <= now
        }
        for pool in self.pools.values():
            pool.fade(factor)
            if pool.account.is_limit:
                pool.account.settle(monotonic())
                pool.touch()
        if self.records.holding:
            self.patch.install()  # somebody may have taken our overrides away
            self._release(self._impossible())
        if self.wakes.due or not self.records.holding:
            return 0
        ready = [pool for pool in self.pools.values() if pool.ready and pool not in waited]
        before = self._stranded(ready)
        self.wakes.look_at = set(self.scheduler.workers)
        self.dispatch()
        return len(before) - len(self._stranded(before))

    def _impossible(self) -> Iterator[TaskState]:
        """Yield the queued tasks that no worker may compute any more, which time out under Dask."""
        running = self.scheduler.running
        for pool in self.pools.values() if running else ():
            impossible = {each for each in pool.filed if not any(map(each.allows, running))}
            if impossible:
                ready = pool.ready.items()
                yield from (
                    ts for ts, e in ready if e.constraints in impossible and ts.state == "queued"
                )

    def _look_at_load(self) -> None:
        """Find out whether the scheduler had no time since the last look to choose short tasks."""
        looked = monotonic(), thread_time(), self.charges.ended, self.charges.took
        wall, cpu, count, seconds = map(sub, looked, self._looked)
        if wall <= 0:
            return
        before, self._looked = self._overloaded, looked
        # It is overloaded from 90 % of an epoch down to 50 %, while at least 100 short tasks end.
        short = count >= 100 and seconds < constants.SHORT_SECONDS * count
        self._overloaded = short and cpu > (0.5 if before else 0.9) * wall
        if self._overloaded and not (before or self._told):
            self._told = True
            logger.warning(
                "the scheduler has no time to choose tasks, which take %.1g s: plain Dask sends "
                "them until it has",
                seconds / count,
            )

    def _stranded(self, pools: Iterable[Pool]) -> list[Pool]:
        """Return the pools that have a task that could use a free thread."""
        free = [ws for ws in self.cluster.running if has_thread(ws)]
        if not free or self.rounds.dispatcher.has_kept_slots:
            return []
        busy = any(ws.processing for ws in self.scheduler.workers.values())
        return [pool for pool in pools if self._is_stranded(pool, free, busy)]

    def _is_stranded(self, pool: Pool, free: Collection[WorkerState], busy: bool) -> bool:
        """Return whether a task of a pool could use one of the workers with a free thread."""
        workers = self.scheduler.workers
        if self.cluster.key(pool) is None:
            return False
        for entry in islice(pool.first_ready(), constants.MOST_COMPARED):
            if busy and (pool.gang or entry.rootish):
                continue  # it waits for the rest of the gang, or for tasks that use root tasks
            if any(not has_thread(workers[a]) for a in entry.preferred if a in workers):
                continue
            if pool.group is not None and not pool.group.supplies(
                entry.constraints.resources or ()
            ):
                continue
            if self.limits.free_in_pools(entry.constraints.label) and any(
                map(entry.constraints.suits, free)
            ):
                return True
        return False

    def keep_waiting(self) -> None:
        """Restart ``no-workers-timeout`` for held tasks that some worker could run."""
        unrunnable, running = self.scheduler.unrunnable, self.scheduler.running
        self.limits.keep_waiting()
        for ts in self.records.migrating.values() if running else ():
            if unrunnable.pop(ts, None) is not None:
                unrunnable[ts] = monotonic()
        for pool in self.pools.values():
            possible = {
                constraints: any(map(constraints.allows, running)) for constraints in pool.filed
            }
            for ts, entry in pool.ready.items():
                if possible.get(entry.constraints, True) and unrunnable.pop(ts, None) is not None:
                    unrunnable[ts] = monotonic()
