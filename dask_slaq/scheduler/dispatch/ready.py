"""Ready tasks: what each needs of its worker, and which is first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.dispatch.durations import Like

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState


class Entry(NamedTuple):
    """Ready task in a pool. Entries sort in the order in which Dask would send them."""

    order: tuple[Any, ...]  # see `order_of`
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which nothing uses
    ts: TaskState
    kind: Kind
    homes: tuple[str, ...]  # workers where it runs without moving much data; empty if any will do
    near: tuple[str, ...]  # workers that have its inputs, if any will do
    moving: float  # seconds to move its inputs to another worker
    expected: float  # compute time, seconds
    like: Like  # compute times of similar tasks
    rootish: bool  # whether Dask would queue it


def order_of(priority: tuple[Any, ...] | None, rootish: bool) -> tuple[Any, ...]:
    """Return the sort key of a ready task: Dask's priority, but with root tasks after the others.

    Dask sends other tasks to workers as soon as they are ready, while root tasks wait in its queue,
    whatever their priority. By priority alone, results would stay in memory until all root tasks
    before their users had run.

    Parameters
    ----------
    priority : tuple, optional
        Priority of the task; its first element comes from the user.
    rootish : bool
        Whether Dask would queue the task.
    """
    return (rootish, *(priority or ()))


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

_Place = tuple[tuple[Any, ...], int]  # order and count of an entry


@dataclass(slots=True)
class _Alike:
    """Tasks at a home that are alike: a task with several homes counts in part at each."""

    like: Like
    expected: float  # compute time of each until one has ended, in seconds
    tasks: float = 0.0


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
        self._alike_at: dict[str, dict[int, _Alike]] = {}  # tasks at each home, by id of their like
        self.count_at: Counter[str] = Counter()  # tasks at each home; "" for those without a home

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        place = entry.order, entry.count
        self._entries[entry.count] = entry
        if not entry.homes:
            self.count_at[""] += 1
            heapq.heappush(self._anywhere, place)
        for address in entry.near:
            heapq.heappush(self._near.setdefault(address, []), place)
        for home in entry.homes:
            self.count_at[home] += 1
            heapq.heappush(self._at.setdefault(home, []), place)
            alike = self._alike_at.setdefault(home, {})
            if (known := alike.get(id(entry.like))) is None:
                known = alike[id(entry.like)] = _Alike(entry.like, entry.expected)
            known.tasks += 1 / len(entry.homes)

    def left(self, entry: Entry) -> None:
        """Remove a task that is no longer ready."""
        self._entries.pop(entry.count, None)
        if not entry.homes:
            self.count_at[""] -= 1
        for home in entry.homes:
            self.count_at[home] -= 1
            if (alike := self._alike_at.get(home)) is not None:
                alike[id(entry.like)].tasks -= 1 / len(entry.homes)

    def has(self, entry: Entry) -> bool:
        """Return whether a task is ready."""
        return self._entries.get(entry.count) is entry

    def check(self) -> None:
        """Check that each task is found where it has its home. Raises `AssertionError`."""
        anywhere, at = set(self._anywhere), {home: set(heap) for home, heap in self._at.items()}
        for entry in self._entries.values():
            place = entry.order, entry.count
            lists = [at.get(home, ()) for home in entry.homes] or [anywhere]
            assert all(place in known for known in lists), f"{entry.ts} is not to be found"

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
            self._alike_at.pop(home, None)
        return entry

    def seconds_at(self, home: str) -> float:
        """Return the expected compute time of the tasks at a home, by what is known of them now."""
        return sum(
            alike.tasks * (alike.like.mean if alike.like.count else alike.expected)
            for alike in self._alike_at.get(home, {}).values()
        )

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
