"""Pool of a job: its tasks, its ready tasks in Dask's order, and its grant."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.dispatch.durations import Durations, Like
from dask_slaq.scheduler.dispatch.group import Group

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState


class Binding(NamedTuple):
    """Record of a task sent to a worker, with the reason."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed" (not sent through a slot)


class Choice(NamedTuple):
    """Choice of a task for a slot of a worker."""

    pool: Pool
    entry: Entry
    ws: WorkerState
    reason: str  # see `Binding`
    rank: float  # order on the worker, lowest first; see `TaskControl.bind`


class Entry(NamedTuple):
    """Ready task in a pool. Entries sort in Dask's order."""

    priority: tuple[Any, ...]
    count: int
    ts: TaskState
    kind: Kind
    homes: tuple[str, ...]  # workers where it runs without moving much data; empty if any will do
    near: tuple[str, ...]  # workers that have its inputs, if any will do
    moving: float  # seconds to move its inputs to another worker
    expected: float  # compute time, seconds
    like: Like  # compute times of similar tasks
    rootish: bool  # whether Dask would queue it


class Kind(NamedTuple):
    """Requirements of a task on its worker."""

    allowed: frozenset[str] | None  # addresses, from the user's ``workers=``
    resources: tuple[tuple[str, float], ...] | None

    def allows(self, ws: WorkerState) -> bool:
        """Return whether the task may ever run on a worker."""
        if self.allowed is not None and ws.address not in self.allowed:
            return False
        return all(ws.resources.get(r, 0) >= n for r, n in self.resources or ())

    def suits(self, ws: WorkerState) -> bool:
        """Return whether the task may run on a worker now: enough of each resource is free."""
        return self.allows(ws) and all(
            ws.resources[r] - ws.used_resources.get(r, 0) >= n for r, n in self.resources or ()
        )


ANY = Kind(None, None)

_Place = tuple[tuple[Any, ...], int]  # priority and count of an entry


