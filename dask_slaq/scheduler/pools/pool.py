"""Pool of a job: its tasks, its grant and its account; and the pools of one owner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.pools.durations import Durations
from dask_slaq.scheduler.pools.ready import ANY, Entry, Kind, Ready
from dask_slaq.scheduler.pools.stages import STAGE, Stages
from dask_slaq.scheduler.pools.waiting import Waiting

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.grants import Terms
    from dask_slaq.scheduler.pools.dispatcher import Key
    from dask_slaq.scheduler.pools.slots import Sent


class Binding(NamedTuple):
    """Record of a task that went to a worker, with the reason."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed" (sent by Dask)
    why: str  # in words


@dataclass(eq=False)
class Group:
    """Pools of one owner."""

    most: float = math.inf  # maximum number of threads
    deserved: float = 1.0  # threads
    tokens: float = 0.0  # core-seconds to be served before any index
    pools: list[Pool] = field(default_factory=list)
    running: float = 0.0  # threads that the tasks on workers use

    def has_room(self, threads: float = 1.0) -> bool:
        """Return whether tasks that use this number of `threads` may start."""
        return self.most == math.inf or self.running + threads <= self.most

    @property
    def lag(self) -> float:
        """Seconds for which the owner waits for what it is owed; 0 if it is owed nothing."""
        return max(self.tokens, 0.0) / self.deserved if self.deserved else 0.0


