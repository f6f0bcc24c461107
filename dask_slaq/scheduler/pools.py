"""Task pools with late binding: the only file that touches restrictions or calls transitions.

A job's tasks wait in its pool, state ``no-worker``, until a slot is free; then one is bound to
that slot's worker. Nothing is committed early, so a reclaimed worker is free after the task that
runs on it. On any error everything held is given back to Dask, once and loudly.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.core.engine import Grant

logger = logging.getLogger(__name__)

# No worker has this address: a task restricted to it waits in ``no-worker``. Dask takes an empty
# set for "every worker", so the restriction of a held task is never empty.
HELD = frozenset({"slaq://held"})
# Inputs are cheap to move in so many seconds, or in so much of the task's expected time.
CHEAP_SECONDS = 0.001
CHEAP_FRACTION = 0.1


class Binding(NamedTuple):
    """One task sent to one worker, and why it might go there."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed": never held


class Entry(NamedTuple):
    """A ready task in a pool; sorts in Dask's order."""

    priority: tuple[Any, ...]
    count: int
    ts: TaskState
    kind: Kind
    home: str | None  # the worker that holds most of its inputs
    moving: float  # seconds to move them away from home


class Kind(NamedTuple):
    """What a task asks of a worker."""

    allowed: frozenset[str] | None  # the user's own ``workers=``
    resources: tuple[tuple[str, float], ...] | None

    def suits(self, ws: WorkerState) -> bool:
        """Whether a worker is allowed, and has so much of each resource free."""
        if self.allowed is not None and ws.address not in self.allowed:
            return False
        return self.resources is None or all(
            ws.resources.get(r, 0) - ws.used_resources.get(r, 0) >= n for r, n in self.resources
        )


ANY = Kind(None, None)


@dataclass
class Pool:
    """The tasks of one job.

    Attributes
    ----------
    tasks : dict
        Every task of the job, with the worker restrictions that its user gave it.
    unfinished : set
        Those that wait, are ready, or run.
    ready : dict
        Those that wait for a slot.
    heaps : dict
        The same in Dask's order, by kind and home; those that are cheap to move also under no
        home. A task that left is dropped when it comes to the top.
    running : dict
        Those that hold a slot, with the core-seconds charged for each in advance.
    index, share, workers, tokens
        From the job's grant.
    """

    name: str
    client: str
    reports: bool = True
    tasks: dict[TaskState, Any] = field(default_factory=dict)
    unfinished: set[TaskState] = field(default_factory=set)
    ready: dict[TaskState, Entry] = field(default_factory=dict)
    heaps: dict[Kind, dict[str | None, list[Entry]]] = field(default_factory=dict)
    running: dict[TaskState, float] = field(default_factory=dict)
    share: float = 1.0
    index: float = 0.0
    workers: Collection[str] = frozenset()
    tokens: float = 0.0
    used: float = 0.0  # core-seconds, fading; orders jobs of equal index
    bytes_at: dict[str, float] = field(default_factory=dict)  # input bytes by worker, fading

    @property
    def demand(self) -> int:
        """Tasks that hold a slot or wait for one."""
        return len(self.ready) + len(self.running)

    def order(self) -> tuple[Any, ...]:
        """Who is served first: higher index, then least running and least used for the share."""
        share = max(self.share, 1e-9)
        return (-self.index, len(self.running) / share, self.used / share, self.name)

    def push(self, entry: Entry, cheap: bool) -> None:
        """Add a ready task; `cheap` to move means that any worker will do."""
        self.ready[entry.ts] = entry
        homes = self.heaps.setdefault(entry.kind, {})
        if entry.home is not None:
            heapq.heappush(homes.setdefault(entry.home, []), entry)
        if entry.home is None or cheap:
            heapq.heappush(homes.setdefault(None, []), entry)

    def first(self, kind: Kind, home: str | None) -> Entry | None:
        """The first ready task of a kind at a home."""
        heap = self.heaps[kind].get(home)
        while heap:
            if self.ready.get(heap[0].ts) is heap[0]:
                return heap[0]
            heapq.heappop(heap)
        self.heaps[kind].pop(home, None)
        return None

    def fade(self, factor: float) -> None:
        self.used *= factor
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}