class Ready:
    """Ready tasks of one kind, by home and in Dask's order.

    A task with several homes is listed at each of them. The heaps drop a task that is no longer
    ready when it comes to the top. They do not refer to the task itself: Dask's queue mistakes a
    forgotten task that is still referenced for a new task of the same key.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # by count
        self._anywhere: list[_Place] = []
        self._at: dict[str, list[_Place]] = {}
        self._near: dict[str, list[_Place]] = {}
        self.seconds_at: dict[str, float] = {}  # expected compute time of the tasks at each home
        self.count_at: Counter[str] = Counter()  # tasks at each home; "" for those without a home

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        place = entry.priority, entry.count
        self._entries[entry.count] = entry
        if not entry.homes:
            self.count_at[""] += 1
            heapq.heappush(self._anywhere, place)
        for address in entry.near:
            heapq.heappush(self._near.setdefault(address, []), place)
        for home in entry.homes:
            self.count_at[home] += 1
            heapq.heappush(self._at.setdefault(home, []), place)
            part = entry.expected / len(entry.homes)
            self.seconds_at[home] = self.seconds_at.get(home, 0.0) + part

    def left(self, entry: Entry) -> None:
        """Remove a task that is no longer ready."""
        self._entries.pop(entry.count, None)
        if not entry.homes:
            self.count_at[""] -= 1
        for home in entry.homes:
            self.count_at[home] -= 1
            left = self.seconds_at.get(home, 0.0) - entry.expected / len(entry.homes)
            self.seconds_at[home] = max(left, 0.0)

    def has(self, entry: Entry) -> bool:
        """Return whether a task is listed. Slow; for consistency checks."""
        place = entry.priority, entry.count
        if not entry.homes:
            return place in self._anywhere
        return all(place in self._at.get(home, ()) for home in entry.homes)

    def anywhere(self) -> Entry | None:
        """Return the first task without a home, or None."""
        return self._top(self._anywhere)

    def at(self, home: str) -> Entry | None:
        """Return the first task that has its home on a worker, or None."""
        heap = self._at.get(home)
        if heap is None:
            return None
        entry = self._top(heap)
        if entry is None:
            del self._at[home]
            self.seconds_at.pop(home, None)
        return entry

    def near(self, address: str) -> Entry | None:
        """Return the first task without a home whose inputs a worker has, or None."""
        heap = self._near.get(address)
        if heap is None:
            return None
        entry = self._top(heap)
        if entry is None:
            del self._near[address]
        return entry

    @property
    def homes(self) -> Collection[str]:
        """Addresses of workers that are, or were, home to a task."""
        return self._at.keys()

    def _top(self, heap: list[_Place]) -> Entry | None:
        while heap:
            entry = self._entries.get(heap[0][1])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        return None


@dataclass(eq=False)
class Pool:
    """Tasks and grant of one job.

    Attributes
    ----------
    name, client : str
        Name of the job, and id of the client that owns it.
    reports : bool
        False for the pool of a client's unowned tasks.
    gang : bool
        Whether ready tasks must start together.
    weight : float
        Divides the core-seconds in `service`.
    tasks : dict
        All tasks of the job, with the worker restrictions that the user gave each.
    unfinished : set
        Tasks that wait for inputs, are ready, or run.
    ready : dict
        Tasks that wait for a slot.
    kinds : dict of Kind to Ready
        The ready tasks by kind, in Dask's order.
    running : dict
        Tasks that hold a slot, with the core-seconds charged in advance for each.
    passed : dict of str to set
        Tasks sent without a slot, by worker: pinned tasks, and tasks sent before holding began.
        They run on their worker unless other tasks overtake them.
    share, index, workers, granted, most
        From the job's `Grant`; `granted` holds its tokens.
    tokens : float
        Granted tokens not yet used, in core-seconds.
    floor : bool
        Whether a floor was set explicitly, in addition to the fair share.
    paused : bool
        Whether no ready task may start.
    group : Group, optional
        The jobs of the same owner, if owners are configured.
    service : float
        Core-seconds used over weight, as a start tag of fair queueing; see `FairQueueing`.
    is_new : bool
        Whether no task of the pool has been sent through a slot yet.
    left_at : float
        Time at which the job last had a ready or running task, in seconds of the monotonic clock.
    gap : float
        Running mean of the seconds without any ready or running task; infinite before the first.
    made_at : Counter of str
        Tasks without a home sent to each worker. Spreading them evenly lets later tasks find
        threads near their inputs once the job has the cluster to itself.
    bytes_at : dict of str to float
        Input bytes on each worker, decayed over time.
    """

    name: str
    client: str
    reports: bool = True
    gang: bool = False
    weight: float = 1.0
    tasks: dict[TaskState, Any] = field(default_factory=dict)
    unfinished: set[TaskState] = field(default_factory=set)
    ready: dict[TaskState, Entry] = field(default_factory=dict)
    kinds: dict[Kind, Ready] = field(default_factory=dict)
    running: dict[TaskState, float] = field(default_factory=dict)
    passed: dict[str, set[TaskState]] = field(default_factory=dict)
    share: float = 1.0
    index: float = math.inf  # a newcomer comes first until its first grant
    workers: Collection[str] = frozenset()
    granted: float = 0.0
    tokens: float = 0.0
    most: float = math.inf
    floor: bool = False
    paused: bool = False
    group: Group | None = None
    service: float = 0.0
    is_new: bool = True
    left_at: float = -math.inf
    gap: float = math.inf
    durations: Durations = field(default_factory=Durations)
    made_at: Counter[str] = field(default_factory=Counter)
    bytes_at: dict[str, float] = field(default_factory=dict)

    @property
    def demand(self) -> int:
        """Number of tasks that are ready or on workers, except seceded ones."""
        return len(self.ready) + len(self.running) + sum(map(len, self.passed.values()))

    def may_start(self) -> bool:
        """Return whether the job is not paused and its owner is below its limit."""
        return not self.paused and (self.group is None or self.group.has_room())

    def is_within_cap(self) -> bool:
        """Return whether the job runs fewer tasks than its cap."""
        return len(self.running) < self.most

    def is_behind(self) -> bool:
        """Return whether the job is below its cap and must be served before others.

        This holds if the job has tokens left, has no grant yet, or runs nothing although its share
        is at least one thread: tokens come in bursts, and it would have to wait for the next one.
        """
        first = self.tokens > 0 or self.index == math.inf or (self.share >= 1 and not self.running)
        return first and len(self.running) < self.most

    def is_below_share(self) -> bool:
        """Return whether the job has a share of a thread or more and runs fewer tasks than that."""
        return 1 <= self.share > len(self.running)

    def is_short_of_floor(self) -> bool:
        """Return whether the job is below its cap and behind on an explicit floor."""
        return self.floor and self.tokens > 0 and self.is_within_cap()

    def charge(self, seconds: float) -> None:
        """Charge the job for core-seconds used; negative to refund."""
        self.service += seconds / self.weight
        self.tokens -= seconds
        if self.group is not None:
            self.group.tokens -= seconds

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        self.ready[entry.ts] = entry
        kind = self.kinds.get(entry.kind)
        if kind is None:
            kind = self.kinds[entry.kind] = Ready()
        kind.push(entry)

    def pop(self, ts: TaskState) -> Entry | None:
        """Remove a task that is no longer ready. Returns its entry, or None if it was not ready."""
        entry = self.ready.pop(ts, None)
        if not self.ready:
            self.kinds.clear()
        elif entry is not None:
            self.kinds[entry.kind].left(entry)
        return entry

    def drop(self, ts: TaskState) -> None:
        """Remove every record of a task."""
        self.pop(ts)
        self.tasks.pop(ts, None)
        self.running.pop(ts, None)
        self.unfinished.discard(ts)
        for tasks in self.passed.values():
            tasks.discard(ts)

    def first_ready(self) -> Iterator[Entry]:
        """Yield the first task of each kind without a home, and the first at each home."""
        for ready in list(self.kinds.values()):
            if entry := ready.anywhere():
                yield entry
            for home in list(ready.homes):
                if entry := ready.at(home):
                    yield entry

    def fade(self, factor: float) -> None:
        """Decay `bytes_at` by a factor in [0, 1], dropping workers with less than one byte."""
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
