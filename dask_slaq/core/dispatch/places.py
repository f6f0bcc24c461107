"""Workers as a dispatch sees them: the tasks there, and when one of them has a slot."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch.constants import BETWEEN_MESSAGES

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender, Group
    from dask_slaq.core.dispatch.like import Like
    from dask_slaq.core.dispatch.ready import Entry


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

    @property
    def counts(self) -> float:
        """Seconds that it counts while it waits on a worker: at most eight are sent."""
        return max(self.expected, BETWEEN_MESSAGES / 8)


class Place:
    """Worker at one moment, `now` in monotonic seconds, and what was chosen for it since.

    `load` is the number of tasks there that hold, or wait for, one of its `threads`; `blocked` that
    of tasks that wait for a resource; `ours` that of tasks that the dispatcher sent and that wait
    for a thread, which take `seconds`. A worker is sent a task `ahead` seconds before another ends.
    `occupancy` returns the seconds that all tasks there take.
    """

    __slots__ = (
        "_free_in",
        "_next_end",
        "address",
        "ahead",
        "blocked",
        "load",
        "now",
        "nthreads",
        "occupancy",
        "ours",
        "resources",
        "seconds",
        "sent",
        "used_resources",
    )

    def __init__(
        self,
        address: str,
        nthreads: int,
        load: int,
        sent: Iterable[Sent] = (),
        *,
        now: float = 0.0,
        ahead: float = 0.025,
        ours: int = 0,
        seconds: float = 0.0,
        occupancy: Callable[[], float] = float,
        blocked: int = 0,
        resources: Mapping[str, float] | None = None,
        used_resources: Mapping[str, float] | None = None,
    ) -> None:
        self.address, self.nthreads, self.load = address, nthreads, load
        self.sent, self.now, self.ahead = list(sent), now, ahead
        self.ours, self.seconds, self.occupancy = ours, seconds, occupancy
        self.blocked = blocked
        self.resources, self.used_resources = resources or {}, used_resources or {}
        self._free_in = self._next_end = -1.0

    @property
    def has_thread(self) -> bool:
        """Whether it has fewer tasks than threads."""
        return self.load < self.nthreads

    @property
    def free(self) -> int:
        """Number of its threads that are free."""
        return max(self.nthreads - self.load, 0)

    def add(self, sent: Sent, entry: Entry) -> None:
        """Count a task that was chosen for it."""
        needs = entry.kind.resources or ()
        used = self.used_resources
        if any(used.get(r, 0) + n > self.resources.get(r, 0) for r, n in needs):
            self.blocked += 1
        else:
            self.load += 1
        if needs:
            self.used_resources = {**used, **{r: used.get(r, 0) + n for r, n in needs}}
        if self.load <= self.nthreads:
            sent.start = self.now
        else:
            self.ours += 1
            self.seconds += sent.counts
        self.sent.append(sent)
        self._free_in = self._next_end = -1.0

    def free_in(self) -> float:
        """Return the seconds until a task sent now would start; infinite if unknown."""
        if self.load < self.nthreads:
            return 0.0
        if self._free_in < 0:
            now = self.now
            ends = [sent.seconds_left(now) for sent in self.sent if sent.start is not None]
            if self.ours:
                ends += [math.inf] * (self.nthreads - len(ends))  # others compute there as well
                heapq.heapify(ends)
                for sent in self.sent:
                    if sent.start is None and sent.ours:
                        heapq.heapreplace(ends, ends[0] + sent.expected)
                self._free_in = ends[0]
            else:
                self._free_in = min(ends, default=math.inf)
        return self._free_in

    def next_end(self) -> float:
        """Return the expected seconds until it has a free thread, ignoring waiting tasks."""
        if self.load < self.nthreads:
            return 0.0
        if self._next_end < 0:
            ends = (sent.seconds_left(self.now) for sent in self.sent if sent.start is not None)
            left = min(ends, default=math.inf)
            self._next_end = left if left < math.inf else self.occupancy() / self.nthreads
        return self._next_end

    def late_in(self, seconds: float) -> float:
        """Return the seconds until all tasks that compute here are expected to take that long.

        That is, until each is late by as much; infinite if none has an expected time.
        """
        starts = ((s.start, s.expected) for s in self.sent if s.start is not None)
        ends = (start + expected for start, expected in starts if expected < math.inf)
        late = max(ends, default=math.inf) + seconds + 2 * BETWEEN_MESSAGES
        return late - self.now

    def resource_free_in(self) -> float:
        """Return the seconds until a task that needs a resource ends; infinite if unknown.

        It is 0 if no such task computes.
        """
        ends = (
            sent.seconds_left(self.now)
            for sent in self.sent
            if sent.start is not None and sent.needs
        )
        return min(ends, default=math.inf if any(self.used_resources.values()) else 0.0)

    def ends_for(self, group: Group) -> bool:
        """Return whether a task of an owner or team is about to end here, and none waits for it.

        Its tasks must have all threads: a task that waits takes the first one that is free.
        """
        theirs = self._of(group)
        computing = [sent for sent in theirs if sent.start is not None]
        waiting = len(theirs) - len(computing)
        ending = sum(sent.seconds_left(self.now) <= self.ahead for sent in computing)
        return len(computing) >= self.nthreads and ending > waiting

    def mixes(self, group: Group) -> bool:
        """Return whether tasks of an owner or team compute here, and others as well."""
        return 0 < sum(sent.start is not None for sent in self._of(group)) < self.nthreads

    def _of(self, group: Group) -> list[Sent]:
        return [s for s in self.sent if s.pool.group is not None and group in s.pool.group.line()]

    def has_slot(self) -> bool:
        """Return whether it may be sent a task: a thread is, or is about to be, free.

        At most one task per thread waits on a worker, or some trivial ones. A worker whose backlog
        Dask has sent takes one task, which overtakes it.
        """
        over = self.load - self.nthreads
        if over < 0:
            return True
        if over > self.ours:
            return not self.ours
        if self.ours >= self.nthreads and self.seconds >= BETWEEN_MESSAGES * self.nthreads:
            return False
        return self.free_in() <= self.ahead

    def has_backlog(self) -> bool:
        """Return whether tasks that Dask has sent wait here."""
        return self.load - self.nthreads > self.ours

    def is_low(self) -> bool:
        """Return whether at most half of the trivial tasks that may be sent ahead wait here."""
        enough = BETWEEN_MESSAGES * self.nthreads
        return self.ours <= self.nthreads or 2 * self.seconds <= enough

    def has_trivial(self) -> bool:
        """Return whether trivial tasks that the dispatcher sent wait here."""
        return bool(self.ours) and self.seconds < self.ours * BETWEEN_MESSAGES
