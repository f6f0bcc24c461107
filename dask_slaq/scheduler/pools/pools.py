"""Task pools: tasks of jobs are bound to workers as late as possible.

While several jobs have tasks, ready tasks wait in the pool of their job, in state ``no-worker``.
When a slot is free, one of them is bound to the slot's worker. Nothing is sent early, so a worker
can be reclaimed as soon as its running task ends. On any error all held tasks are given back to
Dask, and the error is logged once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch import (
    Binding,
    Choice,
    Dispatcher,
    Durations,
    Group,
    Kind,
    Pool,
    Slots,
    has_thread,
)
from dask_slaq.scheduler.pools.contention import Contention
from dask_slaq.scheduler.pools.fair_queueing import FairQueueing
from dask_slaq.scheduler.pools.holding import Holding
from dask_slaq.scheduler.pools.invariants import check_all, left_over
from dask_slaq.scheduler.pools.slot_filling import SlotFilling
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.task_tracker import TaskTracker
from dask_slaq.scheduler.pools.wakeups import Wakeups
from dask_slaq.scheduler.pools.watchdog import Watchdog

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

    from dask_slaq.core.grants import Terms
    from dask_slaq.core.owners import OwnerGrant


class Pools:
    """Pools of all jobs on a scheduler.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    lend : bool
        Whether to lend a slot to another job when its grantees have no ready tasks
        (work-conserving).
    short : float
        Seconds. Tasks known to be shorter may overtake tasks that wait on a worker.
    ahead : float
        Seconds before the expected end of a task at which its worker is sent another one.
    fair : bool
        Whether to serve jobs by their weighted service alone.
    charge : callable
        Called as ``charge(job, seconds, at_once)`` for every finished task.
    fail : callable
        Called with the error when dispatching fails.
    is_registered : callable
        Returns whether the plugin still receives transitions. Once it does not, its records are
        out of date and nothing is dispatched.
    log_length : int
        Maximum number of remembered bindings.

    Attributes
    ----------
    pools : dict of str to Pool
        Pool of each job, by name.
    tracker : TaskTracker
    filling : SlotFilling
    bindings : deque of Binding
        The latest tasks that were sent to workers.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        lend: bool = True,
        short: float = 0.010,
        ahead: float = 0.025,
        fair: bool = False,
        charge: Callable[[str, float, int], None],
        fail: Callable[[BaseException], None],
        is_registered: Callable[[], bool] = lambda: True,
        log_length: int = 10_000,
    ) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self.control = TaskControl(scheduler)
        self.slots = Slots(scheduler, ahead)
        self.dispatcher = Dispatcher(scheduler, self.slots, lend=lend, short=short, fair=fair)
        self.watchdog = Watchdog(scheduler, lend=lend)
        self.pools: dict[str, Pool] = {}
        self.groups: dict[str, Group] = {}  # by owner; empty unless owners are configured
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self.queueing = FairQueueing()
        self.durations = Durations()  # shared by all jobs, as long as there are any
        self.wakeups = Wakeups(self._dispatch_if_registered, wanted=self._wanted, fail=fail)
        self.tracker = TaskTracker(self, charge)
        self.filling = SlotFilling(self)
        self.holding = Holding(self.control, self.tracker.user_of, fail)
        self._is_registered = is_registered
        self.contention = Contention()

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
    ) -> Pool:
        """Open a pool for a job.

        Parameters
        ----------
        name : str
        client : str
            Identifier of the client that opened the job.
        reports : bool
            False for unowned tasks.
        weight : float
        gang : bool
            Whether the ready tasks of the job must start together.
        owner : str
        """
        if not self.pools:
            self.dispatcher.crowded.forget()
            self.durations = Durations()
        pool = self.pools[name] = Pool(
            name, client, reports, gang, weight, durations=Durations(self.durations)
        )
        pool.workers = frozenset(self.scheduler.workers)
        if (group := self.groups.get(owner)) is not None:
            group.pools.append(pool)
            pool.group = group
        self.queueing.begin(pool)
        return pool

    def remove(self, name: str, heir: Pool | None = None) -> None:
        """Close a pool. Its unfinished tasks go to the pool `heir`, or back to plain Dask."""
        pool = self.pools.pop(name, None)
        if pool is None:
            return
        if pool.group is not None:
            pool.group.pools.remove(pool)
        if not self.pools:
            self.wakeups.cancel_all()
        if heir is not None:
            self._bequeath(pool, heir)
            return
        for ts in pool.running:
            self.slots.ended(ts)
        self.tracker.forget(pool.tasks)
        # Last: otherwise tasks that become ready again would be held for the closed pool.
        self.holding.give_back({ts: u for ts, u in pool.tasks.items() if self.control.has(ts)})

    def _bequeath(self, pool: Pool, heir: Pool) -> None:
        """Transfer all tasks of `pool` to `heir`, where they keep waiting or running."""
        heir.inherit(pool)
        for ts in pool.tasks:
            self.tracker.owner[ts.key] = heir
        self.slots.inherit(pool, heir)

    @property
    def contended(self) -> bool:
        """Whether there are several pools, or were until recently; see `Contention`."""
        return self.contention.lasts(len(self.pools), self.holding.on)

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks. Tasks on no worker yet are converted in small batches."""
        if holding == self.holding.on:
            return
        if holding:
            for pool in self.pools.values():
                self.queueing.begin(pool)
        self.wakeups.look_at = set(self.scheduler.workers)
        tasks = [ts for pool in self.pools.values() for ts in pool.unfinished]
        self.holding.switch(holding, tasks)

    def apply(
        self,
        grants: Iterable[Terms],
        owners: Mapping[str, OwnerGrant] = MappingProxyType({}),
        owner_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Put grants into force, beginning with the next free slot.

        Parameters
        ----------
        grants : iterable of Terms
            Grants of jobs that changed.
        owners : mapping of str to OwnerGrant
            Grants of all owners; empty unless owners are configured.
        owner_of : mapping of str to str
            Owner of each job.
        """
        for grant in grants:
            self.pools[grant.job].take(grant)
        for pool in self.pools.values():
            # Also refill grants that did not change. Running tasks are not yet charged.
            running = pool.running
            pool.tokens = pool.granted - sum(running.values()) if running else pool.granted
        self.groups = {
            owner: Group(most=grant.max_threads, tokens=grant.tokens)
            for owner, grant in owners.items()
        }
        for name, pool in self.pools.items() if self.groups else ():
            pool.group = group = self.groups[owner_of[name]]
            group.pools.append(pool)
            group.tokens -= sum(pool.running.values())
        self.dispatcher.crowded.forget()
        self.wakeups.soon()

    def tick(self, factor: float) -> int:
        """Fade old records by `factor` and look for free slots on all workers, once per epoch.

        Returns
        -------
        int
            Number of ready tasks that waited although a slot was free. Other than 0, it shows a
            bug.
        """
        for pool in self.pools.values():
            pool.fade(factor)
        if self.wakeups.due:
            return 0
        stranded = 0
        for choice in self.watchdog.stranded(self.pools.values()):
            self.filling.bind(choice)
            stranded += 1
        workers = self.scheduler.workers
        overlooked = {
            a for a, ws in workers.items() if a not in self.wakeups.look_at and has_thread(ws)
        }
        self.wakeups.look_at = set(workers)
        bound = self.dispatch()
        return stranded + sum(
            choice.ws.address in overlooked
            and choice.ws.address in (choice.entry.homes or overlooked)
            for choice in bound
        )

    def keep_waiting(self) -> None:
        """Restart ``no-workers-timeout`` for held tasks that some worker could run."""
        unrunnable = self.scheduler.unrunnable
        running = self.scheduler.running
        possible: dict[Kind, bool] = {}
        for pool in self.pools.values():
            for ts, entry in pool.ready.items():
                kind = entry.kind
                if kind not in possible:
                    possible[kind] = any(kind.allows(ws) for ws in running)
                if possible[kind] and unrunnable.pop(ts, None) is not None:
                    unrunnable[ts] = monotonic()

    # Workers and slots

    def slots_changed(self, worker: str) -> None:
        """Look at a worker that joined, resumed, or is about to have a free thread."""
        self.wakeups.look(worker)

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self.wakeups.forget(worker)
        for pool in self.pools.values():
            pool.forget_worker(worker)

    def dispatch(self) -> list[Choice]:
        """Fill free slots. Returns the tasks that were bound, each with its worker."""
        return self.filling.dispatch()

    def _wanted(self) -> bool:
        """Return whether a task waits for a slot, or may wait at the wrong worker."""
        return len(self.slots) > 0 or any(pool.ready for pool in self.pools.values())

    def _dispatch_if_registered(self) -> None:
        if self._is_registered():
            self.dispatch()

    # For tests and checks

    def left_over(self) -> list[str]:
        """Describe what is left although no job runs. Empty if nothing is."""
        return left_over(self)

    def check(self) -> None:
        """Raise `AssertionError` unless all records agree with the scheduler."""
        check_all(self)
