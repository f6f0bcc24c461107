"""The pool of one job: its tasks, those that are ready in Dask's order, and what it was granted."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.dispatch.durations import Durations, Like

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState


class Binding(NamedTuple):
    """One task sent to one worker, and why it might go there."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed": never held


class Choice(NamedTuple):
    """A task for a slot."""

    pool: Pool
    entry: Entry
    ws: WorkerState
    reason: str
    rank: float


class Entry(NamedTuple):
    """A ready task in a pool; sorts in Dask's order."""

    priority: tuple[Any, ...]
    count: int
    ts: TaskState
    kind: Kind
    homes: tuple[str, ...]  # workers where it runs without moving much; none if anywhere will do
    near: tuple[str, ...]  # workers that have its inputs, if anywhere will do
    moving: float  # seconds to move its inputs to another worker
    expected: float  # seconds that it computes
    like: Like  # what is known of tasks like it
    rootish: bool  # whether Dask would queue it


class Kind(NamedTuple):
    """What a task asks of a worker."""

    allowed: frozenset[str] | None  # the user's own ``workers=``
    resources: tuple[tuple[str, float], ...] | None

    def allows(self, ws: WorkerState) -> bool:
        """Whether a worker is one to which the task may go at all."""
        if self.allowed is not None and ws.address not in self.allowed:
            return False
        return all(ws.resources.get(r, 0) >= n for r, n in self.resources or ())

    def suits(self, ws: WorkerState) -> bool:
        """Whether it may go there now: so much of each resource is free."""
        return self.allows(ws) and all(
            ws.resources[r] - ws.used_resources.get(r, 0) >= n for r, n in self.resources or ()
        )


ANY = Kind(None, None)

_Place = tuple[tuple[Any, ...], int]  # priority and count of an entry


class Ready:
    """Ready tasks of one kind, by home and in Dask's order.

    A task with several homes stands at each of them; what left is dropped when it comes to the top.
    No reference is kept to it: Dask's queue takes a forgotten task that is still referred to for
    a new one of the same key.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # by count
        self._anywhere: list[_Place] = []
        self._at: dict[str, list[_Place]] = {}
        self._near: dict[str, list[_Place]] = {}
        self.seconds_at: dict[str, float] = {}  # expected work that waits for each home
        self.count_at: Counter[str] = Counter()  # tasks that wait for each home, or anywhere ("")

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
        """Note that a task is no longer ready."""
        self._entries.pop(entry.count, None)
        if not entry.homes:
            self.count_at[""] -= 1
        for home in entry.homes:
            self.count_at[home] -= 1
            left = self.seconds_at.get(home, 0.0) - entry.expected / len(entry.homes)
            self.seconds_at[home] = max(left, 0.0)

    def has(self, entry: Entry) -> bool:
        """Whether a task is to be found; slow, for checks."""
        place = entry.priority, entry.count
        if not entry.homes:
            return place in self._anywhere
        return all(place in self._at.get(home, ()) for home in entry.homes)

    def anywhere(self) -> Entry | None:
        """The first task that any worker may take."""
        return self._top(self._anywhere)

    def at(self, home: str) -> Entry | None:
        """The first task at home on a worker."""
        heap = self._at.get(home)
        if heap is None:
            return None
        entry = self._top(heap)
        if entry is None:
            del self._at[home]
            self.seconds_at.pop(home, None)
        return entry

    def near(self, address: str) -> Entry | None:
        """The first task of which a worker has the inputs, though any worker may take it."""
        heap = self._near.get(address)
        if heap is None:
            return None
        entry = self._top(heap)
        if entry is None:
            del self._near[address]
        return entry

    @property
    def homes(self) -> Collection[str]:
        """Workers at which tasks are, or were, at home."""
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
    """The tasks of one job.

    Attributes
    ----------
    tasks : dict
        Every task of the job, with the worker restrictions that its user gave it.
    unfinished : set
        Those that wait, are ready, or run.
    ready : dict
        Those that wait for a slot.
    kinds : dict of Kind to Ready
        The same by kind, in Dask's order.
    running : dict
        Those that hold a slot, with the core-seconds charged for each in advance.
    passed : dict of str to set
        Those that went to workers without a slot, by worker: pinned ones, and what was sent before
        tasks were held. They run there unless others are put before them.
    gang : bool
        Whether its ready tasks start together.
    index, workers, granted, most
        From the job's grant, its tokens as `granted`.
    tokens : float
        What is left of these since the last decision.
    floor : bool
        Whether it was given a floor besides its share.
    weight : float
    service : float
        Core-seconds used for its weight, as a start tag of fair queueing: see `FairQueueing`.
    is_new : bool
        Whether it was not served yet.
    left_at : float
        When it last had a task, on the monotonic clock.
    made_at : Counter of str
        Tasks that any worker could compute, by the worker that did. Spread over all of them, what
        comes after finds threads beside its inputs when the job has the cluster for itself.
    gap : float
        Seconds between its last task and its next, as seen lately; infinite before.
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
    index: float = math.inf  # before the first grant, a newcomer comes first
    workers: Collection[str] = frozenset()
    granted: float = 0.0
    tokens: float = 0.0
    most: float = math.inf
    floor: bool = False
    service: float = 0.0
    is_new: bool = True
    left_at: float = -math.inf
    gap: float = math.inf
    durations: Durations = field(default_factory=Durations)
    made_at: Counter[str] = field(default_factory=Counter)
    bytes_at: dict[str, float] = field(default_factory=dict)  # input bytes by worker, fading

    @property
    def demand(self) -> int:
        """Tasks that are ready or on workers; seceded ones hold no slot."""
        return len(self.ready) + len(self.running) + sum(map(len, self.passed.values()))

    def is_within_cap(self) -> bool:
        """Whether it runs less than it may."""
        return len(self.running) < self.most

    def is_behind(self) -> bool:
        """Whether it is behind on its floor, new and not granted anything yet, or has nothing that
        runs though it was granted a thread: floors come in bursts, for which it would wait."""
        first = self.tokens > 0 or self.index == math.inf or (self.share >= 1 and not self.running)
        return first and len(self.running) < self.most

    def is_short_of_floor(self) -> bool:
        """Whether it is behind on a floor that it was given besides its fair share."""
        return self.floor and self.tokens > 0 and self.is_within_cap()

    def charge(self, seconds: float) -> None:
        """Charge core-seconds that the job uses."""
        self.service += seconds / self.weight
        self.tokens -= seconds

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        self.ready[entry.ts] = entry
        kind = self.kinds.get(entry.kind)
        if kind is None:
            kind = self.kinds[entry.kind] = Ready()
        kind.push(entry)

    def pop(self, ts: TaskState) -> Entry | None:
        """Take out a task that is no longer ready."""
        entry = self.ready.pop(ts, None)
        if not self.ready:
            self.kinds.clear()
        elif entry is not None:
            self.kinds[entry.kind].left(entry)
        return entry

    def drop(self, ts: TaskState) -> None:
        """Keep nothing of a task, wherever it is."""
        self.pop(ts)
        self.tasks.pop(ts, None)
        self.running.pop(ts, None)
        self.unfinished.discard(ts)
        for tasks in self.passed.values():
            tasks.discard(ts)

    def first_ready(self) -> Iterator[Entry]:
        """The first tasks of each kind, wherever they are at home."""
        for ready in list(self.kinds.values()):
            if entry := ready.anywhere():
                yield entry
            for home in list(ready.homes):
                if entry := ready.at(home):
                    yield entry

    def fade(self, factor: float) -> None:
        """Forget part of where its data was."""
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
