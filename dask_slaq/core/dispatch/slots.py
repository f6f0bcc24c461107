"""Workers as the queue sees them: the tasks there, and when another one may be sent."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch.constants import BETWEEN_MESSAGES, ROUND_TRIP
from dask_slaq.core.dispatch.ready import FEW

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender
    from dask_slaq.core.dispatch.ready import Like


@dataclass(slots=True, eq=False)
class Sent:
    """Task on a worker."""

    pool: Contender
    like: Like
    ours: bool  # whether the dispatcher sent it, and not Dask
    why: str
    order: tuple[Any, ...]  # on the worker, lowest first
    tag: float  # service of its job when it was sent
    expected: float  # compute time in seconds when it was sent; infinite if unknown
    soonest: float  # compute time after which it may plausibly have ended
    needs: tuple[tuple[str, float], ...] = ()  # resources
    threads: float = 1.0
    ahead: float = 0.0  # core-seconds charged to its job so far
    start: float | None = None  # estimated, monotonic seconds; None while it waits on the worker
    worker: str = ""
    lends: bool = False  # whether it waits for tasks that it has submitted
    moved: str = ""  # worker of which its job was granted a thread for it, outside the planned set
    entitled: bool = False  # whether it takes tokens of the share of its job

    def seconds_left(self, now: float) -> float:
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
    tasks: dict[Any, Sent] = field(default_factory=dict)
    queue: list[tuple[Any, ...]] = field(default_factory=list)  # those that wait, in their order
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

    def put(self, ts: Any, sent: Sent, count: int, now: float) -> None:
        """Add a task. It waits if all threads are taken; `load` counts it already."""
        self.tasks[ts] = sent
        sent.worker = self.address
        sent.start = now if self.load <= self.nthreads else None
        if sent.start is None:
            # Without the task: Dask takes a forgotten one that is referenced for a new one.
            heapq.heappush(self.queue, (sent.order, count, sent))
            if sent.ours:
                self.ours += 1

    def remove(self, ts: Any, now: float) -> Sent:
        """Remove a task that left its worker or gave up its thread."""
        sent = self.tasks.pop(ts)
        if sent.start is None:
            sent.start = now
            if sent.ours:
                self.ours -= 1
        if len(self.queue) > 2 * len(self.tasks) + FEW:  # most were stolen, or cancelled
            self.queue = [each for each in self.queue if each[2].start is None]
            heapq.heapify(self.queue)
        return sent

    def thread_freed(self, now: float) -> Sent | None:
        """Record that a thread is free. Returns the task that starts there, if any."""
        while self.queue:
            sent: Sent = heapq.heappop(self.queue)[2]
            if sent.start is None and sent.worker == self.address:
                sent.start = now
                if sent.ours:
                    self.ours -= 1
                return sent
        return None

    def next_end(self, now: float) -> float:
        """Return the seconds until one of the tasks that compute ends; infinite if unknown."""
        first = math.inf
        for sent in self.tasks.values():
            if sent.start is not None and (left := sent.seconds_left(now)) < first:
                first = left
        return first

    def free_in(self, now: float) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        if self.has_thread:
            return 0.0
        ends = [sent.seconds_left(now) for sent in self.tasks.values() if sent.start is not None]
        ends += [math.inf] * (self.nthreads - len(ends))  # others compute there as well
        heapq.heapify(ends)
        for sent in self.tasks.values() if self.ours else ():
            if sent.start is None and sent.ours:
                heapq.heapreplace(ends, ends[0] + sent.expected)
        return ends[0]

    def resource_free_in(self, now: float) -> float:
        """Return the seconds until a task that needs a resource ends; infinite if unknown."""
        using = (each for each in self.tasks.values() if each.needs and each.start is not None)
        return min((each.seconds_left(now) for each in using), default=math.inf)

    def opens_in(self, now: float, ahead: float) -> float:
        """Return the seconds until it may be sent a task: one that starts within `ahead`.

        One task per thread waits there, or short ones until they take `ROUND_TRIP` in total, at
        most eight: else a thread would idle until the next one comes. One may overtake a backlog
        that Dask has sent.
        """
        over, threads = self.load - self.nthreads, self.nthreads
        if over < 0 or over > self.ours:
            return 0.0 if over < 0 or not self.ours else math.inf
        end, seconds, least = math.inf, 0.0, max(min(ahead, ROUND_TRIP), BETWEEN_MESSAGES)
        for sent in self.tasks.values():
            if sent.start is None:
                seconds += max(sent.expected, least / 8) if sent.ours else 0.0
            elif (left := sent.seconds_left(now)) < end:
                end = left
        if self.ours >= threads and seconds >= least * threads:
            return math.inf  # no thread idles until the worker reports the next end
        return max(end + seconds / threads - ahead, 0.0)
