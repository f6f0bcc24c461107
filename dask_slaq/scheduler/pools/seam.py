"""Seam to Dask's scheduler: holds ready tasks, and knows what differs between Dask's releases.

In all supported releases the scheduler asks `is_rootish` and `decide_worker_non_rootish` about
every ready task, and None from the latter means that the task waits in ``no-worker``. While tasks
are held, both are overridden on the scheduler instance. Tasks keep the restrictions and priorities
that users gave them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import NOT_DATA
from dask_slaq.scheduler.hooks import guarded_as

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

_BARRIER = "shuffle-barrier-"
#: Methods of the scheduler that are overridden.
OVERRIDDEN = (
    "is_rootish",
    "decide_worker_non_rootish",
    "bulk_schedule_unrunnable_after_adding_worker",
)


class Seam:
    """Override of the scheduler's choice of workers for ready tasks that are held.

    Dask's queue passes nothing by here, so no task that may be held later goes there. `flow` is
    asked for the worker of a task that would be held, and returns None to hold it. `fail` is
    called with an error, after which the scheduler's own method answers.

    Somebody else may override the same methods later, around ours, and may call ours for as long
    as they like. So each of our functions keeps what it was put around. It passes everything on
    while nothing is held, and nothing is put around it a second time.
    """

    overridden: tuple[str, ...] = OVERRIDDEN

    def __init__(
        self,
        scheduler: Scheduler,
        is_held: Callable[[TaskState], bool],
        may_be_held: Callable[[TaskState], bool],
        count_held: Callable[[], int],
        fail: Callable[[BaseException], None],
        flow: Callable[..., WorkerState | None] = lambda ts, plain: None,
    ) -> None:
        self._scheduler, self._is_held, self._may_be_held = scheduler, is_held, may_be_held
        self._flow = flow
        self._count_held = count_held
        self.fall_back = fail
        self._passes = False  # whether all that is asked goes to what is plain
        self.sending: Mapping[TaskState, WorkerState] = {}

    def install(self) -> None:
        """Override the scheduler's methods, unless they are ours already."""
        for name in self.overridden:
            plain = getattr(self._scheduler, name)
            if not self._is_ours(plain):
                setattr(self._scheduler, name, self._around(plain, getattr(self, f"_{name}")))

    def remove(self) -> None:
        """Restore the scheduler's methods, except those that somebody else has overridden since."""
        for name in self.overridden:
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

    def send(self, workers: Mapping[TaskState, WorkerState]) -> None:
        """Decide for these workers when Dask asks about their tasks, until the next call."""
        self.sending = workers

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

    @guarded_as(always=True, otherwise=lambda self: self._scheduler.unrunnable)
    def others(self) -> Collection[TaskState]:
        """Return the tasks that wait for a worker and are not held."""
        unrunnable = self._scheduler.unrunnable
        if len(unrunnable) == self._count_held():
            return ()  # as nearly always
        return [ts for ts in unrunnable if not self.is_held(ts)]

    # What is asked, instead of what is plain

    def _is_rootish(self, plain: Callable[[TaskState], bool], ts: TaskState) -> bool:
        return not self.is_kept_from_queue(ts) and plain(ts)

    def _decide_worker_non_rootish(
        self, plain: Callable[[TaskState], WorkerState | None], ts: TaskState
    ) -> WorkerState | None:
        if ts in self.sending:
            return self.sending[ts]
        return self.flow(ts, plain) if self.is_held(ts) else plain(ts)

    def _bulk_schedule_unrunnable_after_adding_worker(
        self, plain: Callable[[WorkerState], dict[Any, Any]], ws: WorkerState
    ) -> dict[Any, Any]:
        """Skip held tasks when a worker joins: each check takes some microseconds."""
        scheduler = self._scheduler
        unrunnable = scheduler.unrunnable
        scheduler.unrunnable = self.others()  # Dask only iterates
        try:
            return plain(ws)
        finally:
            scheduler.unrunnable = unrunnable


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
        if dep.annotations and dep.nbytes <= NOT_DATA and _is_bound(dep):
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
    return dep.nbytes <= NOT_DATA and is_pinned(dep) and "workers" in (dep.annotations or ())


def is_pinned(ts: TaskState) -> bool:
    """Return whether the user has chosen the worker, or the host, of a task."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return ts.worker_restrictions is not None and len(ts.worker_restrictions) == 1


def _is_barrier(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(_BARRIER)
