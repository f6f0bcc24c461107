"""Ready tasks: what each needs of its worker, where its inputs are, and which is first."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dask_slaq.core.dispatch.constants import TRIVIAL_SECONDS

#: Entries of a heap, besides two for each task that is there, above which those of others go.
FEW_ENTRIES = 16
#: Preferred workers of a task that has none.
NOWHERE = ("",)


class Supply(Protocol):
    """What tasks need of a worker: Dask's state of it, or `Slots`."""

    @property
    def address(self) -> str:
        """Address of the worker."""

    @property
    def resources(self) -> Mapping[str, float]:
        """Amounts of its resources."""

    @property
    def used_resources(self) -> Mapping[str, float]:
        """Amounts that its tasks use."""


def supplies(ws: Supply, needs: Iterable[tuple[str, float]]) -> bool:
    """Return whether enough of each resource is free on a worker."""
    have, used = ws.resources, ws.used_resources
    return all(have.get(name, 0) - used.get(name, 0) >= amount for name, amount in needs)


class TaskConstraints(NamedTuple):
    """Requirements of a task on its worker."""

    allowed: frozenset[str] | None  # addresses, from the user's ``workers=``
    resources: tuple[tuple[str, float], ...] | None
    label: str | None = None  # that has a limit, see `Limits`

    def allows(self, ws: Supply) -> bool:
        """Return whether the task may ever run on a worker."""
        if self.allowed is not None and ws.address not in self.allowed:
            return False
        return all(ws.resources.get(r, 0) >= n for r, n in self.resources or ())

    def suits(self, ws: Supply) -> bool:
        """Return whether the task may run on a worker now: enough of each resource is free."""
        return self.allows(ws) and supplies(ws, self.resources or ())


#: No constraints: any worker may run the task, whatever else runs there. A single object.
ANY = TaskConstraints(None, None)


@dataclass(slots=True, eq=False)
class DurationEstimate:
    """Compute times of similar tasks of one job: running mean in seconds, and mean deviation."""

    mean: float = math.inf
    deviation: float = 0.0
    soonest: float = field(init=False)  # plausible lower bound
    # Those of all jobs, used until a task of this job has ended: most of many jobs have hardly any.
    everywhere: DurationEstimate | None = None
    again: bool = False  # whether it was asked for since some were forgotten

    def __post_init__(self) -> None:
        self.soonest = max(self.mean - 2 * self.deviation, 0.0)

    def observe(self, seconds: float) -> None:
        """Record the compute time of a finished task, in seconds."""
        like: DurationEstimate | None = self
        while like is not None:
            if like.mean == math.inf:
                like.mean = seconds
            off = seconds - like.mean
            like.mean += 0.5 * off  # the weight of the newest task in Dask's running mean
            like.deviation += 0.5 * (abs(off) - like.deviation)
            like.soonest = max(like.mean - 2 * like.deviation, 0.0)
            like = like.everywhere

    @property
    def is_trivial(self) -> bool:
        """Whether such a task usually takes less than `TRIVIAL_SECONDS`."""
        like = self if self.mean < math.inf or self.everywhere is None else self.everywhere
        return like.mean + like.deviation < TRIVIAL_SECONDS

    @property
    def expected(self) -> float:
        """Expected compute time in seconds; infinite if unknown."""
        if self.mean < math.inf or self.everywhere is None or not self.is_trivial:
            return self.mean
        return self.everywhere.mean

    @property
    def usual(self) -> float:
        """Compute time in seconds here, or else in all jobs; infinite if unknown."""
        if self.mean < math.inf or self.everywhere is None:
            return self.mean
        return self.everywhere.mean


class ReadyTask(Protocol):
    """Ready task as `Ready` files it."""

    rank: tuple[Any, ...]  # sorts tasks; the last element is a unique number
    preferred: tuple[str, ...]  # workers with nearly all of its inputs
    rootish: bool  # whether Dask would queue it


Task = TypeVar("Task", bound=ReadyTask)
Job = TypeVar("Job")


