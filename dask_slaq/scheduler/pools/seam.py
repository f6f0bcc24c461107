"""Seam to Dask's scheduler: holds ready tasks, and knows what differs between Dask's releases.

In all supported releases the scheduler asks `is_rootish` and `decide_worker_non_rootish` about
every ready task, and None from the latter means that the task waits in ``no-worker``. While tasks
are held, both are overridden on the scheduler instance. Tasks keep the restrictions and priorities
that users gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.pools.constants import NOT_DATA

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

JOINED = "bulk_schedule_unrunnable_after_adding_worker"
#: Methods of the scheduler that are overridden.
OVERRIDDEN = ("is_rootish", "decide_worker_non_rootish", JOINED)


class Seam:
    """Override of the scheduler's choice of workers for ready tasks that `is_held`.

    Dask's queue passes nothing by here, so no task that `may_be_held` later goes there.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        is_held: Callable[[TaskState], bool],
        may_be_held: Callable[[TaskState], bool],
    ) -> None:
        self._scheduler, self._is_held, self._may_be_held = scheduler, is_held, may_be_held
        self._plain: dict[str, Any] = {}
        self._sending: tuple[TaskState | None, WorkerState | None] = None, None

    def install(self) -> None:
        """Override the scheduler's methods. Repeated calls install the override once."""
        if self._plain:
            return
        for name in OVERRIDDEN:
            self._plain[name] = getattr(self._scheduler, name)
            setattr(self._scheduler, name, getattr(self, f"_{name}"))

    def remove(self) -> None:
        """Restore the scheduler's methods, unless somebody else has overridden them since."""
        overridden = vars(self._scheduler)
        for name, plain in self._plain.items():
            if overridden.get(name) == getattr(self, f"_{name}"):
                del overridden[name]
                if getattr(self._scheduler, name) != plain:
                    setattr(self._scheduler, name, plain)
        self._plain = {}

    def is_rootish(self, ts: TaskState) -> bool:
        """Return whether Dask would queue a task if it were not held."""
        rootish: bool = self._plain.get("is_rootish", self._scheduler.is_rootish)(ts)
        return rootish

    def send(self, ts: TaskState | None, ws: WorkerState | None) -> None:
        """Decide for the worker `ws` when Dask asks about the task `ts`, until the next call."""
        self._sending = ts, ws

    def _is_rootish(self, ts: TaskState) -> bool:
        held = self._is_held(ts) or self._may_be_held(ts)
        return not held and self._plain["is_rootish"](ts)

    def _decide_worker_non_rootish(self, ts: TaskState) -> WorkerState | None:
        if self._sending[0] is ts:
            return self._sending[1]
        if self._is_held(ts):
            return None
        ws: WorkerState | None = self._plain["decide_worker_non_rootish"](ts)
        return ws

    def _bulk_schedule_unrunnable_after_adding_worker(self, ws: WorkerState) -> dict[Any, Any]:
        """Skip held tasks when a worker joins: each check takes some microseconds."""
        scheduler = self._scheduler
        unrunnable = scheduler.unrunnable
        # Dask only iterates over them here.
        scheduler.unrunnable = [ts for ts in unrunnable if not self._is_held(ts)]  # type: ignore[assignment]
        try:
            found: dict[Any, Any] = self._plain[JOINED](ws)
            return found
        finally:
            scheduler.unrunnable = unrunnable


def is_direct(ts: TaskState) -> bool:
    """Return whether Dask alone decides where and when a task runs.

    These are actors; tasks pinned to one worker or to hosts, and those that use small results of
    such a task, which may be impossible to move, like the sockets by which LightGBM's workers find
    each other; and barriers and outputs of P2P shuffles, which Dask's shuffle plugin places.
    """
    if ts.actor or is_pinned(ts) or _is_barrier(ts.key):
        return True
    if len(ts.dependencies) > 4:  # no library's, and it costs time
        return False
    return any(
        _is_barrier(dep.key)
        or (dep.nbytes <= NOT_DATA and is_pinned(dep) and "workers" in (dep.annotations or ()))
        for dep in ts.dependencies
    )


def is_pinned(ts: TaskState) -> bool:
    """Return whether the user has chosen the worker, or the host, of a task."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return ts.worker_restrictions is not None and len(ts.worker_restrictions) == 1


def _is_barrier(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("shuffle-barrier-")


def drop_stale_counts(scheduler: Scheduler) -> list[str]:
    """Drop counts of tasks by prefix that outlived their prefix, and return those prefixes.

    ``client.restart()`` forgets all prefixes, but not the number of processing tasks of each. These
    counts are 0 after a restart, except for a prefix with a task whose secession was announced
    twice. From then on, Dask raises a `KeyError` whenever it adds up the occupancy of the cluster.
    """
    counts = getattr(scheduler, "_task_prefix_count_global", {})
    stale = [name for name in counts if name not in scheduler.task_prefixes]
    for name in stale:
        del counts[name]
    return stale
