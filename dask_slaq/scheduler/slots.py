"""What each worker was sent, and when it will be free for more.

A worker has a slot while it has fewer tasks than threads, or will have one so soon that a round
trip would leave it idle. The numbers of tasks are Dask's own; here only what was sent through a
slot is kept, with the time at which it should have started.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.scheduler.pool import Entry, Pool

#: Tasks a thread that a worker may be sent ahead at most.
MOST_AHEAD = 8


@dataclass
class Sent:
    """A task that was sent through a slot.

    Attributes
    ----------
    pool : Pool
    rank : float
        Orders tasks on the worker; see `Custody.bind`.
    expected : float
        Seconds that it computes, infinite where that is not known.
    soonest : float
        Seconds after which it may well have ended.
    start : float or None
        When it started to compute, as far as can be told; None while it waits there.
    since : float
        When it was sent.
    fetches : bool
        Whether inputs have to come from other workers first: what is sent after it may start
        before it.
    """

    entry: Entry
    pool: Pool
    rank: float
    expected: float
    soonest: float
    start: float | None
    since: float
    fetches: bool

    def left(self, now: float) -> float:
        """Seconds that it may compute yet. One that is overdue will take as long again as it is."""
        if self.start is None:
            return self.expected
        elapsed = now - self.start
        if elapsed < self.expected:
            return max(self.soonest - elapsed, 0.0)
        return elapsed - self.expected


class Slots:
    """Slots of all workers.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    ahead : float
        Seconds before a thread is expected to be free at which it is sent another task.
    """

    def __init__(self, scheduler: Scheduler, ahead: float) -> None:
        self.scheduler = scheduler
        self.ahead = ahead
        self._on: dict[str, dict[TaskState, Sent]] = {}
        self._where: dict[TaskState, str] = {}
        # Workers that have, or had, more tasks than threads.
        self._crowded: set[WorkerState] = set()

    def __len__(self) -> int:
        """How many tasks are on workers."""
        return len(self._where)

    def __contains__(self, ts: TaskState) -> bool:
        return ts in self._where

    def inherit(self, pool: Pool, heir: Pool) -> None:
        """Count what was sent for one pool for another."""
        for ts in pool.running:
            address = self._where.get(ts)
            if address is not None:
                self._on[address][ts].pool = heir

    def sent(
        self,
        ts: TaskState,
        ws: WorkerState,
        pool: Pool,
        entry: Entry,
        expected: float,
        rank: float,
    ) -> None:
        """Note a task that was sent to a worker."""
        known = pool.durations.known(ts)
        expected = math.inf if known is None else expected
        soonest = pool.durations.soonest(ts)
        now = monotonic()
        start = now if load(ws) <= ws.nthreads else None
        soonest = math.inf if soonest is None else soonest
        fetches = any(ws not in dep.who_has for dep in ts.dependencies)
        sent = Sent(entry, pool, rank, expected, soonest, start, now, fetches)
        self._on.setdefault(ws.address, {})[ts] = sent
        self._where[ts] = ws.address

    def ended(self, ts: TaskState) -> None:
        """Note that a worker no longer has a task, or that it holds no slot any more."""
        address = self._where.pop(ts, None)
        if address is not None:
            self._on[address].pop(ts, None)
            if not self._on[address]:
                del self._on[address]

    def relocated(self, ts: TaskState, ws: WorkerState) -> None:
        """Note that a task was moved to another worker before it started."""
        sent = self._on[self._where[ts]][ts]
        self.ended(ts)
        sent.start = monotonic() if load(ws) <= ws.nthreads else None
        self._on.setdefault(ws.address, {})[ts] = sent
        self._where[ts] = ws.address

    def stuck(self, longer: float) -> list[tuple[TaskState, Sent]]:
        """Return the tasks that have waited on a worker for more than `longer` seconds."""
        before = monotonic() - longer
        return [
            (ts, sent)
            for on in self._on.values()
            for ts, sent in on.items()
            if sent.start is None and sent.since <= before
        ]

    @property
    def any_wait(self) -> bool:
        """Whether tasks wait on workers."""
        return any(sent.start is None for on in self._on.values() for sent in on.values())

    def any_as_long_as(self, seconds: float) -> bool:
        """Whether of the tasks on workers any takes so long, as far as known."""
        return any(s.expected >= seconds for on in self._on.values() for s in on.values())

    def thread_freed(self, address: str) -> None:
        """Note that a thread of a worker takes the next task."""
        ws = self.scheduler.workers.get(address)
        first = min(self.waiting(address), key=lambda sent: sent.rank, default=None)
        if first is None or ws is None:
            return
        started = sum(1 for sent in self._on[address].values() if sent.start is not None)
        if started < ws.nthreads:
            first.start = monotonic()

    def waiting(self, address: str) -> Iterator[Sent]:
        """What was sent to a worker through slots and waits there."""
        return (sent for sent in self._on.get(address, {}).values() if sent.start is None)

    def waiting_tasks(self, address: str, pool: Pool) -> Iterator[tuple[TaskState, Sent]]:
        """Tasks of a pool that wait on a worker."""
        for ts, sent in self._on.get(address, {}).items():
            if sent.start is None and sent.pool is pool:
                yield ts, sent

    def free_in(self, ws: WorkerState) -> float:
        """Seconds until a task that is sent now would start, infinite where that is not known."""
        threads = ws.nthreads
        if load(ws) < threads:
            return 0.0
        now = monotonic()
        sent = self._on.get(ws.address, {}).values()
        started = (s for s in sent if s.start is not None)
        left = sorted(math.inf if s.fetches else s.left(now) for s in started)[:threads]
        left += [math.inf] * (threads - len(left))
        for waits in sorted((s for s in sent if s.start is None), key=lambda s: s.rank):
            heapq.heapreplace(left, left[0] + waits.expected)
        return left[0]

    def next_end(self, ws: WorkerState) -> float:
        """Seconds until a worker is expected to have a free thread, what waits there aside."""
        if load(ws) < ws.nthreads:
            return 0.0
        now = monotonic()
        sent = self._on.get(ws.address, {}).values()
        left = min((s.left(now) for s in sent if s.start is not None), default=math.inf)
        return left if math.isfinite(left) else ws.occupancy / ws.nthreads

    def all_end_in(self, pool: Pool) -> float:
        """Seconds until all tasks of a pool on workers are expected to have ended."""
        now = monotonic()
        sent = (self._on[self._where[ts]][ts] for ts in pool.running if ts in self._where)
        return max((s.left(now) for s in sent), default=0.0)

    def sent_any(self, workers: Iterable[WorkerState]) -> None:
        """Note that workers were sent tasks, through slots or not."""
        self._crowded.update(ws for ws in workers if len(ws.processing) > ws.nthreads)

    def queueing(self) -> set[WorkerState]:
        """Return the running workers on which tasks wait."""
        self._crowded = {ws for ws in self._crowded if len(ws.processing) > ws.nthreads}
        return {ws for ws in self._crowded & self.scheduler.running if load(ws) > ws.nthreads}

    def may_have(self, ws: WorkerState) -> int:
        """How many more tasks a worker may be sent: beyond its threads only if one is about to be
        free."""
        if ws not in self.scheduler.running:
            return 0
        free = ws.nthreads - load(ws)
        if free > 0:
            return free
        if self.backlog(ws) > 0:
            # It has tasks that were not sent through slots, and would go on with those.
            return 0 if any(self.waiting(ws.address)) else 1
        if self.free_in(ws) >= self.ahead:
            return 0
        return max(MOST_AHEAD * ws.nthreads - sum(1 for _ in self.waiting(ws.address)), 0)

    def backlog(self, ws: WorkerState) -> int:
        """Tasks that wait on a worker without having been sent through a slot."""
        waiting = sum(1 for _ in self.waiting(ws.address))
        return load(ws) - ws.nthreads - waiting

    def may_have_rootish(self, ws: WorkerState) -> bool:
        """Whether a worker may be sent a task of a kind that Dask would queue: no more of these
        are sent ahead than Dask sends, by its ``worker-saturation``."""
        if load(ws) < ws.nthreads:
            return True
        saturation = self.scheduler.WORKER_SATURATION
        if math.isinf(saturation):
            return True
        waiting = sum(1 for _ in self.waiting(ws.address))
        return waiting < math.ceil(saturation * ws.nthreads) - ws.nthreads

    def check(self, pools: Mapping[str, Pool]) -> None:
        """Raise `AssertionError` unless what was sent agrees with itself and with the pools."""
        there = {ts: address for address, on in self._on.items() for ts in on}
        assert there == self._where, "workers and tasks disagree"
        for on in self._on.values():
            assert on, "a worker without tasks"
            for ts, sent in on.items():
                assert pools.get(sent.pool.name) is sent.pool, f"{ts} is of a closed pool"
                assert ts in sent.pool.running, f"{ts} does not run, but has a slot"


def load(ws: WorkerState) -> int:
    """Tasks on a worker that compute or could: no seceded ones, and none that wait for a
    resource."""
    return len(ws.processing) - len(ws.long_running) - blocked(ws)


def blocked(ws: WorkerState) -> int:
    """Tasks on a worker that wait there for a resource."""
    if not ws.used_resources:
        return 0
    over = max(used - ws.resources.get(r, 0) for r, used in ws.used_resources.items())
    return math.ceil(over) if over > 0 else 0


def has_thread(ws: WorkerState) -> bool:
    """Whether a worker has fewer tasks than threads."""
    return load(ws) < ws.nthreads
