"""Task pools with late binding: what becomes of the tasks of jobs.

While several jobs have tasks, these wait in their pools, state ``no-worker``, until a slot is free;
then one is bound to that slot's worker. Nothing is committed early, so a reclaimed worker is free
after the task that runs on it. On any error everything held is given back to Dask, once and loudly.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch import (
    BACK_WITHIN,
    Binding,
    Choice,
    Dispatcher,
    Durations,
    Kind,
    Pool,
    Slots,
    has_thread,
)
from dask_slaq.scheduler.pools.fair_queueing import FairQueueing
from dask_slaq.scheduler.pools.holding import Holding
from dask_slaq.scheduler.pools.invariants import check_all, check_task, left_over
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.wakeups import Wakeups
from dask_slaq.scheduler.pools.watchdog import Watchdog

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.core.grants import Terms
    from dask_slaq.scheduler.dispatch import Like

#: Seconds for which the tasks of a job that is left alone are held at least.
LINGER = 10.0


class Pools:
    """Holds the tasks of jobs and binds each to a worker when a slot is free.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    lend : bool
        Lend a slot whose grantees have nothing ready to another job (work-conserving).
    short : float
        Seconds; tasks known to be shorter may go before what waits on a worker.
    ahead : float
        Seconds before a thread is expected to be free at which it is sent another task.
    fair : bool
        Serve jobs by their service for their weight alone.
    charge : callable
        Called as ``charge(job, seconds, at_once)`` for every finished task.
    fail : callable
        Called with the error when dispatching failed.
    told : callable
        Returns whether transitions are still told, as they are not once the plugin is
        unregistered: nothing is dispatched by books that are out of date.
    log_length : int
        Bindings remembered.
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
        told: Callable[[], bool] = lambda: True,
        log_length: int = 10_000,
    ) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self.control = TaskControl(scheduler)
        self.slots = Slots(scheduler, ahead)
        self.dispatcher = Dispatcher(scheduler, self.slots, lend=lend, short=short, fair=fair)
        self.watchdog = Watchdog(scheduler, lend=lend)
        self.holding = Holding(self.control, self._user_of, fail)
        self.pools: dict[str, Pool] = {}
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self.queueing = FairQueueing()
        self.durations = Durations()  # of all jobs, while there are any
        self.wakeups = Wakeups(self._dispatch_if_told, wanted=self._wanted, fail=fail)
        self._charge = charge
        self._told = told
        self._owner: dict[Any, Pool] = {}
        # Running tasks by key: when they gave up their slot, and core-seconds charged so far.
        self._seceded: dict[Any, tuple[float, float]] = {}
        self._count, self._dispatches = itertools.count(), itertools.count()
        self.linger = LINGER
        self._contended_since = self._hold_until = 0.0
        self._sending: Choice | None = None

    # Jobs come and go

    def add(
        self,
        name: str,
        client: str,
        *,
        reports: bool = True,
        weight: float = 1.0,
        gang: bool = False,
    ) -> Pool:
        """Open a pool for a job of a client."""
        if not self.pools:
            self.slots.sent_any(self.scheduler.workers.values())
            self.durations = Durations()
        pool = self.pools[name] = Pool(
            name, client, reports, gang, weight, durations=Durations(self.durations)
        )
        pool.workers = frozenset(self.scheduler.workers)
        self.queueing.begin(pool)
        return pool

    def remove(self, name: str, heir: Pool | None = None) -> None:
        """Close a pool; its unfinished tasks go to an heir, or to Dask's own scheduling."""
        pool = self.pools.pop(name, None)
        if pool is None:
            return
        if not self.pools:
            self.wakeups.cancel_all()
        if heir is not None:
            self._bequeath(pool, heir)
            return
        for ts in pool.running:
            self.slots.ended(ts)
        for ts in pool.tasks:
            self._owner.pop(ts.key, None)
        for key in [key for key in self._seceded if key not in self._owner]:
            del self._seceded[key]
        # Last, or those that get ready anew would be held again, for a pool that is no more.
        self.holding.give_back({ts: u for ts, u in pool.tasks.items() if self.control.has(ts)})

    def _bequeath(self, pool: Pool, heir: Pool) -> None:
        """Give all that a pool has to another one: it goes on waiting for slots, or running."""
        heir.tasks.update(pool.tasks)
        heir.unfinished |= pool.unfinished
        heir.running.update(pool.running)
        for address, tasks in pool.passed.items():
            heir.passed.setdefault(address, set()).update(tasks)
        for entry in pool.ready.values():
            heir.push(entry)
        for ts in pool.tasks:
            self._owner[ts.key] = heir
        self.slots.inherit(pool, heir)

    def job_of(self, key: Any) -> str | None:
        """The job that has a task."""
        pool = self._owner.get(key)
        return None if pool is None else pool.name

    def own(self, pool: Pool, tasks: Iterable[TaskState]) -> None:
        """Put new tasks into a pool. A task that another pool has stays there."""
        for ts in tasks:
            if ts.key not in self._owner and ts.run_spec is not None:
                self._owner[ts.key] = pool
                pool.tasks[ts] = self.control.given(ts)
                if ts.state in ("released", "waiting", "queued", "no-worker", "processing"):
                    pool.unfinished.add(ts)

    @property
    def contended(self) -> bool:
        """Whether there are several pools, or were until lately.

        Tasks of one that is left alone are held for some time, and for as long again as there was
        contention: its data lies where slots were then, unevenly, and Dask would send its tasks
        after the data.
        """
        now = monotonic()
        if len(self.pools) > 1:
            if not self.holding.on:
                self._contended_since = now
            self._hold_until = now + max(now - self._contended_since, self.linger)
            return True
        return self.holding.on and len(self.pools) == 1 and now < self._hold_until

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks; what does not run yet follows, a part at a time."""
        if holding == self.holding.on:
            return
        if holding:
            for pool in self.pools.values():
                self.queueing.begin(pool)
        self.wakeups.look_at = set(self.scheduler.workers)
        tasks = [ts for pool in self.pools.values() for ts in pool.unfinished]
        self.holding.switch(holding, tasks)

    def _user_of(self, ts: TaskState) -> Any:
        pool = self._owner.get(ts.key)
        return None if pool is None else pool.tasks.get(ts)

    def apply(self, grants: Iterable[Terms]) -> None:
        """Put grants that changed into force: the next free slot goes by them."""
        for grant in grants:
            pool = self.pools[grant.job]
            pool.share = grant.share
            pool.index = grant.index
            pool.most = grant.most
            pool.granted = grant.tokens
            if grant.workers is not None:
                pool.workers = grant.workers
        for pool in self.pools.values():
            # As many anew as before are no change. The engine is told of a task when it ends.
            pool.tokens = pool.granted - sum(pool.running.values())
        self.wakeups.soon()

    def tick(self, factor: float) -> int:
        """Once an epoch: fade what is remembered, look at every worker for a free slot.

        Returns
        -------
        int
            Ready tasks that waited although a slot was free: 0, or the watchdog has seen a bug.
        """
        for pool in self.pools.values():
            pool.fade(factor)
        if self.wakeups.due:
            return 0
        stranded = 0
        for choice in self.watchdog.stranded(self.pools.values()):
            self._bind(choice)
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
        """Let ``no-workers-timeout`` not count the time in a pool, unless no worker would do."""
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

    # Tasks come and go

    def transition(self, key: Any, start: str, finish: str, kwargs: Mapping[str, Any]) -> None:
        """Follow one transition of any task on the scheduler."""
        pool = self._owner.get(key)
        if pool is None:
            if start == "processing":
                self._freed(kwargs.get("worker"))
            elif finish == "processing" and (ws := self.scheduler.tasks[key].processing_on):
                self.slots.sent_any([ws])
            return
        ts = self.scheduler.tasks[key]
        if start == "no-worker":
            pool.pop(ts)
        elif start == "processing":
            self._ended(pool, ts, kwargs.get("startstops") or ())
            self._freed(kwargs.get("worker"))
        if finish == "waiting":
            # Dask also announces waiting -> waiting, on the way to no-worker: decided already.
            if start != "waiting":
                self._awaits(pool, ts)
        elif finish == "no-worker":
            if self.control.holds(ts):
                self._ready(pool, ts)
        elif finish == "processing":
            self._started(pool, ts)
        elif start != "memory" and finish != "queued":
            self._done(pool, ts)
        if finish == "forgotten":
            del self._owner[key]
            pool.tasks.pop(ts, None)

    def drop(self, key: Any) -> None:
        """Keep nothing of a task that is forgotten, after a failure too."""
        pool = self._owner.pop(key, None)
        if pool is not None:
            ts = self.scheduler.tasks[key]
            self._seceded.pop(key, None)
            self.slots.ended(ts)
            self.control.restore(ts, pool.tasks.get(ts))
            pool.drop(ts)

    def _awaits(self, pool: Pool, ts: TaskState) -> None:
        """A task waits for its inputs, and then for a slot."""
        pool.unfinished.add(ts)
        if not self.control.has(ts):
            # They may have been changed since, as by `Scheduler.set_restrictions`.
            pool.tasks[ts] = self.control.given(ts)
        if self.holding.on:
            self.control.hold(ts, pool.tasks.get(ts))

    def _done(self, pool: Pool, ts: TaskState) -> None:
        """A task is in memory, has failed, or nobody wants it any more."""
        pool.unfinished.discard(ts)
        self.control.restore(ts, pool.tasks.get(ts))
        if not pool.unfinished:
            pool.left_at = monotonic()

    def seceded(self, key: Any) -> None:
        """A task gave up its slot: it is charged for the time until now, as exactly as can be told
        before it ends."""
        pool = self._owner.get(key)
        if pool is not None:
            ts = self.scheduler.tasks[key]
            sent = self.slots.get(ts)
            used = monotonic() - sent.start if sent is not None and sent.start is not None else 0.0
            self._seceded[key] = time(), used
            self._left_slot(pool, ts, used)
        ts = self.scheduler.tasks.get(key)
        self._freed(ts.processing_on.address if ts and ts.processing_on else None)

    @contextlib.contextmanager
    def moving(self, key: Any) -> Iterator[None]:
        """A worker answers whether it gives up a task for another worker: if it does, the task
        keeps its place among what was sent through slots."""
        ts = self.scheduler.tasks.get(key)
        before = ts.processing_on if ts is not None else None
        pool = self._owner.get(key)
        if ts is None or before is None or pool is None:
            yield
            return
        if ts in self.slots:
            with self.control.ranked(ts, monotonic()):
                yield
        else:
            yield
        after = ts.processing_on
        if after is None or after is before:
            return
        if ts in self.slots:
            self.slots.relocated(ts, after)
            self.control.moved(ts, after)
            reason = "granted" if after.address in pool.workers else "lent"
            self.bindings.append(Binding(time(), ts.key, pool.name, after.address, reason))
        else:
            self._discard_passed(pool, ts)
            pool.passed.setdefault(after.address, set()).add(ts)
        self.wakeups.look_at |= {before.address, after.address}
        self.wakeups.soon()

    def _unstick(self) -> None:
        """Move tasks that wait on a worker, whose thread is not free when it should be, to one
        that has a free thread and nothing else to do."""
        # Who has a free thread had it in the last dispatch already, which has found no use for it.
        workers, running = self.scheduler.workers, self.scheduler.running
        known = [workers[address] for address in sorted(self.wakeups.look_at) if address in workers]
        free = [ws for ws in known if ws in running and has_thread(ws)]
        if not free or not self.slots.any_wait:
            return
        for ts, sent in self.slots.stuck(2 * self.slots.ahead):
            at = ts.processing_on
            if at is None or self.slots.next_end(at) < sent.entry.moving:
                continue  # its inputs would come later than its turn
            for ws in free:
                inside = self.lend or ws.address in sent.pool.workers
                if inside and sent.entry.kind.suits(ws):
                    self.control.move(ts, ws)
                    free.remove(ws)
                    break
        self.wakeups.later("", 2 * self.slots.ahead)

    def slots_changed(self, worker: str) -> None:
        """A worker came, runs again, or is about to have a free thread."""
        self.wakeups.look(worker)

    def forget_worker(self, worker: str) -> None:
        """Forget a worker."""
        self.wakeups.forget(worker)

    def _freed(self, worker: str | None) -> None:
        if worker is None:
            self.wakeups.look_at.update(self.scheduler.workers)
        else:
            self.wakeups.look_at.add(worker)
            self.slots.thread_freed(worker)
            ws = self.scheduler.workers.get(worker)
            if ws is not None and not self.slots.is_low(ws):
                return
        self.wakeups.soon()

    def _ready(self, pool: Pool, ts: TaskState) -> None:
        """File a ready task."""
        if not pool.ready and not pool.running:
            threads = self.scheduler.total_nthreads
            self.queueing.is_back(pool, self.pools.values(), threads)
        pool.push(self.dispatcher.filing.entry(pool, ts, pool.tasks[ts], next(self._count)))
        self.wakeups.soon()

    def _started(self, pool: Pool, ts: TaskState) -> None:
        ws = ts.processing_on
        if len(ws.processing) > ws.nthreads:
            self.slots.sent_any([ws])
        choice = self._sending
        if choice is None or choice.entry.ts is not ts:
            pool.passed.setdefault(ws.address, set()).add(ts)
            self.bindings.append(Binding(time(), ts.key, pool.name, ws.address, "passed"))
            return
        expected = self.dispatcher.filing.expected(ts, choice.entry.like)
        self.slots.sent(ts, ws, pool, choice.entry, choice.rank)
        self.queueing.sent(pool)
        if not choice.entry.homes:
            pool.made_at[ws.address] += 1
        pool.running[ts] = expected
        pool.charge(expected)
        self.bindings.append(Binding(time(), ts.key, pool.name, ws.address, choice.reason))

    def _look_again(self, ws: Any) -> None:
        """Look at a worker when it is about to have a free thread."""
        free_in = self.slots.free_in(ws) - self.slots.ahead
        if 0 < free_in < math.inf:
            self.wakeups.later(ws.address, free_in)

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any]) -> None:
        (left, charged), seconds = self._seceded.pop(ts.key, (math.inf, 0.0)), 0.0
        # A key that is computed again on the same worker brings its earlier runs along.
        for run in reversed(list(startstops)):
            if run["action"] == "compute":
                seconds = max(min(run["stop"], left) - run["start"], 0.0)
                pool.durations.observe(self._like(pool, ts), seconds)
                break
        at_once = pool.demand
        self._left_slot(pool, ts, seconds - charged)
        self._charge(pool.name, seconds, at_once)

    def _like(self, pool: Pool, ts: TaskState) -> Like:
        """What is known of tasks like one that was sent to a worker."""
        sent = self.slots.get(ts)
        return pool.durations.like(ts) if sent is None else sent.entry.like

    def _left_slot(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """A task holds no slot any more; it is charged `seconds` for what was expected."""
        self.slots.ended(ts)
        pool.charge(seconds - pool.running.pop(ts, 0.0))
        if pool.passed:
            self._discard_passed(pool, ts)
        if not (pool.running or pool.ready):
            pool.left_at = monotonic()

    def _discard_passed(self, pool: Pool, ts: TaskState) -> None:
        for address, tasks in list(pool.passed.items()):
            tasks.discard(ts)
            if not tasks:
                del pool.passed[address]

    # Slots are filled

    def _wanted(self) -> bool:
        """Whether there is anything for which a slot is wanted, or which may be in a wrong one."""
        return len(self.slots) > 0 or any(pool.ready for pool in self.pools.values())

    def _dispatch_if_told(self) -> None:
        if self._told():
            self.dispatch()

    def dispatch(self) -> list[Choice]:
        """Fill free slots; returns what was bound to which worker."""
        self.queueing.place_newcomers(self.pools.values())
        looked_at, self.wakeups.look_at = self.wakeups.look_at, set()
        bound = []
        choices = self.dispatcher.choices(self.pools.values(), looked_at, self.queueing.served)
        for choice in choices:
            self._bind(choice)
            bound.append(choice)
        for ws in dict.fromkeys(choice.ws for choice in bound):
            self._look_again(ws)
        self.wakeups.look_at |= self.dispatcher.left
        if self.dispatcher.kept:
            self.wakeups.later("", BACK_WITHIN)
        self._unstick()
        # All of a large pool is looked at now and then only: it would take most of the time.
        if self.scheduler.validate and next(self._dispatches) % (1 + len(self._owner) // 100) == 0:
            self.check()
        return bound

    def _bind(self, choice: Choice) -> None:
        pool, ts = choice.pool, choice.entry.ts
        pool.pop(ts)
        self._sending = choice
        try:
            self.control.bind(ts, pool.tasks.get(ts), choice.ws, choice.rank)
        finally:
            self._sending = None

    # Looked at by tests and checks

    def left_over(self) -> list[str]:
        """Say what is left although there is no job any more; nothing if all is as it should be."""
        return left_over(self)

    def check(self) -> None:
        """Raise `AssertionError` unless all that is kept of tasks agrees with the scheduler."""
        check_all(self)

    def check_task(self, key: Any) -> None:
        """The same for one task."""
        check_task(self, key)
