"""Pool of a job: its tasks, its grant and its account; and the pools of one owner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.pools.durations import Durations
from dask_slaq.scheduler.pools.ready import Entry, Kind, Ready

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.grants import Terms
    from dask_slaq.scheduler.pools.sent import Sent

__all__ = ["Binding", "Group", "Pool"]


class Binding(NamedTuple):
    """Record of a task that went to a worker, with the reason."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed" (not sent by us)
    why: str  # in words


@dataclass(eq=False)
class Group:
    """Pools of one owner.

    Attributes
    ----------
    pools : list of Pool
    most : float
        Maximum number of threads; inf for no limit.
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
    def running(self) -> float:
        """Threads that the tasks on workers use."""
        return sum(pool.threads for pool in self.pools)


@dataclass(eq=False)
class Pool:
    """Tasks, grant and account of one job.

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
    tasks : set
        All tasks of the job.
    unfinished : set
        Tasks that wait for inputs, are ready, or run.
    ready : dict
        Held tasks that wait for a slot. Those of other jobs that this job waits for are in it too.
    kinds : dict of Kind to Ready
        The ready tasks by kind, in Dask's order.
    running : dict of TaskState to Sent
        Tasks on workers, except seceded ones.
    threads : float
        Threads that they use.
    passed : Counter of str
        Tasks on each worker that Dask sent there. They go on without being sent.
    share, index, workers, most
        From the job's grant.
    balance, rate : float
        Account of the job's guarantee: core-seconds that it is owed, and threads at which these
        accrue. Tasks are charged in advance, and corrected when they end.
    paused : bool
        Whether no ready task may start.
    group : Group, optional
        The pools of the same owner, if owners are configured.
    service : float
        Core-seconds used over weight: start tag of start-time fair queueing (Goyal, Vin, Cheng,
        SIGCOMM 1996).
    left_at, lacked, gap : float
        Monotonic time at which the job last had a ready or running task, the service by which it
        was behind then, and the running mean of the seconds without any; infinite before the first.
    computed, spell : float
        Core-seconds since then, and the running mean of those between two gaps.
    width : float
        Maximum number of ready and running tasks, less `NARROWER` with each gap.
    made_at : dict of str to float
        Tasks without a home that were sent to each worker, decayed over time.
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
    durations: Durations = field(default_factory=Durations)
    tasks: set[TaskState] = field(default_factory=set)
    unfinished: set[TaskState] = field(default_factory=set)
    ready: dict[TaskState, Entry] = field(default_factory=dict)
    kinds: dict[Kind, Ready] = field(default_factory=dict)
    running: dict[TaskState, Sent] = field(default_factory=dict)
    threads: float = 0.0
    passed: Counter[str] = field(default_factory=Counter)
    share: float = 1.0
    index: float = math.inf  # a newcomer comes first until its first grant
    workers: frozenset[str] = frozenset()
    most: float = math.inf
    floor: bool = False
    balance: float = 0.0
    rate: float = 0.0
    paused: bool = False
    group: Group | None = None
    service: float = 0.0
    left_at: float = -math.inf
    lacked: float = 0.0
    gap: float = math.inf
    computed: float = 0.0
    spell: float = 0.0
    width: float = 0.0
    made_at: dict[str, float] = field(default_factory=dict)
    waiting: int = 0
    bytes_at: dict[str, float] = field(default_factory=dict)

    @property
    def on_workers(self) -> int:
        """Number of tasks on workers, except seceded ones."""
        return len(self.running)

    @property
    def demand(self) -> int:
        """Number of tasks that have a thread or could use one."""
        return len(self.ready) + len(self.running) + self.waiting

    def may_start(self) -> bool:
        """Return whether the job is not paused and its owner is below its limit."""
        return not self.paused and (self.group is None or self.group.has_room())

    def is_behind(self) -> bool:
        """Return whether the job is owed core-seconds, or has no grant yet, below its cap."""
        return (self.balance > 0 or self.index == math.inf) and self.threads < self.most

    def take(self, terms: Terms) -> None:
        """Put a grant into force, all but its tokens; its worker set stays if it names none."""
        self.share, self.index, self.most = terms.share, terms.index, terms.most
        if terms.workers is not None:
            self.workers = frozenset(terms.workers)

    def accrue(self, seconds: float, most: float) -> None:
        """Credit the guarantee of some seconds, up to that of `most` seconds."""
        if self.balance < most * self.rate:
            self.balance = min(self.balance + seconds * self.rate, most * self.rate)

    def charge(self, seconds: float) -> None:
        """Charge the job for core-seconds used; negative to refund."""
        self.service += seconds / self.weight
        self.balance -= seconds
        if self.group is not None:
            self.group.tokens -= seconds

    def push(self, entry: Entry, *, filed: bool = True) -> None:
        """Add a ready task. Members of a gang are not filed, because they start together."""
        self.pop(entry.ts)  # it is here still if Dask failed to send it
        self.ready[entry.ts] = entry
        self.width = max(self.width, len(self.ready) + len(self.running))
        if filed:
            if entry.kind not in self.kinds:
                self.kinds[entry.kind] = Ready()
            self.kinds[entry.kind].push(entry)

    def pop(self, ts: TaskState) -> None:
        """Remove a task that is no longer ready, if it was."""
        entry = self.ready.pop(ts, None)
        kind = self.kinds.get(entry.kind) if entry is not None else None
        if entry is not None and kind is not None:
            kind.pop(entry)
            if not kind:
                del self.kinds[entry.kind]

    def first_ready(self) -> Iterator[Entry]:
        """Yield the first task of each kind at each home."""
        for ready in list(self.kinds.values()):
            for home in list(ready.homes):
                if entry := ready.at(home):
                    yield entry

    def fade(self, factor: float) -> None:
        """Decay what is known of each worker by a factor in [0, 1], and drop what is small."""
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
        self.made_at = {w: n * factor for w, n in self.made_at.items() if n * factor >= 0.1}

    def forget_worker(self, address: str) -> None:
        """Forget what is known of a worker that left."""
        self.made_at.pop(address, None)
        self.bytes_at.pop(address, None)
