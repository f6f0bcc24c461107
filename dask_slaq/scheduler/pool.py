"""The pool of one job: its tasks, those that are ready in Dask's order, and what it was granted."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.durations import Durations

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState


class Binding(NamedTuple):
    """One task sent to one worker, and why it might go there."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed": never held


class Entry(NamedTuple):
    """A ready task in a pool; sorts in Dask's order."""

    priority: tuple[Any, ...]
    count: int
    ts: TaskState
    kind: Kind
    home: str | None  # the worker that holds most of its inputs
    moving: float  # seconds to move them away from home
    cheap: bool  # so little that any worker will do


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


@dataclass
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
    heaps : dict
        The same in Dask's order, by kind and home; those that are cheap to move also under no
        home. A task that left is dropped when it comes to the top.
    running : dict
        Those that hold a slot, with the core-seconds charged for each in advance.
    gang : set
        Those that run where their user pinned them.
    index, share, workers, granted, most
        From the job's grant, its tokens as `granted`. A part of a job has none of its own: see
        `line`.
    tokens : float
        What is left of these since the last decision.
    whole : Pool or None
        Of a part, the pool of its job, which counts what the part runs as well.
    parts : dict
        Pools of the job's parts.
    foremost : float
        The user's priority of those of its tasks that go first.
    loss, ended, attained
        Its last loss; how many of its tasks ended, and their core-seconds.
    """

    name: str
    client: str
    reports: bool = True
    tasks: dict[TaskState, Any] = field(default_factory=dict)
    unfinished: set[TaskState] = field(default_factory=set)
    ready: dict[TaskState, Entry] = field(default_factory=dict)
    heaps: dict[Kind, dict[str | None, list[Entry]]] = field(default_factory=dict)
    running: dict[TaskState, float] = field(default_factory=dict)
    gang: set[TaskState] = field(default_factory=set)
    share: float = 1.0
    index: float = 0.0
    workers: Collection[str] = frozenset()
    granted: float = 0.0
    tokens: float = 0.0
    most: float = math.inf
    used: float = 0.0  # core-seconds, fading; orders jobs of equal index
    durations: Durations = field(default_factory=Durations)
    bytes_at: dict[str, float] = field(default_factory=dict)  # input bytes by worker, fading
    whole: Pool | None = None
    parts: dict[str, Pool] = field(default_factory=dict)
    foremost: float = math.inf
    loss: float = math.inf
    ended: int = 0
    attained: float = 0.0

    @property
    def demand(self) -> int:
        """Tasks that hold a slot or wait for one, or are pinned and run."""
        ready = len(self.ready) + sum(len(part.ready) for part in self.parts.values())
        return ready + len(self.running) + len(self.gang)

    @property
    def line(self) -> Pool:
        """The pool in whose name its tasks are served: its job's, of a part."""
        return self.whole or self

    @property
    def ahead(self) -> bool:
        """Whether all that is ready was sent ahead of its time: its user gave it less priority, and
        no other task waits for it yet."""
        return all(e.priority[0] > self.foremost and not e.ts.waiters for e in self.ready.values())

    @property
    def left(self) -> float:
        """Seconds that a part's tasks at hand will take, one after another. Infinite where that is
        not known, and for what a divided job does itself: it gets parts ready."""
        if self.parts or not self.ended:
            return math.inf
        return len(self.unfinished) * self.attained / self.ended

    def order(self) -> tuple[Any, ...]:
        """Who is served first: higher index, then least running and least used for the share.

        Parts of a job stand in its place in the queue. Of them the one with most work left comes
        first, so that all are through early. Work ahead of its time comes last, that of the part
        with the least loss first: it is the least likely to be in vain.
        """
        line = self.line
        share = max(line.share, 1e-9)
        place = (-line.index, len(line.running) / share, line.used / share, line.name)
        if not line.parts:
            return place
        ahead = self.ahead
        return (*place, ahead, self.loss if ahead else -self.left, self.name)

    def take_over(self, part: Pool) -> None:
        """Have the tasks of a part that is no more; those that run are counted already."""
        self.tasks.update(part.tasks)
        self.unfinished |= part.unfinished
        self.foremost = min(self.foremost, part.foremost)
        for entry in part.ready.values():
            self.push(entry)

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        self.ready[entry.ts] = entry
        homes = self.heaps.setdefault(entry.kind, {})
        if entry.home is not None:
            heapq.heappush(homes.setdefault(entry.home, []), entry)
        if entry.home is None or entry.cheap:
            heapq.heappush(homes.setdefault(None, []), entry)

    def first(self, kind: Kind, home: str | None) -> Entry | None:
        """The first ready task of a kind at a home."""
        heap = self.heaps[kind].get(home)
        while heap:
            if self.ready.get(heap[0].ts) is heap[0]:
                return heap[0]
            heapq.heappop(heap)
        self.heaps[kind].pop(home, None)
        return None

    def fade(self, factor: float) -> None:
        self.used *= factor
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