@dataclass(eq=False)
class Pool:
    """Tasks, grant and account of one job."""

    name: str
    client: str  # id of the client that owns the job
    reports: bool = True  # False for the unowned tasks of a client
    gang: bool = False  # whether ready tasks must start together
    weight: float = 1.0
    durations: Durations = field(default_factory=Durations)
    owner: str = ""
    run: str = ""  # identifies the block of the job
    stages: Stages | None = None  # None until a task is in a stage
    index_of: Waiting = field(default_factory=Waiting)  # the ready tasks of all pools

    tasks: set[TaskState] = field(default_factory=set)
    unfinished: set[TaskState] = field(default_factory=set)  # they wait, are ready, or run
    ready: dict[TaskState, Entry] = field(
        default_factory=dict
    )  # held, or wanted and held by others
    kinds: dict[Kind, Ready] = field(default_factory=dict)  # the ready tasks in Dask's order
    running: dict[TaskState, Sent] = field(default_factory=dict)  # on workers, but for seceded ones
    threads: float = 0.0  # that these use
    prioritized: bool = False  # whether any ready task has had a priority of the user's
    passed: Counter[str] = field(default_factory=Counter)  # those that Dask sent, by worker
    waiting: int = 0  # tasks that wait in a report
    ended: int = 0  # tasks that have computed
    used: float = 0.0  # core-seconds of these
    is_open: bool = False  # whether tasks came after some had ended: more may come

    share: float = 1.0
    index: float = math.inf  # a newcomer comes first until its first grant
    workers: frozenset[str] = frozenset()
    most: float = math.inf
    floor: bool = False  # whether a floor was set explicitly
    paused: bool = False
    group: Group | None = None  # the pools of the same owner, if owners are configured

    # Account of the guarantee: core-seconds that the job is owed, and threads at which they accrue.
    balance: float = 0.0  # as of `accrued_at`, in monotonic seconds
    rate: float = 0.0
    accrued_at: float = 0.0
    most_accrued: float = math.inf  # seconds for which it accrues
    # Its place in the order of jobs, and until when that holds if nothing changes.
    key: Key | None = None
    key_until: float = -math.inf
    preferred: float | None = None  # the user's priority, negated, if it is known
    # Core-seconds used over weight: start tag of start-time fair queueing (Goyal, Vin, Cheng,
    # SIGCOMM 1996). Both are charged in advance, and corrected when a task ends.
    service: float = 0.0

    # The last gap without ready or running tasks: when it began (monotonic seconds) and what the
    # job lacked of service then; core-seconds since. Means of the seconds of a gap, and of the
    # core-seconds between two. Tasks at once, `NARROWER` with each gap.
    left_at: float = -math.inf
    lacked: float = 0.0
    computed: float = 0.0
    gap: float = math.inf
    spell: float = 0.0
    width: float = 0.0

    # Bytes of inputs, and tasks without a home sent, by worker. They decay over time.
    bytes_at: dict[str, float] = field(default_factory=dict)
    made_at: dict[str, float] = field(default_factory=dict)

    @property
    def demand(self) -> int:
        """Number of tasks that have a thread or could use one."""
        return len(self.ready) + len(self.running) + self.waiting

    @property
    def computing(self) -> int:
        """Number of tasks that compute."""
        if not self.running:
            return 0
        return sum(sent.start is not None for sent in self.running.values())

    def counts(self, holding: bool) -> tuple[int, int]:
        """Return the numbers of tasks that compute, and that are ready but do not."""
        computing = sum(sent.start is not None for sent in self.running.values())
        ready = len(self.ready)
        if not holding:  # Dask keeps them
            ready = sum(ts.state in ("queued", "no-worker") for ts in self.unfinished)
        return computing, ready + len(self.running) - computing

    @property
    def submitted(self) -> float:
        """Core-seconds that its unfinished tasks take; nan if unknown.

        Of a job that submits again and again it is at least what it usually submits at once.
        """
        if not self.ended:
            return math.nan
        seconds = len(self.unfinished) * self.used / self.ended
        return max(seconds, self.spell) if self.is_open else seconds

    def add(self, ts: TaskState, *, unfinished: bool) -> None:
        """Add a new task."""
        if self.stages is None and self.reports and ts.annotations and STAGE in ts.annotations:
            self.stages = Stages(self.run, self.unfinished, self.ended, self.used)
        self.tasks.add(ts)
        self.is_open |= self.ended > 0
        if unfinished:
            self.unfinished.add(ts)
        if self.stages is not None:
            self.stages.add(ts, unfinished=unfinished)

    def adopt(self, ts: TaskState) -> None:
        """Add an unfinished task that another job submitted."""
        self.tasks.add(ts)
        self.unfinished.add(ts)
        if self.stages is not None:
            self.stages.adopt(ts)

    def wait(self, ts: TaskState) -> None:
        """Count a task as unfinished, maybe again."""
        self.unfinished.add(ts)
        if self.stages is not None:
            self.stages.wait(ts)

    def finish(self, ts: TaskState, *, cancelled: bool = False) -> None:
        """Count a task no longer as unfinished; it may have been `cancelled`."""
        self.unfinished.discard(ts)
        if self.stages is not None:
            self.stages.finish(ts, cancelled=cancelled)

    def drop(self, ts: TaskState) -> None:
        """Remove a task."""
        self.tasks.discard(ts)
        self.unfinished.discard(ts)
        if self.stages is not None:
            self.stages.drop(ts)

    def is_behind(self) -> bool:
        """Return whether the job is owed core-seconds, or has no grant yet, below its cap."""
        return self.threads < self.most and (self.index == math.inf or self.owed(monotonic()) > 0)

    def owed(self, now: float) -> float:
        """Return the core-seconds that the job is owed: they accrue over time, up to a maximum."""
        if not self.rate:
            return self.balance
        owed = self.balance + (now - self.accrued_at) * self.rate
        return min(owed, max(self.balance, self.most_accrued * self.rate))

    def take(self, terms: Terms, *, guaranteed: bool) -> None:
        """Put a grant into force; its guarantee only if `guaranteed`."""
        self.touch()
        self.accrued_at = monotonic()
        self.share, self.index, self.most = terms.share, terms.index, terms.most
        if terms.workers is not None:
            self.workers = frozenset(terms.workers)
        # What was charged in advance is not yet part of what the job is known to have used.
        ahead = sum(sent.ahead for sent in self.running.values()) if self.running else 0.0
        self.balance = terms.tokens * guaranteed - ahead
        self.rate = terms.rate * guaranteed

    def touch(self) -> None:
        """Have its place in the order of jobs found anew."""
        self.key_until = -math.inf

    def use(self, threads: float) -> None:
        """Count threads of tasks that came to a worker; negative if they left it."""
        self.threads += threads
        self.key_until = -math.inf
        if self.group is not None:
            self.group.running += threads

    def charge(self, seconds: float) -> None:
        """Charge the job for core-seconds used; negative to refund."""
        self.key_until = -math.inf
        self.service += seconds / self.weight
        self.balance -= seconds
        if self.group is not None:
            self.group.tokens -= seconds

    def push(self, entry: Entry, *, filed: bool = True) -> None:
        """Add a ready task. Members of a gang are not filed, because they start together."""
        ready = self.ready
        if entry.ts in ready:
            self.pop(entry.ts)  # it is here still if Dask failed to send it
        if not ready:
            self.index_of.pools[self] = None
            if self.gang:
                self.index_of.together[self] = None
        ready[entry.ts] = entry
        self.key_until, self.preferred = -math.inf, None
        if (demand := len(ready) + len(self.running)) > self.width:
            self.width = demand
        if entry.priority and entry.priority[0]:
            self.prioritized = True
        if filed:
            kind = self.kinds.get(entry.kind)
            if kind is None:
                kind = self.kinds[entry.kind] = Ready()
                if entry.kind is not ANY:
                    scarce = self.index_of.scarce
                    scarce[self] = scarce.get(self, 0) + 1
            kind.push(entry)
            self.index_of.file(self, entry)

    def pop(self, ts: TaskState) -> None:
        """Remove a task that is no longer ready, if it was."""
        entry = self.ready.pop(ts, None)
        if entry is None:
            return
        self.key_until, self.preferred = -math.inf, None
        if not self.ready:
            self.prioritized = False
            del self.index_of.pools[self]
            self.index_of.together.pop(self, None)
        kind = self.kinds.get(entry.kind)
        if kind is not None and kind.pop(entry):
            self.index_of.remove(self, entry)
            if not kind:
                del self.kinds[entry.kind]
                if entry.kind is not ANY:
                    scarce = self.index_of.scarce
                    scarce[self] -= 1
                    if not scarce[self]:
                        del scarce[self]

    def first_root(self) -> bool:
        """Return whether the first task, of those that any worker may run anywhere, is a root."""
        first = self.kinds[ANY].at() if ANY in self.kinds else None
        return first is not None and first.rootish

    def first_ready(self) -> Iterator[Entry]:
        """Yield the first task of each kind at each home."""
        for ready in list(self.kinds.values()):
            for home in list(ready.homes):
                if entry := ready.at(home):
                    yield entry

    def user_priority(self) -> float:
        """Return the negated priority that the user gave the first of the ready tasks."""
        if not self.prioritized:
            return 0.0
        if self.preferred is None:
            first = (e.priority[0] for e in self.first_ready() if e.priority)
            self.preferred = min(first, default=0.0)
        return self.preferred

    def fade(self, factor: float) -> None:
        """Decay what is known of each worker by a factor in [0, 1], and drop what is small."""
        if not (self.bytes_at or self.made_at):
            return
        self.bytes_at = {w: n * factor for w, n in self.bytes_at.items() if n * factor >= 1}
        self.made_at = {w: n * factor for w, n in self.made_at.items() if n * factor >= 0.1}

    def forget_worker(self, address: str) -> None:
        """Forget what is known of a worker that left."""
        self.made_at.pop(address, None)
        self.bytes_at.pop(address, None)
