"""Pool of a job: its tasks and its grant; and the jobs of one owner, which share a limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.dispatch.durations import Durations
from dask_slaq.scheduler.dispatch.ready import ANY, Entry, Kind, Ready

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState

    from dask_slaq.core.grants import Terms

#: Tasks per thread that a worker is owed at most if it was sent fewer tasks than the others.
MOST_LESS = 1.0


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


@dataclass(eq=False)
class Group:
    """Pools of one owner.

    Attributes
    ----------
    pools : list of Pool
    most : float
        Maximum number of tasks that hold a slot; inf for no limit.
    tokens : float
        Core-seconds to be served before any index.
    """

    pools: list[Pool] = field(default_factory=list)
    most: float = math.inf
    tokens: float = 0.0

    def has_room(self) -> bool:
        """Return whether another task may start."""
        return self.most == math.inf or self.running + 1 <= self.most

    @property
    def running(self) -> int:
        """Number of tasks that hold a slot, and of others that compute, as trials that go on."""
        return sum(pool.on_workers for pool in self.pools)

    def is_behind(self) -> bool:
        """Return whether the owner must be served before the order by index."""
        return self.tokens > 0


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
    spell : float
        Running mean of the seconds between two such gaps.
    back_at : float
        Time at which the job came back from its last gap, in seconds of the monotonic clock.
    widest, was_widest : int
        Maximum number of ready and running tasks since the job came back from its last gap, and
        between the gap before and that one.
    made_at : dict of str to float
        Tasks without a home sent to each worker. Spreading them evenly lets later tasks find
        threads near their inputs once the job has the cluster to itself. What a worker that joined
        late, or was busy, was not sent counts only up to `MOST_LESS`.
    made : float
        Sum of `made_at`.
    waiting : int
        Tasks that wait in a report.
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
    spell: float = 0.0
    back_at: float = math.inf
    widest: int = 0
    was_widest: int = 0
    durations: Durations = field(default_factory=Durations)
    made_at: dict[str, float] = field(default_factory=dict)
    made: float = 0.0
    waiting: int = 0
    bytes_at: dict[str, float] = field(default_factory=dict)

    @property
    def on_workers(self) -> int:
        """Number of tasks on workers, except seceded ones, whether sent through slots or not."""
        running = len(self.running)
        return running + sum(map(len, self.passed.values())) if self.passed else running

    @property
    def demand(self) -> int:
        """Number of tasks that have a thread or could use one."""
        return len(self.ready) + self.on_workers + self.waiting

    @property
    def is_restricted(self) -> bool:
        """Whether a ready task needs certain workers or a resource."""
        return len(self.kinds) > 1 or (bool(self.kinds) and ANY not in self.kinds)

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
        # Tokens are not spread over the epoch: unowned tasks may wait for each other.
        first = self.tokens > 0 or self.index == math.inf or (self.share >= 1 and not self.running)
        return first and len(self.running) < self.most

    def is_below_share(self) -> bool:
        """Return whether the job has a share of a thread or more and fewer tasks on workers."""
        return 1 <= self.share > self.on_workers

    def is_short_of_floor(self) -> bool:
        """Return whether the job is below its cap and behind on an explicit floor."""
        return self.floor and self.tokens > 0 and self.is_within_cap()

    def take(self, grant: Terms) -> None:
        """Put a grant into force, all but its tokens; its worker set stays if it names none."""
        self.share = grant.share
        self.index = grant.index
        self.most = grant.most
        self.granted = grant.tokens
        if grant.workers is not None:
            self.workers = grant.workers

    def inherit(self, other: Pool) -> None:
        """Take over all tasks of another pool, which keep waiting or running."""
        self.tasks.update(other.tasks)
        self.unfinished |= other.unfinished
        self.running.update(other.running)
        for address, tasks in other.passed.items():
            self.passed.setdefault(address, set()).update(tasks)
        for entry in other.ready.values():
            self.push(entry)

    def charge(self, seconds: float) -> None:
        """Charge the job for core-seconds used; negative to refund."""
        self.service += seconds / self.weight
        self.tokens -= seconds
        if self.group is not None:
            self.group.tokens -= seconds

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        self.ready[entry.ts] = entry
        self.widest = max(self.widest, len(self.ready) + len(self.running))
        kind = self.kinds.get(entry.kind)
        if kind is None:
            kind = self.kinds[entry.kind] = Ready()
        kind.push(entry)

    def sent_homeless(self, ws: WorkerState, threads: int) -> None:
        """Record that a task without a home was sent to a worker.

        Parameters
        ----------
        ws : distributed.scheduler.WorkerState
        threads : int
            Threads of the cluster.
        """
        before = self.made_at.get(ws.address, 0.0)
        others = (self.made - before) / max(threads - ws.nthreads, 1)
        owed = (others - MOST_LESS) * ws.nthreads
        self.made_at[ws.address] = after = max(before, owed) + 1
        self.made += after - before

    def forget_worker(self, address: str) -> None:
        """Forget what was sent to a worker that left."""
        self.made -= self.made_at.pop(address, 0.0)

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
        if self.bytes_at:
            self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
