"""Workers as the queue sees them: the tasks there, and when another one may be sent."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch.constants import (
    BRIEF_SECONDS,
    BUSY_TRIP_SECONDS,
    MESSAGE_SECONDS,
    ROUND_TRIP_SECONDS,
)
from dask_slaq.core.dispatch.ready import FEW_ENTRIES

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.job_queue import Handover


@dataclass(slots=True, eq=False)
class Slots:
    """Threads of one worker, and the tasks of jobs there. All times are monotonic seconds.

    `load` is the number of tasks, of jobs or not, that hold or wait for one of its `nthreads`, and
    `blocked` that of tasks that wait for a resource, both as of the last look. `ours` are those of
    our tasks that wait for a thread.
    """

    address: str
    nthreads: int = 1
    load: int = 0
    blocked: int = 0
    taken: list[str] = field(default_factory=list)  # jobs whose next free thread a task there takes
    resources: Mapping[str, float] = field(default_factory=dict)
    used_resources: Mapping[str, float] = field(default_factory=dict)
    tasks: dict[Any, Handover] = field(default_factory=dict)
    waits: dict[tuple[Any, ...], Handover] = field(default_factory=dict)  # those that wait
    queue: list[tuple[Any, ...]] = field(default_factory=list)  # their orders, a heap
    ours: int = 0

    @property
    def has_thread(self) -> bool:
        """Whether it has fewer tasks than threads."""
        return self.load < self.nthreads

    @property
    def free(self) -> int:
        """Number of its threads that are free."""
        return max(self.nthreads - self.load, 0)

    @property
    def has_backlog(self) -> bool:
        """Whether tasks that Dask has sent wait for a thread."""
        return self.load - self.nthreads > self.ours

    def put(self, task: Handover, now: float) -> None:
        """Add a task. It waits if all threads are taken; `load` counts it already.

        No other task has its order. The queue does not refer to tasks: Dask takes a forgotten one
        that is referenced for a new one.
        """
        self.tasks[task.ts] = task
        task.worker = self.address
        if self.load <= self.nthreads:
            task.start = now
            return
        task.start = None
        self.waits[task.order] = task
        heapq.heappush(self.queue, task.order)
        self.ours += task.key is not None

    def remove(self, task: Handover, now: float) -> None:
        """Remove a task that left its worker or gave up its thread."""
        del self.tasks[task.ts]
        if task.start is None:
            task.start = now
            del self.waits[task.order]
            self.ours -= task.key is not None
        if len(self.queue) > 2 * len(self.waits) + FEW_ENTRIES:  # most were stolen, or cancelled
            self.queue = [each for each in self.queue if each in self.waits]
            heapq.heapify(self.queue)

    def thread_freed(self, now: float) -> Handover | None:
        """Record that a thread is free. Returns the task that starts there, if any."""
        while self.queue:
            task = self.waits.pop(heapq.heappop(self.queue), None)
            if task is not None:
                task.start = now
                self.ours -= task.key is not None
                return task
        return None

    def next_end(self, now: float) -> float:
        """Return the seconds until one of the tasks that compute ends; infinite if unknown."""
        first = math.inf
        for task in self.tasks.values():
            if task.start is not None and (left := task.seconds_left(now)) < first:
                first = left
        return first

    def free_in(self, now: float) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        if self.has_thread:
            return 0.0
        ends = [task.seconds_left(now) for task in self.tasks.values() if task.start is not None]
        ends += [math.inf] * (self.nthreads - len(ends))  # others compute there as well
        heapq.heapify(ends)
        for task in self.waits.values() if self.ours else ():
            if task.ours:
                heapq.heapreplace(ends, ends[0] + task.expected)
        return ends[0]

    def resource_free_in(self, now: float) -> float:
        """Return the seconds until a task that needs a resource ends; infinite if unknown."""
        using = (each for each in self.tasks.values() if each.needs and each.start is not None)
        return min((each.seconds_left(now) for each in using), default=math.inf)

    def opens_in(self, now: float, prefetch: float) -> float:
        """Return the seconds until it may be sent a task: one that starts within `prefetch`.

        One task per thread waits there, or short ones until they take `ROUND_TRIP_SECONDS` in
        total, those below `BRIEF_SECONDS` until they take `BUSY_TRIP_SECONDS`, at most eight: else
        a thread would idle until the next one comes. One may overtake a backlog that Dask has sent.
        """
        over, threads = self.load - self.nthreads, self.nthreads
        if over < 0 or over > self.ours:
            return 0.0 if over < 0 or not self.ours else math.inf
        end = late = math.inf  # seconds left of the first, and of the first that is overdue
        seconds = longest = 0.0  # of those that wait
        for task in self.tasks.values():
            if task.start is None:
                if task.key is not None:
                    seconds += task.expected
                    longest = max(longest, task.expected)
            elif (elapsed := now - task.start) < task.expected:
                end = min(end, max(task.soonest - elapsed, 0.0))
            else:  # expected ever later: only its end tells more
                late = min(late, elapsed - task.expected - 2 * MESSAGE_SECONDS)
        trip = BUSY_TRIP_SECONDS if longest < BRIEF_SECONDS else ROUND_TRIP_SECONDS
        least = max(min(prefetch, trip), MESSAGE_SECONDS)
        if self.ours >= threads and max(seconds, self.ours * least / 8) >= least * threads:
            return math.inf  # no thread idles until the worker reports the next end
        wait = seconds / threads - prefetch
        return 0.0 if late + wait <= 0 else max(end + wait, 0.0)
