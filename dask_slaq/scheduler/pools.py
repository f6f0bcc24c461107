"""Task pools with late binding: what becomes of the tasks of jobs.

A job's tasks wait in its pool, state ``no-worker``, until a slot is free; then one is bound to
that slot's worker. Nothing is committed early, so a reclaimed worker is free after the task that
runs on it. On any error everything held is given back to Dask, once and loudly.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.custody import Custody, pinned
from dask_slaq.scheduler.dispatcher import Dispatcher, has_thread
from dask_slaq.scheduler.pool import Binding, Entry, Kind, Pool

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.core.engine import Grant


class Pools:
    """Holds the tasks of jobs and binds each to a worker when a slot is free.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    lend : bool
        Lend a slot whose grantees have nothing ready to another job (work-conserving).
    short : float
        Seconds; tasks known to be shorter do not wait for a slot.
    ahead : float
        Seconds of expected work that a busy worker may have left and still be sent a task.
    charge : callable
        Called as ``charge(job, seconds, at_once)`` for every finished task.
    fail : callable
        Called with the error when dispatching failed.
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
        charge: Callable[[str, float, int], None],
        fail: Callable[[BaseException], None],
        log_length: int = 10_000,
    ) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self.short = short
        self.custody = Custody(scheduler)
        self.dispatcher = Dispatcher(scheduler, lend=lend, ahead=ahead)
        self.holding = False
        self.pools: dict[str, Pool] = {}
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self._charge = charge
        self._fail = fail
        self._owner: dict[Any, Pool] = {}
        self._free: set[str] = set()
        self._short: dict[TaskState, Pool] = {}  # ready, about to pass
        self._seceded: dict[Any, float] = {}  # running tasks by key: when they gave up their slot
        self._count = itertools.count()
        self._dispatch_due = False
        self._reason = ""

    # Jobs come and go

    def add(self, name: str, client: str, *, reports: bool = True, whole: str = "") -> Pool:
        """Open a pool for a job of a client, or for a part of a whole job."""
        pool = self.pools[name] = Pool(name, client, reports)
        pool.workers = frozenset(self.scheduler.workers)
        if whole:
            pool.whole = self.pools[whole]
            pool.whole.parts[name] = pool
            pool.durations = pool.whole.durations
        return pool

    def remove(self, name: str) -> None:
        """Close a pool; what it holds goes to the pool of which it is a part, or to Dask's own
        scheduling."""
        pool = self.pools.pop(name, None)
        if pool is not None and pool.whole is not None:
            del pool.whole.parts[name]
            pool.whole.take_over(pool)
            self._owner.update((ts.key, pool.whole) for ts in pool.tasks)
        elif pool is not None:
            self._give_back(pool)
            for ts in pool.running:
                self.dispatcher.ended(ts)
            for ts in pool.tasks:
                self._owner.pop(ts.key, None)
                self._seceded.pop(ts.key, None)

    def job_of(self, key: Any) -> str | None:
        """The job, divided or not, that has a task."""
        pool = self._owner.get(key)
        return None if pool is None else pool.line.name

    def own(self, pool: Pool, tasks: Iterable[TaskState]) -> None:
        """Put new tasks into a pool. A task that another pool has stays there."""
        for ts in tasks:
            if ts.key not in self._owner and ts.run_spec is not None:
                self._owner[ts.key] = pool
                pool.tasks[ts] = self.custody.given(ts)
                pool.foremost = min(pool.foremost, ts.priority[0])
                if ts.state in ("waiting", "queued", "no-worker", "processing"):
                    pool.unfinished.add(ts)

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks; whatever does not run yet follows."""
        if holding == self.holding:
            return
        self.holding = holding
        if not holding:
            for pool in self.pools.values():
                self._give_back(pool)
            return
        self._free = set(self.scheduler.workers)
        for pool in self.pools.values():
            for ts in pool.unfinished:
                if ts.state == "waiting":
                    self.custody.hold(ts, pool.tasks.get(ts))
            self.custody.take_out_of_queue(list(pool.unfinished))

    def apply(self, grants: Mapping[str, Grant]) -> None:
        """Put grants that changed into force: the next free slot goes by them."""
        for name, grant in grants.items():
            pool = self.pools[name]
            pool.share = grant.share
            pool.index = grant.index
            pool.workers = grant.workers
            pool.most = grant.most
            pool.granted = grant.tokens
        for pool in self.pools.values():
            # As many anew as before are no change. The engine is told of a task when it ends.
            pool.tokens = pool.granted - sum(pool.running.values())
        self.schedule_dispatch()

    def tick(self, factor: float) -> int:
        """Once an epoch: fade what is remembered, look at every worker for a free slot.

        Returns
        -------
        int
            Ready tasks that waited although a slot was free: 0, or the watchdog has seen a bug.
        """
        for pool in self.pools.values():
            pool.fade(factor)
        if self._dispatch_due:
            return 0
        workers = self.scheduler.workers
        overlooked = {a for a, ws in workers.items() if a not in self._free and has_thread(ws)}
        self._free = set(workers)
        bound = self.dispatch()
        return sum(a in overlooked and entry.home in (None, a) for entry, a in bound)

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
        if start == "processing":
            self._freed(kwargs.get("worker"))
        if pool is None:
            return
        ts = self.scheduler.tasks[key]
        if start == "no-worker":
            pool.ready.pop(ts, None)
            self._short.pop(ts, None)
        elif start == "processing":
            self._ended(pool, ts, kwargs.get("startstops") or ())
        if finish == "waiting":
            # Dask also announces waiting -> waiting, on the way to no-worker: decided already.
            pool.unfinished.add(ts)
            if self.holding and start != "waiting":
                self.custody.hold(ts, pool.tasks.get(ts))
        elif finish == "no-worker":
            if self.custody.holds(ts):
                self._ready(pool, ts)
        elif finish == "processing":
            self._started(pool, ts)
        else:
            if finish != "queued":
                pool.unfinished.discard(ts)
                self.custody.restore(ts, pool.tasks.get(ts))
            if finish == "forgotten":
                del self._owner[key]
                pool.tasks.pop(ts, None)

    def seceded(self, key: Any) -> None:
        """A task gave up its slot; when it ends it is charged for the time until now."""
        pool = self._owner.get(key)
        if pool is not None:
            ts = self.scheduler.tasks[key]
            self._seceded[key] = time()
            self._left_slot(pool, ts, 0.0)
            self._freed(ts.processing_on.address if ts.processing_on else None)

    def slots_changed(self, worker: str) -> None:
        """A worker came, runs again, or is about to have a free thread."""
        self._free.add(worker)
        self.schedule_dispatch()

    def _freed(self, worker: str | None) -> None:
        self._free.update(self.scheduler.workers if worker is None else (worker,))
        self.schedule_dispatch()

    def _ready(self, pool: Pool, ts: TaskState) -> None:
        """File a ready task, or, where slots are lent, let it pass if it is known to be short."""
        known = pool.durations.known(ts)
        if self.lend and known is not None and known < self.short:
            self._short[ts] = pool
        else:
            pool.push(self.dispatcher.entry(pool, ts, known, pool.tasks[ts], next(self._count)))
        self.schedule_dispatch()

    def _started(self, pool: Pool, ts: TaskState) -> None:
        worker = ts.processing_on.address
        reason = self._reason
        if reason:
            expected, delay = self.dispatcher.started(pool, ts, ts.processing_on)
            pool.running[ts] = pool.line.running[ts] = expected
            pool.line.used += expected
            pool.line.tokens -= expected
            if 0 < delay < math.inf:
                asyncio.get_running_loop().call_later(delay, self.slots_changed, worker)
        elif pinned(ts, pool.tasks.get(ts)):
            pool.gang.add(ts)
            pool.line.gang.add(ts)
        self.bindings.append(Binding(time(), ts.key, pool.name, worker, reason or "passed"))

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any]) -> None:
        # A key that is computed again on the same worker brings its earlier runs along.
        runs = [(s["start"], s["stop"]) for s in startstops if s["action"] == "compute"]
        left, seconds = self._seceded.pop(ts.key, math.inf), 0.0
        if runs:
            start, stop = runs[-1]
            seconds = max(min(stop, left) - start, 0.0)
            pool.durations.observe(ts, seconds)
            pool.ended += 1
            pool.attained += seconds
        at_once = pool.line.demand
        self._left_slot(pool, ts, seconds)
        self._charge(pool.line.name, seconds, at_once)

    def _left_slot(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """A task holds no slot any more; it is charged `seconds` for what was expected."""
        self.dispatcher.ended(ts)
        expected = pool.line.running.get(ts, 0.0)
        for counted in (pool, pool.line):
            counted.gang.discard(ts)
            counted.running.pop(ts, None)
        pool.line.used += seconds - expected
        pool.line.tokens -= seconds - expected

    # Slots are filled

    def schedule_dispatch(self) -> None:
        """Dispatch once the events at hand are through."""
        if self._dispatch_due:
            return
        if self._short or any(pool.ready for pool in self.pools.values()):
            self._dispatch_due = True
            asyncio.get_running_loop().call_soon(self._dispatch_soon)

    def _dispatch_soon(self) -> None:
        self._dispatch_due = False
        try:
            self.dispatch()
        except Exception as error:
            self._fail(error)

    def dispatch(self) -> list[tuple[Entry, str]]:
        """Fill free slots; returns what was bound to which worker."""
        self._let_short_pass()
        slots = self.dispatcher.slots(self._free)
        bound = []
        for pool, entry, ws, reason in self.dispatcher.choices(self.pools.values(), slots):
            self._bind(pool, entry, ws, reason)
            bound.append((entry, ws.address))
        self._free = set(slots)
        return bound

    def _let_short_pass(self) -> None:
        """A step of a job has several short tasks, one after another: each would wait for the long
        tasks of others."""
        held = {ts: pool.tasks[ts] for ts, pool in self._short.items() if self.custody.holds(ts)}
        self._short.clear()
        self.custody.let_pass(held)

    def _bind(self, pool: Pool, entry: Entry, ws: WorkerState, reason: str) -> None:
        pool.ready.pop(entry.ts)
        self._reason = reason
        try:
            self.custody.bind(entry.ts, pool.tasks.get(entry.ts), ws)
        finally:
            self._reason = ""

    def _give_back(self, pool: Pool) -> None:
        """Leave all that a pool holds to Dask's own scheduling."""
        pool.ready.clear()
        pool.heaps.clear()
        self.custody.give_back(pool.tasks)
