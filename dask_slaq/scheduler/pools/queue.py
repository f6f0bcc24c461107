"""Queue of Dask's scheduler, with the tasks of pools beside Dask's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Any

from distributed.scheduler import TaskState, WorkerState

from dask_slaq.core.dispatch import Handover
from dask_slaq.scheduler.pools.task_control import TaskControl


class ReadyTasks(ABC):
    """Who decides whether ready tasks wait, and sends those that have waited."""

    @abstractmethod
    def asked(self, ts: TaskState) -> Handover | bool:
        """Return the `Handover` of a ready task to queue it, True to hold it, False for Dask."""

    @abstractmethod
    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in ``no-worker``."""

    @abstractmethod
    def send_at_once(
        self, task: Handover, plain: Callable[[TaskState], WorkerState | None]
    ) -> WorkerState | None:
        """Return the worker of a task that bypasses the queue, as `plain` chooses it; else None."""

    @abstractmethod
    def came(self, task: Handover) -> None:
        """File a task that has come to the queue."""

    @abstractmethod
    def left(self, task: Handover) -> None:
        """Follow a task that leaves the queue, sent or not."""

    @abstractmethod
    def prepare(self, task: Handover) -> None:
        """Restrict a task and set its priority: Dask takes it now."""

    @abstractmethod
    def slots_opened(self) -> None:
        """Send tasks soon: a slot may have opened."""


class IdleWorkers(set[Any]):
    """Dask's set of workers that are not saturated, false while the queue takes a pool's task.

    Only where ``distributed.scheduler.validate`` is set: it allows no task in the queue otherwise.
    """

    def __init__(self, workers: set[Any], control: TaskControl) -> None:
        super().__init__(workers)
        self._control = control

    def __bool__(self) -> bool:
        return len(self) > 0 and self._control.current is None


class Queue:
    """Dask's own queue, and the tasks of pools: `tasks` is told of each that comes and goes.

    While Dask takes tasks from it in its own order, those of pools are `hidden`.
    """

    def __init__(self, control: TaskControl, tasks: ReadyTasks) -> None:
        self._control, self._tasks = control, tasks
        self.plain: Any = ()  # Dask's own queue
        self.held: dict[TaskState, Handover] = {}  # tasks of pools
        self.hidden = False

    def __bool__(self) -> bool:
        return bool(self.plain) or (bool(self.held) and not self.hidden)

    def __len__(self) -> int:
        return len(self.held) + len(self.plain)

    def __contains__(self, ts: object) -> bool:
        return ts in self.held or ts in self.plain

    def __iter__(self) -> Iterator[TaskState]:
        return chain(list(self.held), self.plain)

    def __getattr__(self, name: str) -> Any:  # what else there is of Dask's own
        return getattr(self.plain, name)

    def peek(self) -> TaskState:
        """Return the first task in Dask's order. Raises `KeyError` if there is none."""
        for ts in self.peekn(1):
            return ts
        raise KeyError("peek into empty set")

    def peekn(self, n: int) -> Iterator[TaskState]:
        """Iterate over the first `n` tasks in Dask's order."""
        if self.hidden or not self.held:
            return iter(self.plain.peekn(n))
        return iter(nsmallest(n, self, key=lambda ts: ts.priority or ()))

    def sorted(self) -> Iterator[TaskState]:
        """Iterate over all tasks in Dask's order."""
        return self.peekn(len(self))

    def add(self, ts: TaskState) -> None:
        """Add a task."""
        control = self._control
        task, control.current = control.current, None
        if task is None or task.ts is not ts:
            self.plain.add(ts)
        else:
            self.held[ts] = task
            self._tasks.came(task)

    def discard(self, ts: TaskState) -> None:
        """Remove a task, if it is here."""
        task = self.held.pop(ts, None)
        if task is not None:
            self._tasks.left(task)
        else:
            self.plain.discard(ts)

    def remove(self, ts: TaskState) -> None:
        """Remove a task. Raises `KeyError` if it is not here."""
        if ts in self.held:
            self.discard(ts)
        else:
            self.plain.remove(ts)
