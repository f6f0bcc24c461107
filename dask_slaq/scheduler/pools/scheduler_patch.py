"""Seam to Dask's scheduler: holds ready tasks, and knows what differs between Dask's releases.

In all supported releases the scheduler asks `is_rootish` whether a ready task may be queued,
`decide_worker_rootish_queuing_enabled` or `decide_worker_non_rootish` for its worker, where None
means that it waits in the queue, or in ``no-worker``; and it calls
`stimulus_queue_slots_maybe_opened` wherever a slot may have opened. While tasks are held, these are
overridden on the scheduler instance, and ``queued`` is a `Queue`, from which tasks of pools are
sent. Tasks keep the restrictions and priorities that users gave them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.dispatch import Handover, Way
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.pools.queue import IdleWorkers, Queue, ReadyTasks
from dask_slaq.scheduler.pools.task_control import TaskControl

#: Methods of the scheduler that are overridden.
OVERRIDDEN = (
    "is_rootish",
    "decide_worker_non_rootish",
    "decide_worker_rootish_queuing_enabled",
    "stimulus_queue_slots_maybe_opened",
)
#: Worker-saturation while tasks of pools are queued, where Dask is to queue nothing: its default,
#: but for the last digit, so that one that somebody sets meanwhile stays.
SATURATION = math.nextafter(1.1, 2.0)


class SchedulerPatch:
    """Override of the scheduler's choice of workers for ready tasks that are held.

    `tasks` is asked and told, and `control` sends. `fall_back` is called with an error, after which
    the scheduler's own method answers.

    Somebody else may override the same methods later, around ours, and may call ours for as long
    as they like. So each of our functions keeps what it was put around. It passes everything on
    while nothing is held, and nothing is put around it a second time.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        control: TaskControl,
        tasks: ReadyTasks,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._scheduler, self._control, self.tasks, self.fall_back = scheduler, control, tasks, fail
        self.queue = Queue(control, tasks)

    def install(self) -> None:
        """Override the scheduler's methods and queue, unless they are ours already."""
        for name in OVERRIDDEN:
            plain = getattr(self._scheduler, name)
            if not self._is_ours(plain):
                setattr(self._scheduler, name, self._around(plain, getattr(self, f"_{name}")))
        scheduler: Any = self._scheduler
        if scheduler.queued is not self.queue:
            self.queue.plain, scheduler.queued = scheduler.queued, self.queue
            if scheduler.validate:
                scheduler.idle_task_count = IdleWorkers(scheduler.idle_task_count, self._control)

    def remove(self) -> None:
        """Restore them once no task of a pool is queued, except what others have overridden."""
        scheduler: Any = self._scheduler
        if self.queue.held:
            return
        if scheduler.queued is self.queue:
            scheduler.queued, self.queue.plain = self.queue.plain, ()
            if scheduler.validate:
                scheduler.idle_task_count = set(scheduler.idle_task_count)
            if scheduler.WORKER_SATURATION == SATURATION:
                scheduler.WORKER_SATURATION = math.inf
        for name in OVERRIDDEN:
            ours: Any = vars(self._scheduler).get(name)
            if self._is_ours(ours):
                delattr(self._scheduler, name)
                if getattr(self._scheduler, name) != ours.plain:
                    setattr(self._scheduler, name, ours.plain)

    def _around(self, plain: Any, answer: Callable[..., Any]) -> Any:
        new: Any = functools.update_wrapper(functools.partial(answer, plain), plain)
        new.plain, new.mark = plain, (new, self)
        return new

    def _is_ours(self, function: Any) -> bool:
        """Return whether a function is ours, and not one around it to which our mark was copied."""
        made, by = getattr(function, "mark", (None, None))
        return made is function and by is self

    @guarded_as(always=True)
    def ask(self, ts: TaskState) -> Handover | bool | None:
        """Return what `ReadyTasks.asked` does. A task waits in ours alone, not in another queue."""
        task: Handover | bool = self.tasks.asked(ts)
        queued: Any = self._scheduler.queued
        return task if queued is self.queue or isinstance(task, bool) else True

    @guarded_as(always=True)
    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task must wait."""
        return self.tasks.is_held(ts)

    @guarded_as(always=True, otherwise=lambda self, task, plain: plain(task.ts))
    def send_at_once(self, task: Handover, plain: Callable[[TaskState], Any]) -> WorkerState | None:
        """Return the worker of a task that is sent at once, though others like it are held."""
        return self.tasks.send_at_once(task, plain)

    # What is asked, instead of what is plain

    def _is_rootish(self, plain: Callable[[TaskState], bool], ts: TaskState) -> bool:
        self._control.current = None
        task = self.ask(ts)
        if not isinstance(task, Handover):
            return not task and plain(ts)
        scheduler: Any = self._scheduler
        if math.isinf(scheduler.WORKER_SATURATION):  # else Dask would queue nothing
            scheduler.WORKER_SATURATION = SATURATION
        task.rootish = plain(ts)
        self._control.current = task
        return True

    def _decide_worker_rootish_queuing_enabled(
        self, plain: Callable[[], WorkerState | None]
    ) -> WorkerState | None:
        task = self._control.current
        if task is None:
            return plain()
        if task.way is Way.GOES:
            return self._begin(task)
        if task.direct or not task.ts.dependencies:
            return None
        found = self.send_at_once(task, self._scheduler.decide_worker_non_rootish)
        if found is not None:
            self._control.current = None
        return found

    def _decide_worker_non_rootish(
        self, plain: Callable[[TaskState], WorkerState | None], ts: TaskState
    ) -> WorkerState | None:
        task = self._control.current
        if (
            task is not None and task.ts is ts
        ):  # Dask sends it; if not, `send_at_once` asks, as Dask would
            return self._begin(task) if task.way is Way.GOES else plain(ts)
        return None if self.is_held(ts) else plain(ts)

    def _begin(self, task: Handover) -> WorkerState:
        self._control.current = None
        self.tasks.prepare(task)
        return self._scheduler.workers[task.worker]

    def _stimulus_queue_slots_maybe_opened(
        self, plain: Callable[..., None], *, stimulus_id: str
    ) -> None:
        queue, self._control.current = self.queue, None
        queue.hidden = True
        try:
            plain(stimulus_id=stimulus_id)
        finally:
            queue.hidden = False
        if queue.held:
            self.tasks.slots_opened()
