"""Queue of Dask's scheduler, with the tasks of pools in the order of their jobs.

In all supported releases the scheduler asks `is_rootish` whether a ready task may be queued,
`decide_worker_rootish_queuing_enabled` for its worker, and calls
`stimulus_queue_slots_maybe_opened` wherever a slot may have opened. While tasks wait in pools,
these are overridden, and ``queued`` is a `Queue`: tasks of pools are sent from there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.pools.seam import OVERRIDDEN, Seam

if TYPE_CHECKING:
    from distributed.scheduler import TaskState, WorkerState

#: Methods of the scheduler that are overridden, too.
QUEUE = ("decide_worker_rootish_queuing_enabled", "stimulus_queue_slots_maybe_opened")
#: Worker-saturation while tasks of pools are queued, where Dask is to queue nothing: its default.
SATURATION = 1.1


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

    def peek(self) -> TaskState:
        """Return some first task."""
        return next(iter(self))

    def peekn(self, n: int) -> Iterator[TaskState]:
        """Yield some first tasks."""
        return islice(self, n)


class QueueSeam(Seam):
    """Override of the scheduler's queue.

    `is_queued` returns whether a ready task waits in the queue for its pool to send it, and `fill`
    is called where a slot may have opened.
    """

    overridden = (*OVERRIDDEN, *QUEUE)

    def __init__(
        self,
        *args: Any,
    ) -> None:
        super().__init__(*args)
        self.queue = Queue()
        self._asked: TaskState | None = None  # the task of a pool about which Dask asks
        self._saturation = math.nan

    def connect(
        self,
        is_queued: Callable[[TaskState], bool],
        came: Callable[[TaskState, bool], object],
        left: Callable[[TaskState], object],
        flow: Callable[..., WorkerState | None],
        fill: Callable[[], object],
    ) -> None:
        """Set whom to ask and to tell."""
        self._is_queued, self._flow, self._fill = is_queued, flow, fill
        self.queue.came, self.queue.left = came, left

    def install(self) -> None:
        """Override the scheduler's methods and queue, unless they are ours already."""
        super().install()
        scheduler: Any = self._scheduler
        if scheduler.queued is not self.queue:
            self.queue.plain, scheduler.queued = scheduler.queued, self.queue
            scheduler.idle_task_count = IdleWorkers(scheduler.idle_task_count)
            self._saturation = scheduler.WORKER_SATURATION
            if math.isinf(self._saturation):
                scheduler.WORKER_SATURATION = SATURATION

    def remove(self) -> None:
        """Restore them, once no task of a pool is queued."""
        scheduler: Any = self._scheduler
        if self.queue.held:
            return
        if scheduler.queued is self.queue:
            scheduler.queued, self.queue.plain = self.queue.plain, ()
            scheduler.idle_task_count = set(scheduler.idle_task_count)
            scheduler.WORKER_SATURATION = self._saturation
        super().remove()

    @guarded_as(always=True)
    def is_queued(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in the queue for its pool to send it."""
        return ts._queueable and self._is_queued(ts)

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """Have Dask see its own queue only, and the workers with slots for it."""
        scheduler: Any = self._scheduler
        queue, idle = scheduler.queued, scheduler.idle_task_count
        scheduler.queued, idle.hides = self.queue.plain, False
        try:
            yield
        finally:
            scheduler.queued, idle.hides = queue, True

    def _dasks_choice(self, ts: TaskState) -> WorkerState | None:
        self._passes = True
        try:
            return self._scheduler.decide_worker_non_rootish(ts)
        finally:
            self._passes = False

    def _is_rootish(self, plain: Callable[[TaskState], bool], ts: TaskState) -> bool:
        if self._passes:
            return plain(ts)
        if self.is_queued(ts):
            self._asked, self.queue.coming[ts] = ts, plain(ts)
            return True
        self._asked = None
        if self.queue.coming:
            self.queue.coming.pop(ts, None)
        return not self.is_kept_from_queue(ts) and plain(ts)

    def _decide_worker_rootish_queuing_enabled(
        self, plain: Callable[[], WorkerState | None]
    ) -> WorkerState | None:
        for ws in self.sending.values():
            return ws
        ts, self._asked = self._asked, None
        if ts is not None:
            found = self.flow(ts, self._dasks_choice) if ts.dependencies else None
            if found is not None:
                del self.queue.coming[ts]
            return found
        scheduler: Any = self._scheduler
        if scheduler.queued is not self.queue:
            return plain()
        with self._plainly():
            return plain()

    def _decide_worker_non_rootish(
        self, plain: Callable[[TaskState], WorkerState | None], ts: TaskState
    ) -> WorkerState | None:
        if ts in self.sending:
            return self.sending[ts]
        return None if self.is_held(ts) else plain(ts)

    def _stimulus_queue_slots_maybe_opened(
        self, plain: Callable[..., None], *, stimulus_id: str
    ) -> None:
        scheduler: Any = self._scheduler
        if scheduler.queued is not self.queue:
            plain(stimulus_id=stimulus_id)
            return
        if self.queue.plain:
            with self._plainly():
                plain(stimulus_id=stimulus_id)
        if self.queue.held:
            self._fill()
