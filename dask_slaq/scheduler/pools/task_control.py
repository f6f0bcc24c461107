"""Control of tasks: hold them, send them to workers, or give them back to Dask.

No other module changes the restrictions of tasks or calls transitions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dask_repairs import drop_stale_counts

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, TaskStateState, WorkerState

logger = logging.getLogger(__name__)

# No worker has this address, so a task restricted to it waits in ``no-worker``. An empty set would
# allow every worker.
# Any: Dask's annotation asks for a `set`, but a set could be changed, and Dask only reads it.
HELD: Any = frozenset({"slaq://held"})
# First element of the priority of tasks sent through slots. They run before all other tasks of a
# worker, whose priorities begin with the user's, negated. Among them, rank decides, then Dask's
# order.
_FIRST = -(2.0**62)


class TaskControl:
    """Controller of the tasks of a scheduler.

    The parameter `user` of a method is the worker restrictions that the user gave the task: a set
    of addresses, or None.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._bound: dict[TaskState, Any] = {}

    def hold(self, ts: TaskState, user: Any) -> None:
        """Make a task wait in ``no-worker`` when it is ready, unless it `goes_its_own_way`.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        user : set of str or None
        """
        self.restore(ts, user)
        if not goes_its_own_way(ts, ts.worker_restrictions):
            ts.worker_restrictions = HELD

    def skip_held_when_workers_join(self) -> None:
        """Keep Dask from checking whether a joining worker may run each held task.

        Every check takes some microseconds.
        """
        scheduler = self.scheduler
        given = scheduler.bulk_schedule_unrunnable_after_adding_worker
        original = getattr(given, "original", given)

        def schedule(ws: WorkerState) -> dict[Any, Any]:
            unrunnable = scheduler.unrunnable
            free = [ts for ts in unrunnable if ts.worker_restrictions is not HELD]
            # Dask only iterates over them here.
            scheduler.unrunnable = free  # type: ignore[assignment]
            try:
                return original(ws)
            finally:
                scheduler.unrunnable = unrunnable

        schedule.original = original  # type: ignore[attr-defined]
        scheduler.bulk_schedule_unrunnable_after_adding_worker = schedule  # type: ignore[method-assign]

    def has(self, ts: TaskState) -> bool:
        """Return whether a task is held, or bound to a worker, by this controller."""
        restrictions = ts.worker_restrictions
        return restrictions is HELD or (ts in self._bound and restrictions is self._bound[ts])

    def given(self, ts: TaskState) -> Any:
        """Return the restrictions that the user gave a new task."""
        return ts.worker_restrictions

    def holds(self, ts: TaskState) -> bool:
        """Return whether a task is held."""
        return ts.worker_restrictions is HELD

    def restore(self, ts: TaskState, user: Any) -> None:
        """Restore the user's restrictions of a task that is held or bound.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        user : set of str or None
        """
        bound, now = self._bound.pop(ts, None), ts.worker_restrictions
        if now is HELD or (now is bound and bound is not None):
            ts.worker_restrictions = user

    def bind(
        self, ts: TaskState, user: Any, ws: WorkerState, rank: float, why: str = "sent"
    ) -> None:
        """Send a held task to a worker. Its restriction keeps work stealing from moving it.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        user : set of str or None
            Restored if Dask refuses the worker.
        ws : distributed.scheduler.WorkerState
        rank : float
            Order on the worker: tasks of lower rank compute first.
        why : str
            Reason, for Dask's transition log.
        """
        self._restrict(ts, ws)
        given, ts.priority = ts.priority, (_FIRST, rank, *(ts.priority or ()))
        try:
            self._transitions([ts], "processing", why)
        finally:
            ts.priority = given
        if ts.state == "no-worker":
            # Dask refused the worker.
            logger.warning("%s could not be bound to %s; left to Dask", ts.key, ws.address)
            self.restore(ts, user)
            self._transitions([ts], "released", "refused")

    def moved(self, ts: TaskState, ws: WorkerState) -> None:
        """Update the binding of a task that was moved to the worker `ws`."""
        if ts in self._bound:
            self._restrict(ts, ws)

    def _restrict(self, ts: TaskState, ws: WorkerState) -> None:
        only: Any = frozenset({ws.address})
        self._bound[ts] = ts.worker_restrictions = only

    @contextlib.contextmanager
    def ranked(self, ts: TaskState, rank: float) -> Iterator[None]:
        """Set a task's priority from its rank while it is sent to a worker within this context.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        rank : float
            See `bind`.
        """
        given, ts.priority = ts.priority, (_FIRST, rank, *(ts.priority or ()))
        try:
            yield
        finally:
            ts.priority = given

    def move(self, ts: TaskState, ws: WorkerState) -> None:
        """Request that a task waiting on a worker be moved to the worker `ws`.

        Work stealing handles the request: the worker gives the task up unless it has started.
        """
        stealing = self.scheduler.extensions.get("stealing")
        if ts.prefix.duration_average == 0:
            return  # work stealing would take it for a task that has seceded
        if stealing is not None and ts.processing_on is not None:
            stealing.move_task_request(ts, ts.processing_on, ws)

    def rest(self, ts: TaskState) -> bool:
        """Count a task that waits in a report as seceded. Returns whether it was not, before."""
        ws = ts.processing_on
        if ws is None or ts in ws.long_running:
            return False
        ws.add_to_long_running(ts)
        self.scheduler.check_idle_saturated(ws)
        self.scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=f"slaq-rest-{time()}")
        return True

    def resume(self, ts: TaskState) -> bool:
        """Count a seceded task as one that holds a thread again. Returns whether it was seceded.

        Dask has no message for a thread that rejoined, and would send the worker another task.
        """
        ws = ts.processing_on
        if ws is None or ts not in ws.long_running:
            return False
        ws.long_running.discard(ts)
        for counts in (ws.task_prefix_count, self.scheduler._task_prefix_count_global):
            counts[ts.prefix.name] = counts.get(ts.prefix.name, 0) + 1
        self.scheduler.check_idle_saturated(ws)
        return True

    def give_back(self, tasks: Mapping[TaskState, Any]) -> None:
        """Give held tasks back to Dask's own scheduling. Other tasks are left alone.

        They go through `released`, so that Dask decides whether to queue them.

        Parameters
        ----------
        tasks : mapping of distributed.scheduler.TaskState to set of str or None
            Tasks with the worker restrictions that the user gave each.
        """
        ours = [ts for ts in tasks if self.has(ts)]
        for ts in ours:
            self.restore(ts, tasks[ts])
        self._transitions([ts for ts in ours if ts.state == "no-worker"], "released", "given-back")

    def take_out_of_queue(self, tasks: Iterable[TaskState]) -> None:
        """Release tasks that Dask has queued, so that they become ready again and are held."""
        self._transitions([ts for ts in tasks if ts.state == "queued"], "released", "held")

    def _transitions(self, tasks: Iterable[TaskState], finish: TaskStateState, why: str) -> None:
        recommendations: dict[Any, TaskStateState] = {ts.key: finish for ts in tasks}
        if not recommendations:
            return
        try:
            self.scheduler.transitions(recommendations, stimulus_id=f"slaq-{why}-{time()}")
        except Exception:
            # Dask's own bookkeeping can fail, such as that of occupancies after a restart.
            logger.warning("a transition to %s failed in Dask's scheduler", finish, exc_info=True)
            self._resume(recommendations)

    def _resume(self, recommendations: dict[Any, TaskStateState]) -> None:
        """Repeat transitions that Dask interrupted with an error.

        The error lost messages to workers, so tasks that have become ``processing`` would never
        run. They are released, which sends them again. The other transitions are repeated.
        """
        drop_stale_counts(self.scheduler)
        again: dict[Any, TaskStateState] = {}
        for key, finish in recommendations.items():
            ts = self.scheduler.tasks.get(key)
            if ts is not None and ts.state == "processing":
                again[key] = "released"
            elif ts is not None and ts.state in ("no-worker", "queued", "released"):
                again[key] = "waiting" if ts.state == "released" else finish
        try:
            self.scheduler.transitions(again, stimulus_id=f"slaq-again-{time()}")
        except Exception:
            logger.error("Dask's scheduler failed again; tasks may hang", exc_info=True)


def goes_its_own_way(ts: TaskState, user: Any) -> bool:
    """Return whether a task is never held.

    Actors, tasks pinned to a worker, and the barriers and outputs of P2P shuffles, which Dask's
    shuffle plugin restricts, are not held.

    Parameters
    ----------
    ts : distributed.scheduler.TaskState
    user : set of str or None
        Worker restrictions that the user gave the task.
    """
    if ts.actor or pinned(ts, user) or is_barrier(ts.key):
        return True
    return bool(ts.dependencies) and any(is_barrier(dep.key) for dep in ts.dependencies)


def pinned(ts: TaskState, user: Any) -> bool:
    """Return whether the user has chosen the worker, or the host, of a task.

    Parameters
    ----------
    ts : distributed.scheduler.TaskState
    user : set of str or None
        Worker restrictions that the user gave the task.
    """
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return user is not None and len(user) == 1


def is_barrier(key: Any) -> bool:
    """Return whether a key is that of a P2P shuffle's barrier, which places all its outputs."""
    return isinstance(key, str) and key.startswith("shuffle-barrier-")