class Ready(Generic[Task]):
    """Ready tasks of the same constraints, by preferred worker and in Dask's order.

    A task with several preferred workers is listed at each of them. The heaps drop a task
    that is no longer ready when it comes to the top. They do not refer to the task itself: Dask's
    queue mistakes a forgotten task that is still referenced for a new task of the same key.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}  # by the last element of their rank
        self._heaps: dict[str, list[tuple[Any, ...]]] = {}  # ranks by preferred worker; "" for none
        self.count_at: Counter[str] = Counter()  # tasks at each preferred worker

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: Task) -> bool:
        return self._tasks.get(task.rank[2]) is task

    def push(self, task: Task) -> None:
        """Add a ready task."""
        rank = task.rank
        self._tasks[rank[2]] = task
        for preferred in task.preferred or NOWHERE:
            self.count_at[preferred] += 1
            heap = self._heaps.get(preferred)
            if heap is None:
                self._heaps[preferred] = [rank]
            else:
                heapq.heappush(heap, rank)

    def pop(self, task: Task) -> bool:
        """Remove a task that is no longer ready. Returns whether it was here."""
        if self._tasks.pop(task.rank[2], None) is None:
            return False
        for preferred in task.preferred or NOWHERE:
            self.count_at[preferred] -= 1
            heap, left = self._heaps.get(preferred, ()), self.count_at[preferred]
            if not left:
                del self.count_at[preferred]
                self._heaps.pop(preferred, None)
            elif len(heap) > 2 * left + FEW_ENTRIES:  # most were sent from elsewhere
                heap = self._heaps[preferred] = [each for each in heap if each[2] in self._tasks]
                heapq.heapify(heap)
        return True

    def at(self, preferred: str = "") -> Task | None:
        """Return the first task that prefers a worker, or that prefers none; None without."""
        heap = self._heaps.get(preferred)
        while heap:
            task = self._tasks.get(heap[0][2])
            if task is not None:
                return task
            heapq.heappop(heap)
        self._heaps.pop(preferred, None)
        return None

    @property
    def preferred(self) -> Collection[str]:
        """Workers that are, or were, preferred by a task; "" for those that prefer none."""
        return self._heaps.keys()


class Waiting(Generic[Job]):
    """Pools that have ready tasks, and by what these wait for. Pools keep it up to date."""

    def __init__(self) -> None:
        self.pools: dict[Job, None] = {}  # with a ready task
        self.scarce = 0  # constraints of tasks, of all pools, that need something of their worker
        self.sent_by_dask: dict[Job, None] = {}  # with tasks on workers that Dask has sent
        self.coming: set[Job] = set()  # whose gaps without ready tasks are short
        self.movable = 0  # filed tasks that are no root tasks and prefer no worker
        self.at: dict[str, dict[Job, int]] = {}  # number of tasks by preferred worker, or ""

    def file(self, pool: Job, task: ReadyTask) -> None:
        """Count a ready task of a pool at its preferred workers."""
        self.movable += not (task.rootish or task.preferred)
        for preferred in task.preferred or NOWHERE:
            here = self.at.get(preferred)
            if here is None:
                here = self.at[preferred] = {}
            here[pool] = here.get(pool, 0) + 1

    def remove(self, pool: Job, task: ReadyTask) -> None:
        """Count a task of a pool no longer."""
        self.movable -= not (task.rootish or task.preferred)
        for preferred in task.preferred or NOWHERE:
            here = self.at[preferred]
            here[pool] -= 1
            if not here[pool]:
                del here[pool]
                if not here:
                    del self.at[preferred]

    def check(self, pools: Collection[Any]) -> None:
        """Raise `AssertionError` unless the index agrees with the `pools`."""
        assert self.pools.keys() == {pool for pool in pools if pool.ready}, "pools that wait"
        assert self.sent_by_dask.keys() == {pool for pool in pools if pool.sent_by_dask}, (
            "tasks sent by Dask"
        )
        scarce = sum(constraints is not ANY for pool in pools for constraints in pool.filed)
        assert self.scarce == scarce, "constraints of tasks"
        filed = [
            (p, t) for p in pools for t in p.ready.values() if t in p.filed.get(t.constraints, ())
        ]
        movable = sum(not (task.rootish or task.preferred) for _, task in filed)
        assert self.movable == movable, "tasks that any worker may take"
        at: dict[str, dict[Job, int]] = {}
        for pool, task in filed:
            for preferred in task.preferred or NOWHERE:
                here = at.setdefault(preferred, {})
                here[pool] = here.get(pool, 0) + 1
        assert self.at == at, "tasks by preferred worker"
