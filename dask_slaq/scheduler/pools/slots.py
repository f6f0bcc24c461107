"""Tasks on workers: when each has started and is expected to end, and which worker has a slot."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.pools.constants import BETWEEN_MESSAGES
from dask_slaq.scheduler.pools.ready import FEW

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.scheduler.pools.durations import Like
    from dask_slaq.scheduler.pools.pool import Group, Pool


@dataclass(slots=True, eq=False)
class Sent:
    """Task on a worker."""

    pool: Pool
    like: Like
    ours: bool  # whether the dispatcher sent it, and not Dask
    why: str
    order: tuple[Any, ...]  # on the worker, lowest first
    tag: float  # service of its job when it was sent
    expected: float  # compute time in seconds when it was sent; infinite if unknown
    soonest: float  # compute time after which it may plausibly have ended
    factor: float = 1.0  # of the worker, by which both are longer than on a median one
    threads: float = 1.0
    ahead: float = 0.0  # core-seconds charged to its job so far
    start: float | None = None  # estimated, monotonic seconds; None while it waits on the worker
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
        return max(elapsed - self.expected - 2 * BETWEEN_MESSAGES, 0.0)


@dataclass(slots=True, eq=False)
class _OnWorker:
    """Tasks on one worker; those that wait there, in order; and the dispatcher's among them."""

    tasks: dict[TaskState, Sent] = field(default_factory=dict)
    queue: list[tuple[Any, ...]] = field(default_factory=list)
    ours: int = 0
    seconds: float = 0.0  # that these take

    def starts(self, sent: Sent) -> None:
        """Record that a task no longer waits, if it did."""
        if sent.start is None:
            sent.start = monotonic()
            if sent.ours:
                self.ours -= 1
                self.seconds = self.seconds - _at_least(sent) if self.ours else 0.0

    def left(self) -> Iterator[tuple[TaskState, float]]:
        """Yield the tasks that compute, with the seconds until each is expected to end."""
        now = monotonic()
        return ((ts, s.left(now)) for ts, s in self.tasks.items() if s.start is not None)


_NOTHING = _OnWorker()


def _at_least(sent: Sent) -> float:
    """Return the seconds that a task counts while it waits on a worker: at most eight are sent."""
    return max(sent.expected, BETWEEN_MESSAGES / 8)


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
    """Tasks of jobs on all workers. A worker is sent another one `ahead` seconds before an end."""

    def __init__(self, scheduler: Scheduler, ahead: float) -> None:
        self.scheduler, self.ahead = scheduler, ahead
        self._on: dict[str, _OnWorker] = {}
        self._where: dict[TaskState, str] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, ts: TaskState) -> bool:
        return ts in self._where

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
            # Without the task: Dask takes a forgotten one that is referenced for a new one.
            heapq.heappush(on.queue, (sent.order, self._count, sent))
            if sent.ours:
                on.ours += 1
                on.seconds += _at_least(sent)

    def take(self, ts: TaskState) -> Sent | None:
        """Remove a task that left its worker or gave up its thread, if it was there."""
        address = self._where.pop(ts, None)
        if address is None:
            return None
        on = self._on[address]
        sent = on.tasks.pop(ts)
        on.starts(sent)
        if not on.tasks:
            del self._on[address]
        elif len(on.queue) > 2 * len(on.tasks) + FEW:  # most were stolen, or cancelled
            on.queue = [each for each in on.queue if each[2].start is None]
            heapq.heapify(on.queue)
        return sent

    def thread_freed(self, address: str) -> Sent | None:
        """Record that a thread is free. Returns the task that starts there, if any."""
        on = self._on.get(address, _NOTHING)
        while on.queue:
            sent: Sent = heapq.heappop(on.queue)[2]
            if sent.start is None and sent.worker == address:
                on.starts(sent)
                return sent
        return None

    def waiting(self, address: str) -> int:
        """Return the number of tasks that the dispatcher sent and that wait on a worker."""
        return self._on.get(address, _NOTHING).ours

    def free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        if has_thread(ws):
            return 0.0
        on, now = self._on.get(ws.address, _NOTHING), monotonic()
        ends = [sent.left(now) for sent in on.tasks.values() if sent.start is not None]
        if not on.ours:
            return min(ends, default=math.inf)
        ends += [math.inf] * (ws.nthreads - len(ends))  # others compute there as well
        heapq.heapify(ends)
        for sent in on.tasks.values():
            if sent.start is None and sent.ours:
                heapq.heapreplace(ends, ends[0] + sent.expected)
        return ends[0]

    def ends_for(self, group: Group, ws: WorkerState) -> bool:
        """Return whether a task of an owner is about to end on a worker, and none waits for it."""
        theirs = [
            s for s in self._on.get(ws.address, _NOTHING).tasks.values() if s.pool.group is group
        ]
        now, waiting = monotonic(), sum(s.start is None for s in theirs)
        ending = sum(s.start is not None and s.left(now) <= self.ahead for s in theirs)
        return ending > waiting

    def next_end(self, ws: WorkerState) -> float:
        """Return the expected seconds until a worker has a free thread, ignoring waiting tasks."""
        if has_thread(ws):
            return 0.0
        left = min((s for _, s in self._on.get(ws.address, _NOTHING).left()), default=math.inf)
        return left if math.isfinite(left) else ws.occupancy / ws.nthreads

    def resource_free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task that needs a resource ends on a worker; inf if unknown.

        It is 0 on a worker where no such task computes.
        """
        on = self._on.get(ws.address, _NOTHING)
        left = [seconds for ts, seconds in on.left() if ts.resource_restrictions]
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
        if on.ours >= ws.nthreads and on.seconds >= BETWEEN_MESSAGES * ws.nthreads:
            return False
        return self.free_in(ws) <= self.ahead

    def has_trivial(self, ws: WorkerState) -> bool:
        """Return whether trivial tasks that the dispatcher sent wait on a worker."""
        on = self._on.get(ws.address, _NOTHING)
        return bool(on.ours) and on.seconds < on.ours * BETWEEN_MESSAGES

    def is_low(self, ws: WorkerState) -> bool:
        """Return whether at most half of the trivial tasks that may be sent ahead wait there."""
        on = self._on.get(ws.address, _NOTHING)
        return on.ours <= ws.nthreads or 2 * on.seconds <= BETWEEN_MESSAGES * ws.nthreads

    def check(self) -> None:
        """Raise `AssertionError` unless the records agree with each other and with the pools."""
        there = {ts: address for address, on in self._on.items() for ts in on.tasks}
        assert there == self._where, "workers and tasks disagree"
        for on in self._on.values():
            waits = sum(s.start is None and s.ours for s in on.tasks.values())
            assert waits == on.ours, "tasks that wait are miscounted"
            assert all(s.pool.running.get(ts) is s for ts, s in on.tasks.items())
