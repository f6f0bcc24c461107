"""Queue of Dask's scheduler, with the tasks of pools beside Dask's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import TaskState


class IdleWorkers(set[Any]):
    """Dask's set of workers that are not saturated, false while the queue takes a pool's task.

    Dask's validation allows no task to go to the queue otherwise.
    """

    def __init__(self, workers: set[Any], queue: Queue) -> None:
        super().__init__(workers)
        self._queue = queue

    def __bool__(self) -> bool:
        return len(self) > 0 and self._queue.taking is None


class Queue:
    """Dask's own queue, and beside it the tasks of pools, which Dask must not send by itself.

    So it is true, and has a first task, as Dask's own does. Its length and iteration are of all.
    """

    came: Callable[[TaskState, bool], object]
    left: Callable[[TaskState], object]

    def __init__(self) -> None:
        self.plain: Any = ()  # Dask's own queue
        self.held: dict[TaskState, None] = {}  # tasks of pools
        # Task of a pool that is about to come, and whether Dask itself would queue it.
        self.coming: tuple[TaskState, bool] | None = None
        self.taking: TaskState | None = None  # the same, once Dask was told so

    def __bool__(self) -> bool:
        return bool(self.plain)

    def __len__(self) -> int:
        return len(self.held) + len(self.plain)

    def __contains__(self, ts: object) -> bool:
        return ts in self.held or ts in self.plain

    def __iter__(self) -> Iterator[TaskState]:
        return chain(list(self.held), self.plain)

    def __getattr__(self, name: str) -> Any:  # `peek` and what else others ask of Dask's own
        return getattr(self.plain, name)

    def add(self, ts: TaskState) -> None:
        """Add a task."""
        coming, self.coming, self.taking = self.coming, None, None
        if coming is None or coming[0] is not ts:
            self.plain.add(ts)
        else:
            self.held[ts] = None
            self.came(*coming)

    def discard(self, ts: TaskState) -> None:
        """Remove a task, if it is here."""
        if ts in self.held:
            del self.held[ts]
            self.left(ts)
        else:
            self.plain.discard(ts)

    remove = discard
