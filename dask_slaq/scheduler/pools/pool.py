"""Pool of a job: its tasks, besides what the dispatcher sees of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.dispatch import ANY, Handover, JobQueue, TaskConstraints, constants
from dask_slaq.scheduler.pools.durations import Durations, input_bytes


class Binding(NamedTuple):
    """Record of a task that went to a worker, with the reason."""

    time: float  # unix seconds
    key: Any
    job: str
    worker: str
    reason: str  # "granted", "floor", "lent", or "passed" (sent by Dask)
    why: str  # in words


@dataclass(eq=False)
class Pool(JobQueue):
    """Tasks of one job, and its place among the jobs that contend for slots."""

    client: str = ""  # id of the client that owns the job
    reports: bool = True  # False for the unowned tasks of a client
    durations: Durations = field(default_factory=Durations)
    floor: bool = False  # whether a floor was set explicitly

    tasks: set[TaskState] = field(default_factory=set)
    unfinished: set[TaskState] = field(default_factory=set)  # they wait, are ready, or run
    inner: set[TaskState] = field(default_factory=set)  # those that its tasks have submitted
    waiting: int = 0  # tasks that wait in a report
    is_open: bool = False  # whether tasks came after some had ended: more may come
    bytes_at: dict[str, float] = field(default_factory=dict)  # of inputs, by worker; they decay

    @property
    def borrowed(self) -> float:
        """Threads that its tasks use above those granted, of which a newcomer has none yet."""
        used = sum(sent.threads for sent in self.running.values() if sent.start is not None)
        return max(used - self.lent - self.shown_share, 0.0)

    @property
    def shown_share(self) -> float:
        """Threads that it was granted; 0 before the first decision on it."""
        return self.granted.share if self.granted.index < math.inf else 0.0

    @property
    def demand(self) -> int:
        """Number of tasks that have a thread or could use one."""
        return len(self.ready) + len(self.running) + self.waiting

    @property
    def computing(self) -> int:
        """Number of tasks that compute."""
        return sum(sent.start is not None for sent in self.running.values())

    def without_thread(self, holding: bool) -> int:
        """Return the number of tasks that are ready, and do not compute."""
        ready = len(self.ready)
        if not holding:  # Dask keeps them
            ready = sum(ts.state in ("queued", "no-worker") for ts in self.unfinished)
        return ready + len(self.running) - self.computing

    @property
    def submitted(self) -> float:
        """Core-seconds that its unfinished tasks take; nan if unknown.

        Of a job that submits again and again it is at least what it usually submits at once.
        """
        if not self.ended:
            return math.nan
        seconds = len(self.unfinished) * self.used / self.ended
        return max(seconds, self.gaps.spell) if self.is_open else seconds

    def handover_of(self, ts: TaskState, direct: bool) -> Handover:
        """Return the way of a ready task, which waits; Dask decides where, if it is `direct`."""
        nbytes = input_bytes(ts)
        like = self.durations.like(ts, nbytes)
        return Handover(self, ts, like, nbytes=nbytes, direct=direct)

    def describe(self, task: Handover, scheduler: Scheduler, count: int, label: str | None) -> None:
        """Find out what a ready task needs, and add the bytes of its inputs to their workers'.

        `count` is a unique number that orders tasks of equal priority, and `label` has a limit.
        """
        ts = task.ts
        user, needs = ts.worker_restrictions, ts.resource_restrictions
        if user or needs or label is not None:
            resources = tuple(sorted(needs.items())) if needs else None
            task.constraints = TaskConstraints(frozenset(user) if user else None, resources, label)
        cheap = constants.MESSAGE_SECONDS * scheduler.bandwidth
        if task.nbytes > cheap:
            task.preferred = self._preferred_of(ts, scheduler, task.constraints, cheap)
        task.rank = task.rootish, ts.priority or (), count
        task.loads = not ts.dependencies

    def _preferred_of(
        self, ts: TaskState, scheduler: Scheduler, constraints: TaskConstraints, cheap: float
    ) -> tuple[str, ...]:
        held: dict[str, int] = {}
        for dep in ts.dependencies:
            for ws in dep.who_has or ():
                part = dep.nbytes / len(dep.who_has or ())
                self.bytes_at[ws.address] = self.bytes_at.get(ws.address, 0.0) + part
                if constraints is ANY or constraints.allows(ws):
                    held[ws.address] = held.get(ws.address, 0) + dep.nbytes
        most = max(held.values(), default=0)
        near = min(cheap, most / 10)
        preferred = tuple(sorted([a for a, size in held.items() if most - size <= near]))
        few = min(constants.MOST_COMPARED, len(scheduler.running))
        return preferred if most > cheap and len(preferred) < few else ()

    def adopt(self, ts: TaskState) -> None:
        """Add an unfinished task that another job submitted."""
        self.tasks.add(ts)
        self.unfinished.add(ts)

    def drop(self, ts: TaskState) -> None:
        """Remove a task."""
        for some in (self.tasks, self.unfinished, self.inner):
            some.discard(ts)

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
