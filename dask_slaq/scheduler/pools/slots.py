"""Tasks on workers: which of them wait there, and when each of the others has started."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import FEW, Place, Sent

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState


@dataclass(slots=True, eq=False)
class _OnWorker:
    """Tasks on one worker; those that wait there, in order; and the dispatcher's among them."""

    tasks: dict[TaskState, Sent] = field(default_factory=dict)
    queue: list[tuple[Any, ...]] = field(default_factory=list)
    ours: int = 0
    seconds: float = 0.0  # that these take

    def starts(self, sent: Sent) -> None:
        """Record that a task no longer waits."""
        sent.start = monotonic()
        if sent.ours:
            self.ours -= 1
            self.seconds = self.seconds - sent.counts if self.ours else 0.0


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
    there = load(ws) if ws.used_resources else len(ws.processing) - len(ws.long_running)
    return there < ws.nthreads


class SentTasks:
    """Tasks of jobs on all workers. A worker is sent another one `ahead` seconds before an end."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead
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
        there = load(ws) if ws.used_resources else len(ws.processing) - len(ws.long_running)
        sent.start = monotonic() if there <= ws.nthreads else None
        if sent.start is None:
            self._count += 1
            # Without the task: Dask takes a forgotten one that is referenced for a new one.
            heapq.heappush(on.queue, (sent.order, self._count, sent))
            if sent.ours:
                on.ours += 1
                on.seconds += sent.counts

    def remove(self, ts: TaskState) -> Sent | None:
        """Remove a task that left its worker or gave up its thread, if it was there."""
        address = self._where.pop(ts, None)
        if address is None:
            return None
        on = self._on[address]
        sent = on.tasks.pop(ts)
        if sent.start is None:
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

    def place(self, ws: WorkerState, now: float) -> Place:
        """Return a worker as it is now, in monotonic seconds."""
        on, there = self._on.get(ws.address, _NOTHING), len(ws.processing) - len(ws.long_running)
        used = ws.used_resources
        stuck = blocked(ws) if used else 0
        return Place(
            ws.address, ws.nthreads, there - stuck, on.tasks.values(),
            now=now, ahead=self.ahead, ours=on.ours, seconds=on.seconds, blocked=stuck,
            occupancy=lambda: ws.occupancy, resources=ws.resources, used_resources=used,
        )  # fmt: skip

    def check(self) -> None:
        """Raise `AssertionError` unless the records agree with each other and with the pools."""
        there = {ts: address for address, on in self._on.items() for ts in on.tasks}
        assert there == self._where, "workers and tasks disagree"
        for on in self._on.values():
            waits = sum(s.start is None and s.ours for s in on.tasks.values())
            assert waits == on.ours, "tasks that wait are miscounted"
            assert all(s.pool.running.get(ts) is s for ts, s in on.tasks.items())