class Pools:
    """Holds the tasks of jobs and binds each to a worker when a slot is free.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    lend : bool
        Lend a slot whose grantees have nothing ready to another job (work-conserving).
    short : float
        Seconds; tasks of prefixes known to be shorter are not held.
    ahead : float
        Seconds of expected work that a busy worker may have and still be sent a task.
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
        ahead: float = 0.050,
        charge: Callable[[str, float, int], None],
        fail: Callable[[BaseException], None],
        log_length: int = 10_000,
    ) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self.short = short
        self.ahead = ahead
        self.holding = False
        self.pools: dict[str, Pool] = {}
        self.bindings: deque[Binding] = deque(maxlen=log_length)
        self._charge = charge
        self._fail = fail
        self._owner: dict[Any, Pool] = {}
        self._only: dict[str, frozenset[str]] = {}
        self._free: set[str] = set()
        self._count = itertools.count()
        self._dispatch_due = False
        self._reason = ""

    # Jobs come and go

    def add(self, name: str, client: str, *, reports: bool = True) -> Pool:
        """Open a pool for a job of a client."""
        pool = self.pools[name] = Pool(name, client, reports)
        pool.workers = frozenset(self.scheduler.workers)
        return pool

    def remove(self, name: str) -> None:
        """Close a pool; what it holds goes to Dask's own scheduling."""
        pool = self.pools.pop(name, None)
        if pool is not None:
            self._give_back([pool])
            for ts in pool.tasks:
                self._owner.pop(ts.key, None)

    def own(self, pool: Pool, tasks: Iterable[TaskState]) -> None:
        """Put new tasks into a pool. A task that another pool has stays there."""
        for ts in tasks:
            if ts.key not in self._owner and ts.run_spec is not None:
                self._owner[ts.key] = pool
                pool.tasks[ts] = ts.worker_restrictions
                if ts.state in ("waiting", "queued", "no-worker", "processing"):
                    pool.unfinished.add(ts)

    def hold(self, holding: bool) -> None:
        """Start or stop holding tasks; whatever does not run yet follows."""
        if holding == self.holding:
            return
        self.holding = holding
        if not holding:
            self._give_back(self.pools.values())
            return
        self._free = set(self.scheduler.workers)
        queued = {}
        for pool in self.pools.values():
            for ts in pool.unfinished:
                if ts.state == "waiting":
                    self._restrict(pool, ts)
                elif ts.state == "queued":
                    queued[ts.key] = "released"
        if queued:
            self._transitions(queued)

    def apply(self, grants: Mapping[str, Grant]) -> None:
        """Put grants into force: the next free slot goes by them."""
        for name, grant in grants.items():
            pool = self.pools[name]
            pool.share = grant.share
            pool.index = grant.index
            pool.workers = grant.workers
            # The engine is told of a task when it ends.
            pool.tokens = grant.tokens - sum(pool.running.values())
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
        unrunnable = self.scheduler.unrunnable
        if self.scheduler.no_workers_timeout is not None:
            # Waiting in a pool is no lack of workers: do not let the admin's timeout count it.
            for pool in self.pools.values():
                for ts in pool.ready:
                    if unrunnable.pop(ts, None) is not None:
                        unrunnable[ts] = monotonic()
        if self._dispatch_due:
            return 0
        workers = self.scheduler.workers
        overlooked = {a for a, ws in workers.items() if a not in self._free and has_thread(ws)}
        self._free = set(workers)
        bound = self.dispatch()
        return sum(a in overlooked and entry.home in (None, a) for entry, a in bound)

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
        elif start == "processing":
            self._ended(pool, ts, kwargs.get("startstops") or ())
        if finish == "waiting":
            # Dask also announces waiting -> waiting, on the way to no-worker: decided already.
            pool.unfinished.add(ts)
            if self.holding and start != "waiting":
                self._restrict(pool, ts)
        elif finish == "no-worker":
            if ts.worker_restrictions is HELD:
                self._ready(pool, ts)
        elif finish == "processing":
            self._started(pool, ts)
        else:
            if finish != "queued":
                pool.unfinished.discard(ts)
                self._unrestrict(pool, ts)
            if finish == "forgotten":
                del self._owner[key]
                pool.tasks.pop(ts, None)

    def slots_changed(self, worker: str) -> None:
        """A worker came."""
        self._free.add(worker)
        self.schedule_dispatch()

    def _freed(self, worker: str | None) -> None:
        self._free.update(self.scheduler.workers if worker is None else (worker,))
        self.schedule_dispatch()

    def _restrict(self, pool: Pool, ts: TaskState) -> None:
        """Hold a task once it is ready, unless it must or may go its own way."""
        if ts in pool.tasks and self.passes(pool, ts):
            self._unrestrict(pool, ts)
        else:
            ts.worker_restrictions = HELD

    def passes(self, pool: Pool, ts: TaskState) -> bool:
        """Whether a task is never held: an actor, one of a gang pinned to its worker, a P2P
        shuffle's (its own plugin restricts it), or, where slots are lent, one known to be short."""
        mine = self._is_mine(ts.worker_restrictions)
        user = pool.tasks[ts] if mine else ts.worker_restrictions
        if ts.actor or ts.host_restrictions or ts.loose_restrictions:
            return True
        if user is not None and len(user) == 1:
            return True
        if is_barrier(ts.key) or any(is_barrier(dep.key) for dep in ts.dependencies):
            return True
        return self.lend and 0 <= ts.prefix.duration_average < self.short

    def _is_mine(self, restrictions: Any) -> bool:
        if restrictions is HELD:
            return True
        if not restrictions or len(restrictions) != 1:
            return False
        return restrictions is self._only.get(next(iter(restrictions)))

    def _unrestrict(self, pool: Pool, ts: TaskState) -> None:
        if self._is_mine(ts.worker_restrictions):
            ts.worker_restrictions = pool.tasks.get(ts)

    def _ready(self, pool: Pool, ts: TaskState) -> None:
        user = pool.tasks[ts]
        needs = ts.resource_restrictions
        kind = Kind(
            frozenset(user) if user else None, tuple(sorted(needs.items())) if needs else None
        )
        home, moving = self._home(pool, ts, kind)
        cheap = moving < max(CHEAP_SECONDS, CHEAP_FRACTION * self._expected(ts))
        pool.push(Entry(ts.priority, next(self._count), ts, kind, home, moving), cheap)
        self.schedule_dispatch()

    def _home(self, pool: Pool, ts: TaskState, kind: Kind) -> tuple[str | None, float]:
        """Of the workers that a task may use the one that holds most of its input bytes, and the
        seconds to move them."""
        held: dict[str, int] = {}
        for dep in ts.dependencies:
            for ws in dep.who_has or ():
                if kind.allowed is not None and ws.address not in kind.allowed:
                    continue
                if all(ws.resources.get(r, 0) >= n for r, n in kind.resources or ()):
                    held[ws.address] = held.get(ws.address, 0) + dep.nbytes
        if not held:
            return None, 0.0
        home = max(held, key=held.__getitem__)
        pool.bytes_at[home] = pool.bytes_at.get(home, 0.0) + held[home]
        return home, held[home] / self.scheduler.bandwidth

    def _expected(self, ts: TaskState) -> float:
        """Seconds that a task is expected to compute; the scheduler's own estimate, whose method
        is named differently in every second release."""
        prefix = ts.prefix
        if prefix.duration_average >= 0:
            return prefix.duration_average
        if prefix.max_exec_time > 0:
            return 2 * prefix.max_exec_time
        return self.scheduler.UNKNOWN_TASK_DURATION

    def _started(self, pool: Pool, ts: TaskState) -> None:
        worker = ts.processing_on.address
        reason = self._reason
        if reason:
            expected = pool.running[ts] = self._expected(ts)
            pool.used += expected
            pool.tokens -= expected
        self.bindings.append(Binding(time(), ts.key, pool.name, worker, reason or "passed"))

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any]) -> None:
        seconds = sum(s["stop"] - s["start"] for s in startstops if s["action"] == "compute")
        at_once = pool.demand
        expected = pool.running.pop(ts, 0.0)
        pool.used += seconds - expected
        pool.tokens -= seconds - expected
        self._charge(pool.name, seconds, at_once)

    # Slots are filled

    def schedule_dispatch(self) -> None:
        """Dispatch once the events at hand are through."""
        if not self._dispatch_due and any(pool.ready for pool in self.pools.values()):
            self._dispatch_due = True
            asyncio.get_running_loop().call_soon(self._dispatch_soon)

    def _dispatch_soon(self) -> None:
        self._dispatch_due = False
        try:
            self.dispatch()
        except Exception as error:
            self._fail(error)

    def dispatch(self) -> list[tuple[Entry, str]]:
        """Fill free slots; returns what was bound to which worker.

        Jobs behind on their floor are served first, then jobs on the workers they hold, then
        (`lend`) any job; last, tasks whose home is busy for longer than moving their inputs takes.
        """
        bound: list[tuple[Entry, str]] = []
        slots = {a: ws for a in self._free if (ws := self._with_slot(a)) is not None}
        for reason in ("floor", "granted", "lent") if self.lend else ("floor", "granted"):
            for move in (False, True) if reason == "lent" or not self.lend else (False,):
                bound += self._serve(slots, reason, move)
        self._free = set(slots)
        return bound

    def _with_slot(self, address: str) -> WorkerState | None:
        """The worker, if it has fewer tasks than threads or next to no work."""
        ws = self.scheduler.workers.get(address)
        if ws is None or ws not in self.scheduler.running:
            return None
        if has_thread(ws):
            return ws
        return ws if ws.occupancy < self.ahead * ws.nthreads else None

    def _serve(
        self, slots: dict[str, WorkerState], reason: str, move: bool
    ) -> list[tuple[Entry, str]]:
        queue = [
            (pool.order(), pool)
            for pool in self.pools.values()
            if pool.ready and (reason != "floor" or pool.tokens > 0)
        ]
        heapq.heapify(queue)
        bound = []
        while queue and slots:
            _, pool = heapq.heappop(queue)
            choice = self._choose(pool, slots, reason, move)
            if choice is None:
                continue
            entry, ws = choice
            self._bind(pool, entry, ws, reason)
            bound.append((entry, ws.address))
            if self._with_slot(ws.address) is None:
                del slots[ws.address]
            if pool.ready and (reason != "floor" or pool.tokens > 0):
                heapq.heappush(queue, (pool.order(), pool))
        return bound

    def _choose(
        self, pool: Pool, slots: dict[str, WorkerState], reason: str, move: bool
    ) -> tuple[Entry, WorkerState] | None:
        """The job's first task that a free slot suits, and that slot's worker."""
        granted = reason == "granted" or not self.lend
        places = [ws for a, ws in slots.items() if not granted or a in pool.workers]
        if not places:
            return None
        for kind in list(pool.heaps):
            fits = [ws for ws in places if kind.suits(ws)] if kind != ANY else places
            local = [e for ws in fits if (e := pool.first(kind, ws.address))]
            if local:
                entry = min(local)
                return entry, slots[entry.home]
            entry = pool.first(kind, None) or (self._homeless(pool, kind) if move else None)
            if entry is not None and fits:
                return entry, min(fits, key=load)
        return None

    def _homeless(self, pool: Pool, kind: Kind) -> Entry | None:
        """The first task for whose home to wait takes longer than to move its inputs."""
        firsts = (pool.first(kind, home) for home in list(pool.heaps[kind]))
        return min(
            (e for e in firsts if e and (self._away(pool, e.home) or self._waiting(e) > e.moving)),
            default=None,
        )

    def _away(self, pool: Pool, home: str) -> bool:
        """Whether waiting for a task's home is in vain: it left, is paused, or (sets being strict)
        is not the job's."""
        if self.scheduler.workers.get(home) not in self.scheduler.running:
            return True
        return not self.lend and home not in pool.workers

    def _waiting(self, entry: Entry) -> float:
        """Seconds until a task's home is expected to have a free slot."""
        ws = self.scheduler.workers[entry.home]
        return ws.occupancy / ws.nthreads

    def _bind(self, pool: Pool, entry: Entry, ws: WorkerState, reason: str) -> None:
        ts = entry.ts
        if reason == "lent" and ws.address in pool.workers:
            reason = "granted"
        only = self._only.setdefault(ws.address, frozenset({ws.address}))
        ts.worker_restrictions = only
        pool.ready.pop(ts)
        self._reason = reason
        try:
            self._transitions({ts.key: "processing"})
        finally:
            self._reason = ""
        if ts.state == "no-worker":
            # Dask refuses the worker after all: leave the task to Dask's own scheduling.
            logger.warning("%s could not be bound to %s; left to Dask", ts.key, ws.address)
            self._unrestrict(pool, ts)
            self._transitions({ts.key: "processing"})

    def _give_back(self, pools: Iterable[Pool]) -> None:
        """Leave all that these pools hold to Dask's own scheduling."""
        recommendations = {}
        for pool in pools:
            for ts in pool.tasks:
                if self._is_mine(ts.worker_restrictions):
                    self._unrestrict(pool, ts)
                    if ts.state == "no-worker":
                        recommendations[ts.key] = "processing"
            pool.ready.clear()
            pool.heaps.clear()
        if recommendations:
            self._transitions(recommendations)

    def _transitions(self, recommendations: dict[Any, str]) -> None:
        self.scheduler.transitions(recommendations, stimulus_id=f"slaq-{time()}")


def has_thread(ws: WorkerState) -> bool:
    """Whether a worker has fewer tasks than threads; seceded tasks hold none."""
    return len(ws.processing) - len(ws.long_running) < ws.nthreads


def load(ws: WorkerState) -> tuple[float, str]:
    """Fewest tasks a thread first; ties by address."""
    return (len(ws.processing) - len(ws.long_running)) / ws.nthreads, ws.address


def is_barrier(key: Any) -> bool:
    """Whether a task is the barrier of a P2P shuffle, whose restrictions place all its outputs."""
    return isinstance(key, str) and key.startswith("shuffle-barrier-")
