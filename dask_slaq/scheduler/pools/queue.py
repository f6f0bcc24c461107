"""Queue of Dask's scheduler, with the tasks of pools beside Dask's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import TaskState


class IdleWorkers(set[Any]):
    """Dask's set of workers that are not saturated, which it takes for empty while it `hides`.

    Its validation allows no task in the queue otherwise.
    """

    hides = True

    def __bool__(self) -> bool:
        return not self.hides and len(self) > 0


class Queue:
    """Tasks of pools, which are told of each that comes and goes, and Dask's own queue."""

    came: Callable[[TaskState, bool], object]
    left: Callable[[TaskState], object]

    def __init__(self) -> None:
        self.plain: Any = ()  # Dask's own queue
        self.held: dict[TaskState, None] = {}
        # Tasks of pools that are about to come, and whether Dask itself would queue them.
        self.coming: dict[TaskState, bool] = {}

    def __len__(self) -> int:
        return len(self.held) + len(self.plain)

    def __contains__(self, ts: object) -> bool:
        return ts in self.held or ts in self.plain

    def __iter__(self) -> Iterator[TaskState]:
        return chain(list(self.held), self.plain)

    def add(self, ts: TaskState) -> None:
        """Add a task."""
        rootish = self.coming.pop(ts, None)
        if rootish is None:
            self.plain.add(ts)
        else:
            self.held[ts] = None
            self.came(ts, rootish)

    def discard(self, ts: TaskState) -> None:
        """Remove a task, if it is here."""
        if ts in self.held:
            del self.held[ts]
            self.left(ts)
        else:
            self.plain.discard(ts)

    remove = discard

    # What Dask and others ask of a `HeapSet`. If somebody takes our override of the function away
    # that fills slots, Dask takes tasks of pools in its own order.

    def sorted(self) -> Iterator[TaskState]:
        """Iterate in Dask's order."""
        return iter(sorted(self, key=lambda ts: ts.priority))

    def peekn(self, n: int) -> Iterator[TaskState]:
        """Iterate over the first `n` tasks."""
        return iter(nsmallest(n, self, key=lambda ts: ts.priority))

    def peek(self) -> TaskState:
        """Return the first task. Raises `KeyError` if there is none."""
        for ts in self.peekn(1):
            return ts
        raise KeyError("peek into empty set")

    def pop(self) -> TaskState:
        """Remove the first task, and return it."""
        ts = self.peek()
        self.discard(ts)
        return ts
