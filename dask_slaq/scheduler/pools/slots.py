"""Tasks on workers: which of them wait there, and when each of the others has started."""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import monotonic

from distributed.scheduler import WorkerState

from dask_slaq.core.dispatch import Handover, Slots


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
    """Tasks of jobs on all workers, each of which is sent one `prefetch` seconds before an end."""

    def __init__(self, prefetch: float) -> None:
        self.prefetch = prefetch
        self.by_worker: dict[str, Slots] = {}
        # Threads on each worker that tasks there will take by themselves, by search; 0 where that
        # is when the next one is free.
        self.promises: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return sum(len(slots.tasks) for slots in self.by_worker.values())

    def has(self, task: Handover) -> bool:
        """Return whether a task is recorded on the worker that it was sent to."""
        return self.by_worker[task.worker].tasks.get(task.ts) is task

    def on(self, ws: WorkerState) -> Slots:
        """Return the slots of a worker, which is looked at now."""
        slots = self.by_worker.get(ws.address)
        if slots is None:
            slots = self.by_worker[ws.address] = Slots(ws.address)
        slots.nthreads = ws.nthreads
        slots.resources, slots.used_resources = ws.resources, ws.used_resources
        slots.blocked = blocked(ws) if ws.used_resources else 0
        slots.load = len(ws.processing) - len(ws.long_running) - slots.blocked
        if self.promises or slots.taken:
            slots.taken.clear()
            for name, promised in self.promises.items():
                if (threads := promised.get(ws.address)) is not None:
                    slots.load += threads
                    slots.taken.append(name)
        return slots

    def busy(self) -> Iterable[Slots]:
        """Return the slots of workers with tasks."""
        return (slots for slots in self.by_worker.values() if slots.tasks)

    def forget(self, address: str) -> None:
        """Forget a worker that left."""
        slots = self.by_worker.get(address)
        if slots is not None and not slots.tasks:
            del self.by_worker[address]

    def put(self, task: Handover, ws: WorkerState) -> None:
        """Record that a task went to a worker."""
        self.on(ws).put(task, monotonic())

    def check(self) -> None:
        """Raise `AssertionError` unless the records agree with each other and with the pools."""
        for address, slots in self.by_worker.items():
            waits = {task for task in slots.tasks.values() if task.start is None}
            assert waits == set(slots.waits.values()), "tasks that wait"
            assert sum(task.ours for task in waits) == slots.ours, "tasks that wait are miscounted"
            for ts, task in slots.tasks.items():
                assert task.pool.running.get(ts) is task and task.worker == address, ts
