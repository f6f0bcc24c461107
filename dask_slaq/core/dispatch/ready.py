"""Ready tasks of a job: what each needs of its worker, where its inputs are, and which is first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.like import Like


#: Entries of a heap, besides two for each task that is there, above which those of others go.
FEW = 16


class Supply(Protocol):
    """What tasks need of a worker: Dask's state of it, or a `Place`."""

    @property
    def address(self) -> str:
        """Address of the worker."""

    @property
    def nthreads(self) -> int:
        """Number of its threads."""

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


class TaskKind(NamedTuple):
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


#: Kind of tasks that any worker may run.
ANY = TaskKind(None, None)


def is_plain(kind: TaskKind) -> bool:
    """Return whether any worker may run a task, whatever else runs there."""
    return kind is ANY


class Entry(NamedTuple):
    """Ready task. Entries sort in the order in which Dask would send them.

    Dask sends other tasks as soon as they are ready, while root tasks wait in its queue, whatever
    their priority. By priority alone, results would stay in memory until all root tasks before
    their users had run.
    """

    rootish: bool  # whether Dask would queue it
    priority: tuple[Any, ...]
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which nothing uses
    ts: Any  # the task
    kind: TaskKind
    homes: tuple[str, ...]  # workers with nearly all of its inputs; empty if any worker will do
    like: Like  # compute times of similar tasks
    loads: bool = False  # whether it has no inputs
    name: str = ""  # of tasks that do the same, on any amount of data


class Ready:
    """Ready tasks of one kind, by home and in Dask's order.

    A task with several homes is listed at each of them. The heaps drop a task that is no longer
    ready when it comes to the top. They do not refer to the task itself: Dask's queue mistakes a
    forgotten task that is still referenced for a new task of the same key.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # by count
        self._heaps: dict[str, list[tuple[Any, ...]]] = {}  # by home; "" for none
        self.count_at: Counter[str] = Counter()  # tasks at each home

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: Entry) -> bool:
        return self._entries.get(entry.count) is entry

    def push(self, entry: Entry) -> None:
        """Add a ready task."""
        self._entries[entry.count] = entry
        item = entry[:3]
        for home in entry.homes or ("",):
            self.count_at[home] += 1
            heap = self._heaps.get(home)
            if heap is None:
                self._heaps[home] = [item]
            else:
                heapq.heappush(heap, item)

    def pop(self, entry: Entry) -> bool:
        """Remove a task that is no longer ready. Returns whether it was here."""
        if self._entries.pop(entry.count, None) is None:
            return False
        for home in entry.homes or ("",):
            self.count_at[home] -= 1
            heap, left = self._heaps.get(home, ()), self.count_at[home]
            if not left:
                del self.count_at[home]
                self._heaps.pop(home, None)
            elif len(heap) > 2 * left + FEW:  # most were sent from elsewhere
                heap = self._heaps[home] = [each for each in heap if each[2] in self._entries]
                heapq.heapify(heap)
        return True

    def at(self, home: str = "") -> Entry | None:
        """Return the first task that has its home on a worker, or that has none; None without."""
        heap = self._heaps.get(home)
        while heap:
            entry = self._entries.get(heap[0][2])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        self._heaps.pop(home, None)
        return None

    @property
    def homes(self) -> Collection[str]:
        """Workers that are, or were, home to a task; "" for tasks without a home."""
        return self._heaps.keys()
