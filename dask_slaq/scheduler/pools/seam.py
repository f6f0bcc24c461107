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
from typing import Any, NamedTuple

from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.dispatch import constants
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.pools.queue import IdleWorkers, Queue

_BARRIER = "shuffle-barrier-"
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


class Sending(NamedTuple):
    """Task that is to be sent to a worker.

    Work stealing may move it to the `workers` of its job, but not if it is `bound` by its inputs.
    On the worker lower orders compute first, before all tasks that were not sent.
    """

    ts: TaskState
    ws: WorkerState
    workers: frozenset[str]
    order: tuple[float, ...]
    bound: bool = False


class Seam:
    """Override of the scheduler's choice of workers for ready tasks that are held.

    `is_queued` returns whether a ready task waits in the queue for its pool to send it; what else
    `is_held` waits in ``no-worker``. `flow` is asked for the worker of a task that would be queued,
    and returns None to queue it. `fill` is called where a slot may have opened. `fail` is called
    with an error, after which the scheduler's own method answers.

    Somebody else may override the same methods later, around ours, and may call ours for as long
    as they like. So each of our functions keeps what it was put around. It passes everything on
    while nothing is held, and nothing is put around it a second time.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        is_held: Callable[[TaskState], bool],
        may_be_held: Callable[[TaskState], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._scheduler, self._is_held, self._may_be_held = scheduler, is_held, may_be_held
        self.fall_back = fail
        self.queue = Queue()
        self._passes = False  # whether all that is asked goes to what is plain
        self.sending: Sending | None = None  # what is sent when Dask asks for its worker

    def connect(
        self,
        is_queued: Callable[[TaskState], bool],
        came: Callable[[TaskState, bool], object],
        left: Callable[[TaskState], object],
        flow: Callable[..., WorkerState | None],
        fill: Callable[[], object],
        begin: Callable[[Sending], object],
    ) -> None:
        """Set whom to ask and to tell; `begin` is called when Dask takes what is sent."""
        self._is_queued, self._flow, self._fill, self._begin = is_queued, flow, fill, begin
        self.queue.came, self.queue.left = came, left

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
                scheduler.idle_task_count = IdleWorkers(scheduler.idle_task_count, self.queue)

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

    def is_rootish(self, ts: TaskState) -> bool:
        """Return whether Dask would queue a task if it were not held."""
        self._passes = True
        try:
            return self._scheduler.is_rootish(ts)
        finally:
            self._passes = False

    @guarded_as(always=True)
    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task must wait."""
        return not self._passes and self._is_held(ts)

    @guarded_as(always=True, otherwise=lambda self, ts, plain: plain(ts))
    def flow(self, ts: TaskState, plain: Callable[[TaskState], Any]) -> WorkerState | None:
        """Return the worker of a task that is sent at once, though others like it are held."""
        return self._flow(ts, plain)

    @guarded_as(always=True)
    def is_kept_from_queue(self, ts: TaskState) -> bool:
        """Return whether a task must not go to Dask's queue."""
        return not self._passes and (self._is_held(ts) or self._may_be_held(ts))

    @guarded_as(always=True)
    def is_queued(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in the queue for its pool to send it."""
        return ts._queueable and self._is_queued(ts)

    def _dasks_choice(self, ts: TaskState) -> WorkerState | None:
        self._passes = True
        try:
            return self._scheduler.decide_worker_non_rootish(ts)
        finally:
            self._passes = False

    # What is asked, instead of what is plain

    def _is_rootish(self, plain: Callable[[TaskState], bool], ts: TaskState) -> bool:
        if self._passes:
            return plain(ts)
        queue: Queue = self.queue
        scheduler: Any = self._scheduler
        queue.coming = queue.taking = None
        if scheduler.queued is queue and self.is_queued(ts):
            if math.isinf(scheduler.WORKER_SATURATION):  # else Dask would queue nothing
                scheduler.WORKER_SATURATION = SATURATION
            queue.coming = ts, plain(ts)
            return True
        return not self.is_kept_from_queue(ts) and plain(ts)

    def _decide_worker_rootish_queuing_enabled(
        self, plain: Callable[[], WorkerState | None]
    ) -> WorkerState | None:
        if self.sending is not None:
            return self._send()
        queue = self.queue
        if queue.coming is None:
            return plain()
        ts, _ = queue.coming
        found = self.flow(ts, self._dasks_choice) if ts.dependencies else None
        if found is not None:
            queue.coming = None
        else:
            queue.taking = ts
        return found

    def _decide_worker_non_rootish(
        self, plain: Callable[[TaskState], WorkerState | None], ts: TaskState
    ) -> WorkerState | None:
        if self.sending is not None and self.sending.ts is ts:
            return self._send()
        return None if self.is_held(ts) else plain(ts)

    def _send(self) -> WorkerState:
        sending, self.sending = self.sending, None
        assert sending is not None
        self._begin(sending)
        return sending.ws

    def _stimulus_queue_slots_maybe_opened(
        self, plain: Callable[..., None], *, stimulus_id: str
    ) -> None:
        self.queue.taking, self.queue.hidden = None, True
        try:
            plain(stimulus_id=stimulus_id)
        finally:
            self.queue.hidden = False
        if self.queue.held:
            self._fill()


def is_direct(ts: TaskState) -> bool:
    """Return whether Dask alone decides where and when a task runs.

    These are actors; tasks pinned to one worker or to hosts, and those that use small results of
    such a task, which may be impossible to move, like the sockets by which LightGBM's workers find
    each other; and barriers and outputs of P2P shuffles, which Dask's shuffle plugin places.
    """
    if ts.actor or ((ts.worker_restrictions or ts.host_restrictions) and is_pinned(ts)):
        return True
    key = ts.key
    if isinstance(key, str) and key.startswith(_BARRIER):
        return True
    if len(ts.dependencies) > 4:  # no library's, and it costs time
        return False
    for dep in ts.dependencies:
        key = dep.key
        if isinstance(key, str) and key.startswith(_BARRIER):
            return True
        if dep.annotations and dep.nbytes <= constants.NOT_DATA and _is_bound(dep):
            return True
    return False


def is_dasks(ts: TaskState) -> bool:
    """Return whether no limit of an owner keeps a task: an actor, or the end of a P2P shuffle."""
    return ts.actor or _is_barrier(ts.key) or any(_is_barrier(dep.key) for dep in ts.dependencies)


def bound_to(ts: TaskState) -> set[str]:
    """Return the workers with small results of pinned tasks that a task uses; empty without."""
    few = ts.dependencies if len(ts.dependencies) <= 4 else ()
    return {ws.address for dep in few if _is_bound(dep) for ws in dep.who_has or ()}


def _is_bound(dep: TaskState) -> bool:
    """Return whether the result of a task may be impossible to move."""
    return (
        dep.nbytes <= constants.NOT_DATA and is_pinned(dep) and "workers" in (dep.annotations or ())
    )


def is_pinned(ts: TaskState) -> bool:
    """Return whether the user has chosen the worker, or the host, of a task."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return ts.worker_restrictions is not None and len(ts.worker_restrictions) == 1


def _is_barrier(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(_BARRIER)
