"""Slots of workers: the tasks sent to each worker, and when it will have a free thread.

A worker has a slot while it has fewer tasks than threads, or when a thread will be free so soon
that a round trip would leave it idle. Task counts are read from Dask. Only tasks sent through a
slot are recorded here, with their estimated start times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.ready import ANY
from dask_slaq.scheduler.dispatch.sent_tasks import OpenWorker, SentTask, load
from dask_slaq.scheduler.dispatch.transfers import Transfers

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.scheduler.dispatch.pool import Pool
    from dask_slaq.scheduler.dispatch.ready import Entry

#: Maximum number of tasks per thread that a worker is sent ahead.
MOST_AHEAD = 8
#: Minimum difference of two ranks, in seconds. Ranks of tasks that overtake are near -1e9.
RANKS_APART = 1e-6


class _On:
    """Tasks sent to one worker through slots, and the number of them that wait there."""

    __slots__ = ("sent", "waits")

    def __init__(self) -> None:
        self.sent: dict[TaskState, SentTask] = {}
        self.waits = 0

    def waiting(self) -> Iterator[SentTask]:
        return (sent for sent in self.sent.values() if sent.start is None)


_NOTHING = _On()


class Slots:
    """Slots of all workers.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    ahead : float
        Seconds before the expected end of a task at which its worker is sent another one.

    Attributes
    ----------
    changed : set of str
        Addresses of the workers whose tasks have changed; see `CrowdedWorkers`, which empties it.
    transfers : Transfers
    """

    def __init__(self, scheduler: Scheduler, ahead: float) -> None:
        self.scheduler = scheduler
        self.ahead = ahead
        self._on: dict[str, _On] = {}
        self._where: dict[TaskState, str] = {}
        self._rank = -math.inf
        self.changed: set[str] = set()
        self.transfers = Transfers(scheduler)

    def __len__(self) -> int:
        """Return the number of recorded tasks on workers."""
        return len(self._where)

    def __contains__(self, ts: TaskState) -> bool:
        return ts in self._where

    def get(self, ts: TaskState) -> SentTask | None:
        """Return the record of a task on a worker, or None."""
        address = self._where.get(ts)
        return None if address is None else self._on[address].sent[ts]

    def next_rank(self) -> float:
        """Return the time as a rank, higher than all before it, so that no two tasks are equal."""
        self._rank = max(monotonic(), self._rank + RANKS_APART)
        return self._rank

    def inherit(self, pool: Pool, heir: Pool) -> None:
        """Transfer the recorded tasks of `pool` to `heir`."""
        for ts in pool.running:
            address = self._where.get(ts)
            if address is not None:
                self._on[address].sent[ts].pool = heir

    def sent(self, ts: TaskState, ws: WorkerState, pool: Pool, entry: Entry, rank: float) -> None:
        """Record that the task `ts` was sent to the worker `ws`; `SentTask` documents the rest."""
        known, now = entry.like, monotonic()
        start = now if load(ws) <= ws.nthreads else None
        fetches = any(ws not in (dep.who_has or ()) for dep in ts.dependencies)
        if fetches:
            self.transfers.sent(ts, ws)
        sent = SentTask(entry, pool, rank, known.typical, known.soonest, start, now, fetches)
        self._put(ts, ws, sent)

    def _put(self, ts: TaskState, ws: WorkerState, sent: SentTask) -> None:
        on = self._on.get(ws.address)
        if on is None:
            on = self._on[ws.address] = _On()
        on.sent[ts] = sent
        on.waits += sent.start is None
        self._where[ts] = ws.address
        self.changed.add(ws.address)

    def ended(self, ts: TaskState) -> None:
        """Remove a task that left its worker or gave up its slot."""
        address = self._where.pop(ts, None)
        if address is not None:
            self.changed.add(address)
            on = self._on[address]
            sent = on.sent.pop(ts)
            on.waits -= sent.start is None
            if sent.fetches:
                self.transfers.ended(ts, address)
            if not on.sent:
                del self._on[address]

    def relocated(self, ts: TaskState, ws: WorkerState) -> None:
        """Record that the task `ts` was moved to the worker `ws` before it started."""
        sent = self._on[self._where[ts]].sent[ts]
        self.ended(ts)
        sent.start = monotonic() if load(ws) <= ws.nthreads else None
        self._put(ts, ws, sent)

    def stuck(self, longer: float) -> list[tuple[TaskState, SentTask]]:
        """Return the tasks that have waited on a worker for at least `longer` seconds."""
        before = monotonic() - longer
        return [
            (ts, sent)
            for on in self._on.values()
            if on.waits
            for ts, sent in on.sent.items()
            if sent.start is None and sent.since <= before
        ]

    @property
    def any_wait(self) -> bool:
        """Whether tasks wait on workers."""
        return any(on.waits for on in self._on.values())

    def any_as_long_as(self, seconds: float) -> bool:
        """Return whether any recorded task takes, or is expected to take, at least `seconds`."""
        before = monotonic() - seconds
        return any(
            s.expected >= seconds or (s.start is not None and s.start <= before)
            for on in self._on.values()
            for s in on.sent.values()
        )

    def thread_freed(self, address: str) -> None:
        """Record that a thread of a worker starts its next task, if one waits."""
        self.changed.add(address)
        ws, on = self.scheduler.workers.get(address), self._on.get(address, _NOTHING)
        if on.waits and ws is not None and len(on.sent) - on.waits < ws.nthreads:
            first = min(on.waiting(), key=lambda sent: sent.rank)
            first.start = monotonic()
            on.waits -= 1

    def waiting(self, address: str) -> int:
        """Return the number of tasks sent to a worker through slots that wait there."""
        return self._on.get(address, _NOTHING).waits

    def sent_first(self, address: str) -> int:
        """Return the number of `waiting` tasks sent to overtake others: their rank is negative."""
        return sum(1 for sent in self._on.get(address, _NOTHING).waiting() if sent.rank < 0)

    def all_waiting(self, address: str) -> Iterator[SentTask]:
        """Yield the records of the tasks that wait on a worker."""
        return self._on.get(address, _NOTHING).waiting()

    def waiting_tasks(self, address: str, pool: Pool) -> Iterator[tuple[TaskState, SentTask]]:
        """Yield the tasks of `pool` that wait on the worker at `address`, with their records."""
        on = self._on.get(address, _NOTHING)
        for ts, sent in on.sent.items() if on.waits else ():
            if sent.start is None and sent.pool is pool:
                yield ts, sent

    def free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        threads = ws.nthreads
        if load(ws) < threads:
            return 0.0
        on, now = self._on.get(ws.address, _NOTHING), monotonic()
        left: list[float] = []
        waits: list[float] = []
        for sent in on.sent.values():
            if sent.start is None:
                waits.append(sent.expected)
            else:
                left.append(math.inf if sent.fetches else sent.left(now))
        left += [math.inf] * (threads - len(left))
        left.sort()
        if not waits or left[0] == math.inf:
            return left[0]
        if threads == 1:
            return left[0] + sum(waits)
        del left[threads:]
        for expected in waits:
            heapq.heapreplace(left, left[0] + expected)
        return left[0]

    def next_end(self, ws: WorkerState) -> float:
        """Return the expected seconds until a worker has a free thread, ignoring waiting tasks."""
        if load(ws) < ws.nthreads:
            return 0.0
        now = monotonic()
        sent = self._on.get(ws.address, _NOTHING).sent.values()
        left = min((s.left(now) for s in sent if s.start is not None), default=math.inf)
        return left if math.isfinite(left) else ws.occupancy / ws.nthreads

    def resource_free_in(self, ws: WorkerState) -> float:
        """Return the seconds until a task that needs a resource ends on a worker; inf if unknown.

        It is 0 on a worker where no such task computes.
        """
        now = monotonic()
        sent = self._on.get(ws.address, _NOTHING).sent.values()
        left = [s.left(now) for s in sent if s.entry.kind.resources and s.start is not None]
        return min(left, default=math.inf if any(ws.used_resources.values()) else 0.0)

    def all_end_in(self, pool: Pool) -> float:
        """Return the expected seconds until all tasks of a pool on workers have ended."""
        now, latest = monotonic(), 0.0
        for ts in pool.running:
            if (address := self._where.get(ts)) is None:
                continue
            sent, ws = self._on[address].sent[ts], self.scheduler.workers.get(address)
            waits = self.next_end(ws) if sent.start is None and ws is not None else 0.0
            latest = max(latest, waits + sent.left(now))
        return latest

    def restricted(self, pool: Pool) -> int:
        """Return the number of tasks of a pool on workers that need certain ones or a resource."""
        return sum(1 for sent in self._of(pool) if sent.entry.kind is not ANY)

    def ends_within(self, pool: Pool, seconds: float) -> int:
        """Return the number of running tasks of a pool that are expected to end that soon."""
        now = monotonic()
        return sum(
            1 for sent in self._of(pool) if sent.start is not None and sent.left(now) <= seconds
        )

    def _of(self, pool: Pool) -> Iterator[SentTask]:
        return (self._on[self._where[ts]].sent[ts] for ts in pool.running if ts in self._where)

    def open_worker(self, ws: WorkerState) -> OpenWorker | None:
        """Return the record of a worker with a free or soon free thread, else None."""
        if ws not in self.scheduler.running:
            return None
        threads, waiting = ws.nthreads, self.waiting(ws.address)
        over = load(ws) - threads
        if over < 0:
            return OpenWorker(ws, True, 0.0, True)
        saturation = self.scheduler.WORKER_SATURATION
        rootish = math.isinf(saturation) or waiting < math.ceil(saturation * threads) - threads
        if over > waiting:
            # It would continue with tasks that were not sent through slots.
            return None if waiting else OpenWorker(ws, False, math.inf, rootish)
        free_in = self.free_in(ws)
        if free_in >= self.ahead or waiting >= MOST_AHEAD * threads:
            return None
        return OpenWorker(ws, False, free_in, rootish)

    def is_low(self, ws: WorkerState) -> bool:
        """Return whether at most half of the tasks that may be sent ahead wait on a worker.

        More are sent only then, rather than after every task that ends.
        """
        return 2 * self.waiting(ws.address) <= MOST_AHEAD * ws.nthreads

    def check(self, pools: Mapping[str, Pool]) -> None:
        """Raise `AssertionError` unless the records agree with each other and with the pools."""
        there = {ts: address for address, on in self._on.items() for ts in on.sent}
        assert there == self._where, "workers and tasks disagree"
        for on in self._on.values():
            assert on.sent, "a worker without tasks"
            assert on.waits == sum(1 for _ in on.waiting()), "tasks that wait are miscounted"
            for ts, sent in on.sent.items():
                assert pools.get(sent.pool.name) is sent.pool, f"{ts} is of a closed pool"
                assert ts in sent.pool.running, f"{ts} does not run, but has a slot"
