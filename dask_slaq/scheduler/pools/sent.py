"""Tasks on workers: when each has started and is expected to end, and which worker has a slot."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.pools.durations import TRIVIAL

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.scheduler.pools.durations import Like
    from dask_slaq.scheduler.pools.pool import Pool

__all__ = ["Sent", "SentTasks", "blocked", "has_thread", "load"]

#: Seconds until the scheduler receives the end of a task.
REPORTED = 0.005
#: Maximum number of trivial tasks per thread that wait on a worker.
MOST_AHEAD = 8


@dataclass(slots=True, eq=False)
class Sent:
    """Task on a worker.

    Attributes
    ----------
    pool : Pool
    like : Like
        Compute times of similar tasks.
    soonest : float
        Compute time after which it may plausibly have ended, when it was sent.
    ours : bool
        Whether it was sent by the dispatcher, and not by Dask.
    why : str
        Reason in words.
    order : tuple
        Order on the worker, lowest first.
    tag : float
        Service of its job when it was sent.
    expected : float
        Expected compute time when it was sent, seconds; infinite if unknown.
    threads : float
        Threads that it uses.
    ahead : float
        Core-seconds charged to its job so far.
    start : float or None
        Estimated start of the computation, monotonic seconds; None while it waits on the worker.
    worker : str
        Address.
    """

    pool: Pool
    like: Like
    ours: bool
    why: str
    order: tuple[Any, ...]
    tag: float
    expected: float = math.inf
    soonest: float = math.inf
    threads: float = 1.0
    ahead: float = 0.0
    start: float | None = None
    worker: str = ""

    def left(self, now: float) -> float:
        """Return the estimated seconds until the task ends; infinite if unknown.

        An overdue task is expected to take as long again as it is overdue.
        """
        if self.start is None or self.expected == math.inf:
            return self.expected
        elapsed = now - self.start
        if elapsed < self.expected:
            return max(self.soonest - elapsed, 0.0)
        return max(elapsed - self.expected - REPORTED, 0.0)


class _OnWorker:
    """Tasks on one worker, and those of them that wait there, in their order."""

    __slots__ = ("ahead", "ours", "queue", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[TaskState, Sent] = {}
        self.queue: list[tuple[Any, ...]] = []
        self.ours = 0  # tasks that were sent by the dispatcher and wait
        self.ahead = 0.0  # the seconds that they take


_NOTHING = _OnWorker()


def load(ws: WorkerState) -> int:
    """Return the number of tasks on a worker, except seceded and `blocked` ones."""
    there = len(ws.processing) - len(ws.long_running)
    return there - blocked(ws) if ws.used_resources else there


def blocked(ws: WorkerState) -> int:
    """Return the number of tasks on a worker that wait there for a resource.

    Resources have any unit, such as bytes: the tasks that need one are taken to need equal amounts.
    """
    most = 0.0
    for resource, used in ws.used_resources.items():
        over = used - ws.resources.get(resource, 0)
        if over > 0:
            need = sum(resource in (ts.resource_restrictions or ()) for ts in ws.processing)
            most = max(most, over / used * need)
    return math.ceil(most - 1e-6)


def has_thread(ws: WorkerState) -> bool:
    """Return whether a worker has fewer tasks than threads."""
    return load(ws) < ws.nthreads


class SentTasks:
    """Tasks of jobs on all workers.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    ahead : float
        Seconds before the expected end of a task at which its worker is sent another one.
    """

    def __init__(self, scheduler: Scheduler, ahead: float) -> None:
        self.scheduler = scheduler
        self.ahead = ahead
        self._on: dict[str, _OnWorker] = {}
        self._where: dict[TaskState, str] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, ts: TaskState) -> bool:
        return ts in self._where

    def on(self, address: str) -> Collection[Sent]:
        """Return the tasks of jobs on a worker."""
        return self._on.get(address, _NOTHING).tasks.values()

    def put(self, ts: TaskState, ws: WorkerState, sent: Sent) -> None:
        """Record that a task went to a worker."""
        on = self._on.get(ws.address)
        if on is None:
            on = self._on[ws.address] = _OnWorker()
        on.tasks[ts] = sent
        self._where[ts] = sent.worker = ws.address
        sent.start = monotonic() if load(ws) <= ws.nthreads else None
        if sent.start is None:
            self._count += 1
            heapq.heappush(on.queue, (sent.order, self._count, sent))
            if sent.ours:
                on.ours += 1
                on.ahead += sent.expected

    def take(self, ts: TaskState) -> tuple[Sent, str] | None:
        """Remove a task that left its worker or gave up its thread. Returns also the address."""
        address = self._where.pop(ts, None)
        if address is None:
            return None
        on = self._on[address]
        sent = on.tasks.pop(ts)
        self._starts(on, sent)
        if not on.tasks:
            del self._on[address]
        return sent, address

    def thread_freed(self, address: str) -> Sent | None:
        """Record that a thread is free. Returns the task that starts there, if any."""
        on, ws = self._on.get(address), self.scheduler.workers.get(address)
        while on is not None and on.queue and ws is not None:
            sent: Sent = heapq.heappop(on.queue)[2]
            if sent.start is None and sent.worker == address:
                self._starts(on, sent)
                return sent
        return None

    def _starts(self, on: _OnWorker, sent: Sent) -> None:
        """Record that a task no longer waits, if it did."""
        if sent.start is None:
            sent.start = monotonic()
            if sent.ours:
                on.ours -= 1
                on.ahead = on.ahead - sent.expected if on.ours else 0.0

    def waiting(self, address: str) -> int:
        """Return the number of tasks that the dispatcher sent and that wait on a worker."""
        return self._on.get(address, _NOTHING).ours

    def free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        if has_thread(ws):
            return 0.0
        now = monotonic()
        on = self._on.get(ws.address, _NOTHING)
        started = [s.left(now) for s in on.tasks.values() if s.start is not None]
        if len(started) < ws.nthreads:  # others compute there as well
            started += [math.inf] * (ws.nthreads - len(started))
        heapq.heapify(started)
        for sent in on.tasks.values():
            if sent.start is None and sent.ours:
                heapq.heapreplace(started, started[0] + sent.expected)
        return started[0]

    def next_end(self, ws: WorkerState) -> float:
        """Return the expected seconds until a worker has a free thread, ignoring waiting tasks."""
        if has_thread(ws):
            return 0.0
        now = monotonic()
        left = min((s.left(now) for s in self.on(ws.address) if s.start is not None), default=math.inf)
        return left if math.isfinite(left) else ws.occupancy / ws.nthreads

    def resource_free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task that needs a resource ends on a worker; inf if unknown.

        It is 0 on a worker where no such task computes.
        """
        now, tasks = monotonic(), self._on.get(ws.address, _NOTHING).tasks
        left = [
            s.left(now) for ts, s in tasks.items() if ts.resource_restrictions and s.start is not None
        ]
        return min(left, default=math.inf if any(ws.used_resources.values()) else 0.0)

    def has_slot(self, ws: WorkerState) -> bool:
        """Return whether a worker may be sent a task: a thread is, or is about to be, free.

        At most one task per thread waits on a worker, or some trivial ones. A worker whose backlog
        Dask has sent takes one task, which overtakes it.
        """
        over = load(ws) - ws.nthreads
        if over < 0:
            return True
        on = self._on.get(ws.address, _NOTHING)
        if over > on.ours:
            return not on.ours
        if on.ours >= ws.nthreads:
            trivial = on.ahead < 2 * TRIVIAL * ws.nthreads and on.ours < MOST_AHEAD * ws.nthreads
            if not trivial:
                return False
        return self.free_in(ws) < self.ahead

    def is_low(self, ws: WorkerState) -> bool:
        """Return whether at most half of the trivial tasks that may be sent ahead wait there."""
        return 2 * self.waiting(ws.address) <= MOST_AHEAD * ws.nthreads

    def check(self) -> None:
        """Raise `AssertionError` unless the records agree with each other and with the pools."""
        there = {ts: address for address, on in self._on.items() for ts in on.tasks}
        assert there == self._where, "workers and tasks disagree"
        for on in self._on.values():
            waits = [s for s in on.tasks.values() if s.start is None and s.ours]
            assert len(waits) == on.ours, "tasks that wait are miscounted"
            assert all(s.pool.running.get(ts) is s for ts, s in on.tasks.items())
