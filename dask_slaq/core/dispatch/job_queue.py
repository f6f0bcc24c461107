"""Job as the dispatcher sees it: its ready tasks, its grant and its account; jobs of one owner."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dask_slaq.core.dispatch.constants import MESSAGE_SECONDS
from dask_slaq.core.dispatch.ready import ANY, DurationEstimate, Ready, TaskConstraints, Waiting
from dask_slaq.core.grants import Terms
from dask_slaq.core.jobs.arrays import EPSILON_THREADS

# Classes of the jobs of one owner, in the order in which they are served.
OWED, OWNER_OWED, ENTITLED, WITHIN_CAP, OVER_CAP = range(5)


class Key(NamedTuple):
    """Sort key of a job, lowest first, so what is served first by its size is negated."""

    rank: int  # 0 if the job or its owner is owed, 1 if not, 2 if it takes what others leave
    owner_lag: float  # seconds for which its owner waits for what it is owed, negated
    standing: int  # class of the job
    lag: float  # since when it waits for what it is owed, in monotonic seconds; 0 if nothing
    gain: float  # index of its grant, negated
    service: float
    running: float
    name: str

    @property
    def entitled(self) -> bool:
        """Whether it is for a thread of its share, where sets are strict."""
        return self.standing == ENTITLED


class Way(enum.Enum):
    """How far a task is on its way to a worker."""

    WAITS, GOES, SENT = range(3)


@dataclass(slots=True, eq=False)
class Handover:
    """Task that waits, goes to the `worker` that was chosen for it, or was sent there.

    Ready tasks sort by `rank`, in the order in which Dask would send them: other tasks as soon as
    they are ready, while root tasks wait in its queue, whatever their priority. By priority alone,
    results would stay in memory until all root tasks before their users had run.
    """

    pool: JobQueue  # the job that it is charged to
    ts: Any  # the task
    like: DurationEstimate  # compute times of similar tasks
    # What it needs, while it waits
    rank: tuple[bool, tuple[Any, ...], int] = (False, (), 0)  # rootish, priority, a unique number
    rootish: bool = False  # whether Dask would queue it
    nbytes: int = 0  # of its inputs
    constraints: TaskConstraints = ANY
    preferred: tuple[str, ...] = ()  # workers with nearly all of its inputs; empty for any
    loads: bool = False  # whether it has no inputs
    direct: bool = False  # whether Dask alone decides where it runs, once it may
    way: Way = Way.WAITS
    # What was chosen
    worker: str = ""
    key: Key | None = None  # of its job, which is its turn; None if Dask has sent it
    why: str = ""
    workers: frozenset[str] | None = None  # where work stealing may move it; None for its job's
    order: tuple[Any, ...] = ()  # on the worker, lowest first; no two tasks have the same
    entitled: bool = False  # whether it takes tokens of the share of its job
    # Its run
    tag: float = 0.0  # service of its job when it was sent
    expected: float = math.inf  # compute time in seconds when it was sent; infinite if unknown
    soonest: float = math.inf  # compute time after which it may plausibly have ended
    needs: tuple[tuple[str, float], ...] = ()  # resources
    threads: float = 1.0
    prepaid: float = 0.0  # core-seconds charged to its job so far
    start: float | None = None  # estimated, monotonic seconds; None while it waits on the worker
    lends: bool = False  # whether it waits for tasks that it has submitted
    moved: str = ""  # worker of which its job was granted a thread for it, outside the planned set
    # What the user gave the task, while it carries what we gave it
    restricted: Any = None  # restriction to workers that we gave it
    users: tuple[Any, bool] | None = None  # its restriction to workers, and whether that is loose
    priority: tuple[Any, ...] | None = None  # on the worker
    own_priority: Any = None  # what Dask gave it, while it has the other

    @property
    def ours(self) -> bool:
        """Whether the dispatcher chose its worker, and not Dask."""
        return self.key is not None

    def seconds_left(self, now: float) -> float:
        """Return the estimated seconds until the task ends; infinite if unknown.

        An overdue task is expected to take as long again as it is overdue.
        """
        if self.start is None or self.expected == math.inf:
            return self.expected
        elapsed = now - self.start
        if elapsed < self.expected:
            return max(self.soonest - elapsed, 0.0)
        return max(elapsed - self.expected - 2 * MESSAGE_SECONDS, 0.0)


@dataclass(eq=False)
class Group:
    """Jobs of one owner, or of a team with the groups of its members."""

    most: float = math.inf  # maximum number of threads
    deserved: float = 1.0  # threads
    tokens: float = 0.0  # core-seconds to be served before any index
    on_leftovers: bool = False  # whether they run on what nobody else wants
    pools: list[Any] = field(default_factory=list)
    running: float = 0.0  # threads that the tasks on workers use
    resources: Mapping[str, float] = field(default_factory=dict)  # maximum amounts in use
    name: str = ""  # of the owner, or of the team with a slash
    team: Group | None = None  # that it is in

    def line(self) -> Iterator[Group]:
        """Yield this group and the teams that it is in, nearest first."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.team

    @property
    def is_limited(self) -> bool:
        """Whether this group, whatever its teams, has a limit of what its tasks use."""
        return self.most < math.inf or bool(self.resources)

    def full(self, threads: float = 1.0) -> Iterator[Group]:
        """Yield the groups in `line` where no tasks that use so many `threads` may start."""
        for group in self.line():
            if group.most < math.inf:
                promised = sum(pool.promised for pool in group.pools)
                if group.running + promised + threads > group.most:
                    yield group

    def may_start(self, threads: float = 1.0) -> bool:
        """Return whether tasks that use this number of `threads` may start."""
        return next(self.full(threads), None) is None

    def supplies(self, needs: Iterable[tuple[str, float]]) -> bool:
        """Return whether tasks that need amounts of resources may start."""
        return self.full_resource(needs) is None

    def full_resource(self, needs: Iterable[tuple[str, float]]) -> tuple[Group, str] | None:
        """Return the group and the resource of which tasks need more than is left; None if none."""
        some = ((group, name) for group, name, amount, left in self._left(needs) if amount > left)
        return next(some, None)

    def free_for(self, needs: Iterable[tuple[str, float]]) -> float:
        """Return how many further tasks that need amounts of resources may start."""
        free = (left // amount for _, _, amount, left in self._left(needs) if amount > 0)
        return max(min(free, default=math.inf), 0.0)

    def _left(
        self, needs: Iterable[tuple[str, float]]
    ) -> Iterator[tuple[Group, str, float, float]]:
        """Yield limits of resources that tasks need: whose, which, how much, and what is left."""
        needs = list(needs)
        for group in self.line() if needs else ():
            for name, amount in needs if group.resources else ():
                if (most := group.resources.get(name)) is not None:
                    yield group, name, amount, most - group.used(name) + 1e-9

    def used(self, name: str) -> float:
        """Return what the tasks on workers hold of a resource."""
        held = (needs for pool in self.pools for needs in pool.held())
        return float(sum(n for needs in held for r, n in needs if r == name))

    def add(self, pool: JobQueue) -> None:
        """Add a job to this group and its teams, with the threads that its tasks use."""
        for group in self.line():
            group.pools.append(pool)
            group.running += pool.threads - pool.lent

    def remove(self, pool: JobQueue) -> None:
        """Remove a job that uses no more threads."""
        for group in self.line():
            group.pools.remove(pool)

    @property
    def lag(self) -> float:
        """Seconds for which the owner waits for what it is owed; 0 if it is owed nothing."""
        return max(self.tokens, 0.0) / self.deserved if self.deserved else 0.0


@dataclass(slots=True, eq=False)
class Gaps:
    """Times in which a job has neither ready nor running tasks, as between two iterations."""

    left_at: float = -math.inf  # when the last one began, in monotonic seconds
    lacked: float = 0.0  # what the job lacked of service then
    computed: float = 0.0  # core-seconds since
    mean: float = math.inf  # of their seconds
    spell: float = 0.0  # mean of the core-seconds between two
    width: float = 0.0  # tasks at once, fewer with each gap


@dataclass(slots=True, eq=False)
class Granted:
    """Part of the last grant that the order of jobs follows."""

    share: float = 1.0  # threads
    index: float = math.inf  # a newcomer comes first until its first grant
    most: float = math.inf  # threads
    planned: frozenset[str] = frozenset()  # workers, by the last decision
    moved: Counter[str] = field(default_factory=Counter)  # threads that moved here, by worker

    @property
    def workers(self) -> frozenset[str]:
        """The worker set: the planned one, and where a grant has moved for a task."""
        return self.planned.union(self.moved) if self.moved else self.planned


@dataclass(slots=True, eq=False)
class Guarantee:
    """Account of a guarantee: core-seconds that a job is owed."""

    balance: float = 0.0  # as of `accrued_at`
    rate: float = 0.0  # threads at which they accrue
    accrued_at: float = 0.0
    most_accrued: float = math.inf  # seconds for which they accrue
    is_limit: bool = False  # whether the job waits when it is owed nothing: these are its tokens

    def owed(self, now: float) -> float:
        """Return the core-seconds that the job is owed: they accrue over time, up to a maximum."""
        if not self.rate:
            return self.balance
        owed = self.balance + (now - self.accrued_at) * self.rate
        return min(owed, max(self.balance, self.most_accrued * self.rate))

    def tokens_in(self, now: float) -> float:
        """Return the seconds until it holds tokens, as of at least a moment; inf if never."""
        owed = self.owed(now)
        moment = 1e-4  # seconds after which a job is served that used up its tokens
        if owed > (1 - 1e-6) * moment * self.rate:  # which rounding of times does not miss
            return 0.0
        return moment - owed / self.rate if self.rate else math.inf

    def settle(self, now: float) -> None:
        """Add what has accrued to the balance, so that what is above the maximum is lost."""
        self.balance, self.accrued_at = self.owed(now), now


@dataclass(slots=True, eq=False)
class CachedKey:
    """Sort key of a job in the order of jobs."""

    key: Key | None = None
    until: float = -math.inf  # it holds until then if nothing changes


@dataclass(eq=False)
class JobQueue:
    """Job that contends for slots. All times are in monotonic seconds."""

    name: str
    owner: str = ""
    weight: float = 1.0
    gang: bool = False  # whether ready tasks must start together
    index_of: Waiting[JobQueue] = field(default_factory=Waiting)  # the ready tasks of all jobs

    ready: dict[Any, Handover] = field(default_factory=dict)  # held, or wanted and held by others
    filed: dict[TaskConstraints, Ready[Handover]] = field(
        default_factory=dict
    )  # these in Dask's order
    running: dict[Any, Handover] = field(default_factory=dict)  # on workers, but for seceded ones
    threads: float = 0.0  # that these use
    lent: float = 0.0  # threads of those that wait for tasks of their own
    promised: int = 0  # threads that tasks on workers may take without being sent
    holds: dict[Any, Any] = field(default_factory=dict)  # resources of tasks without a thread
    sent_by_dask: Counter[str] = field(default_factory=Counter)  # those that Dask sent, by worker
    made_at: dict[str, float] = field(default_factory=dict)  # tasks that prefer none, by worker
    kept_since: float = math.inf  # since when a thread is kept free rather than given to its loads
    prioritized: bool = False  # whether any ready task has had a priority of the user's
    ended: int = 0  # tasks that have computed
    used: float = 0.0  # core-seconds of these
    gaps: Gaps = field(default_factory=Gaps)

    granted: Granted = field(default_factory=Granted)
    paused: bool = False
    gives_way: bool = False  # whether it reached its target: what is above its cap it may borrow
    group: Group | None = None  # the jobs of the same owner, if owners are configured
    account: Guarantee = field(default_factory=Guarantee)
    # Tokens of its share, which decide on the fraction of a thread in it where sets are strict.
    tokens: Guarantee = field(default_factory=Guarantee)
    # Core-seconds used over weight: start tag of start-time fair queueing (Goyal, Vin, Cheng,
    # SIGCOMM 1996). It and the account are charged in advance, and corrected when a task ends.
    service: float = 0.0
    cached: CachedKey = field(default_factory=CachedKey)

    @property
    def on_spare(self) -> bool:
        """Whether its tasks run on what nobody else wants."""
        return self.group is not None and self.group.on_leftovers

    @property
    def holds_all(self) -> bool:
        """Whether a limit of its owner or a team holds for tasks that only one worker may run."""
        line = self.group.line() if self.group is not None else ()
        return any(group.most < math.inf or group.resources for group in line)

    def is_behind(self, now: float) -> bool:
        """Return whether the job is owed core-seconds, or has no grant yet, below its cap."""
        granted = self.granted
        never = granted.index == math.inf
        return self.threads < granted.most and (never or self.account.owed(now) > 0)

    def put_into_force(
        self, terms: Terms, now: float, *, guaranteed: bool, by_tokens: bool = False
    ) -> None:
        """Put a grant into force; its guarantee only if `guaranteed`, or as a limit `by_tokens`."""
        self.touch()
        workers = self.granted.planned if terms.workers is None else frozenset(terms.workers)
        moved = self.granted.moved
        self.granted = Granted(terms.share, terms.index, terms.most, workers, moved)
        account = self.account
        self.tokens.settle(now)
        self.tokens.rate = terms.share
        if by_tokens:  # debts stay, and what was charged in advance is among them
            account.settle(now)
            account.is_limit, account.rate = True, terms.rate
            return
        # What was charged in advance is not yet part of what the job is known to have used.
        prepaid = sum(sent.prepaid for sent in self.running.values()) if self.running else 0.0
        account.accrued_at, account.is_limit = now, False
        account.balance = terms.tokens * guaranteed - prepaid
        account.rate = terms.rate * guaranteed

    def touch(self) -> None:
        """Have its place in the order of jobs found anew."""
        self.cached.until = -math.inf

    def entitled_in(self, now: float) -> float:
        """Return in how many seconds it may have one more thread by its share; inf if it has all.

        A fraction of a thread is one for a part of the time, by tokens.
        """
        left = self.granted.share - self.threads + self.lent
        if left <= EPSILON_THREADS or left >= 1 - EPSILON_THREADS:
            return 0.0 if left > EPSILON_THREADS else math.inf
        return self.tokens.tokens_in(now)

    def enter(self, task: Handover, worker: str, *, moves: bool) -> None:
        """Record a task that is sent to a worker; if a grant `moves`, that is in the set then."""
        self.running[task.ts] = task
        self.threads += task.threads
        self.cached.until = -math.inf
        for group in self.group.line() if self.group is not None else ():
            group.running += task.threads
        if moves and worker not in self.granted.planned:
            task.moved = worker
            self.granted.moved[worker] += 1

    def leave(self, task: Handover) -> None:
        """Forget a task that is on no worker any more; a grant that moved for it goes back."""
        if self.running.get(task.ts) is task:
            del self.running[task.ts]
        self.threads -= task.threads
        self.cached.until = -math.inf
        for group in self.group.line() if self.group is not None else ():
            group.running -= task.threads
        if task.moved:
            self.granted.moved[task.moved] -= 1
            self.granted.moved += Counter()  # drops what is 0
            task.moved = ""

    def lend(self, sent: Handover, lends: bool) -> None:
        """Let the tasks that a task has submitted, and waits for, have what the task holds."""
        if sent.lends != lends:
            threads = sent.threads if lends else -sent.threads
            sent.lends = lends
            self.lent += threads
            self.cached.until = -math.inf
            for group in self.group.line() if self.group is not None else ():
                group.running -= threads

    def held(self) -> Iterator[Iterable[tuple[str, float]]]:
        """Yield the resources that each task on a worker holds, and does not lend."""
        yield from (sent.needs for sent in self.running.values() if not sent.lends)
        yield from self.holds.values()

    def charge(self, seconds: float, sent: Handover | None = None) -> None:
        """Charge the job for core-seconds used, in a task that was `sent`; negative to refund."""
        self.cached.until = -math.inf
        self.service += seconds / self.weight
        self.account.balance -= seconds
        if sent is not None and sent.entitled:
            self.tokens.balance -= seconds
        if self.group is not None:
            self.group.tokens -= seconds

    def push(self, task: Handover, *, filed: bool = True) -> None:
        """Add a ready task. Members of a gang are not filed, because they start together."""
        ready, index, constraints = self.ready, self.index_of, task.constraints
        if task.ts in ready:
            self.pop(task.ts)  # it is here still if Dask failed to send it
        if not ready:
            index.pools[self] = None
        ready[task.ts] = task
        self.cached.until = -math.inf
        if (demand := len(ready) + len(self.running)) > self.gaps.width:
            self.gaps.width = demand
        priority = task.rank[1]
        if priority and priority[0]:
            self.prioritized = True
        if filed:
            tasks = self.filed.get(constraints)
            if tasks is None:
                tasks = self.filed[constraints] = Ready()
                index.scarce += constraints is not ANY
            tasks.push(task)
            index.file(self, task)

    def pop(self, ts: Any) -> None:
        """Remove a task that is no longer ready, if it was."""
        task = self.ready.pop(ts, None)
        if task is None:
            return
        index, constraints = self.index_of, task.constraints
        self.cached.until = -math.inf
        if not self.ready:
            self.prioritized = False
            del index.pools[self]
        tasks = self.filed.get(constraints)
        if tasks is not None and tasks.pop(task):
            index.remove(self, task)
            if not tasks:
                del self.filed[constraints]
                index.scarce -= constraints is not ANY

    def first_ready(self) -> Iterator[Handover]:
        """Yield the first task of each set of constraints at each preferred worker."""
        for ready in list(self.filed.values()):
            for preferred in list(ready.preferred):
                if task := ready.at(preferred):
                    yield task

    def user_priority(self) -> float:
        """Return the negated priority that the user gave the first of the ready tasks."""
        if not self.prioritized:
            return 0.0
        priorities = (task.rank[1] for task in self.first_ready())
        return min((each[0] for each in priorities if each), default=0.0)
