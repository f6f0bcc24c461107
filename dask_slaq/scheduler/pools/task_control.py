"""Tasks in custody: held back, sent to a worker, or given back. The only file that touches the
restrictions of tasks or calls transitions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dask_repairs import drop_stale_counts

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

logger = logging.getLogger(__name__)

# No worker has this address: a task restricted to it waits in ``no-worker``. Dask takes an empty
# set for "every worker", so the restriction of a held task is never empty.
HELD = frozenset({"slaq://held"})
# What is sent through a slot comes before all else on the worker, whose tasks have priorities that
# begin with the user's, negated; then by rank, and those of equal rank in Dask's order.
_FIRST = -(2.0**62)


class TaskControl:
    """Holds tasks of a scheduler. Each method takes the restrictions that the user gave a task."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._bound: dict[TaskState, frozenset[str]] = {}

    def hold(self, ts: TaskState, user: Any) -> None:
        """Let a task wait in ``no-worker`` when it is ready, unless it must go its own way."""
        self.restore(ts, user)
        if not goes_its_own_way(ts, ts.worker_restrictions):
            ts.worker_restrictions = HELD

    def skip_held_when_workers_join(self) -> None:
        """Keep Dask from asking of every held task whether a worker that joins may run it: that
        takes some microseconds each."""
        scheduler = self.scheduler
        given = scheduler.bulk_schedule_unrunnable_after_adding_worker
        original = getattr(given, "original", given)

        def schedule(ws: WorkerState) -> dict[Any, Any]:
            unrunnable = scheduler.unrunnable
            scheduler.unrunnable = [ts for ts in unrunnable if ts.worker_restrictions is not HELD]
            try:
                return original(ws)
            finally:
                scheduler.unrunnable = unrunnable

        schedule.original = original  # type: ignore[attr-defined]
        scheduler.bulk_schedule_unrunnable_after_adding_worker = schedule

    def has(self, ts: TaskState) -> bool:
        """Whether a task carries a restriction of ours."""
        restrictions = ts.worker_restrictions
        return restrictions is HELD or (ts in self._bound and restrictions is self._bound[ts])

    def given(self, ts: TaskState) -> Any:
        """Return the restrictions that the user gave a new task."""
        return ts.worker_restrictions

    def holds(self, ts: TaskState) -> bool:
        """Whether a task is held."""
        return ts.worker_restrictions is HELD

    def restore(self, ts: TaskState, user: Any) -> None:
        """Take our restriction off a task."""
        bound, now = self._bound.pop(ts, None), ts.worker_restrictions
        if now is HELD or (now is bound and bound is not None):
            ts.worker_restrictions = user

    def bind(self, ts: TaskState, user: Any, ws: WorkerState, rank: float) -> None:
        """Send a held task to a worker, where it stays: work stealing respects restrictions.

        Parameters
        ----------
        user : set of str or None
            Worker restrictions that the user gave the task.
        rank : float
            Tasks of lower rank compute first on the worker.
        """
        self._restrict(ts, ws)
        given, ts.priority = ts.priority, (_FIRST, rank, *ts.priority)
        try:
            self._transitions([ts], "processing")
        finally:
            ts.priority = given
        if ts.state == "no-worker":
            # Dask refuses the worker after all: leave the task to Dask's own scheduling.
            logger.warning("%s could not be bound to %s; left to Dask", ts.key, ws.address)
            self.restore(ts, user)
            self._transitions([ts], "released")

    def moved(self, ts: TaskState, ws: WorkerState) -> None:
        """Bind a task to the worker to which it was moved."""
        if ts in self._bound:
            self._restrict(ts, ws)

    def _restrict(self, ts: TaskState, ws: WorkerState) -> None:
        self._bound[ts] = ts.worker_restrictions = frozenset({ws.address})

    @contextlib.contextmanager
    def ranked(self, ts: TaskState, rank: float) -> Iterator[None]:
        """Let what is sent to a worker meanwhile compute by its rank there."""
        given, ts.priority = ts.priority, (_FIRST, rank, *ts.priority)
        try:
            yield
        finally:
            ts.priority = given

    def move(self, ts: TaskState, ws: WorkerState) -> None:
        """Ask for a task that waits on a worker to be moved to another one, as work stealing
        does: the worker gives it up unless it has started."""
        stealing = self.scheduler.extensions.get("stealing")
        if ts.prefix.duration_average == 0:
            return  # work stealing takes a task that takes no time for one that has seceded
        if stealing is not None and ts.processing_on is not None:
            stealing.move_task_request(ts, ts.processing_on, ws)

    def give_back(self, tasks: Mapping[TaskState, Any]) -> None:
        """Leave those of these tasks that are held to Dask's own scheduling: through `released`,
        so that Dask decides whether to queue them."""
        ours = [ts for ts in tasks if self.has(ts)]
        for ts in ours:
            self.restore(ts, tasks[ts])
        self._transitions([ts for ts in ours if ts.state == "no-worker"], "released")

    def take_out_of_queue(self, tasks: Iterable[TaskState]) -> None:
        """Let tasks that Dask has queued get ready anew."""
        self._transitions([ts for ts in tasks if ts.state == "queued"], "released")

    def _transitions(self, tasks: Iterable[TaskState], finish: str) -> None:
        recommendations = {ts.key: finish for ts in tasks}
        if not recommendations:
            return
        try:
            self.scheduler.transitions(recommendations, stimulus_id=f"slaq-{time()}")
        except Exception:
            # Dask's own bookkeeping can fail, as that of occupancies after a restart does.
            logger.warning("a transition to %s failed in Dask's scheduler", finish, exc_info=True)
            self._resume(recommendations)

    def _resume(self, recommendations: dict[Any, str]) -> None:
        """Go on after Dask raised in the middle of transitions.

        Messages to workers were lost then: tasks that are processing now, and were not before,
        would never run. They are released, which sends them anew; the others are as they were.
        """
        drop_stale_counts(self.scheduler)
        again = {}
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
    """Whether a task is never held: an actor, one of a gang pinned to its worker, or a P2P
    shuffle's, whose own plugin restricts it."""
    if ts.actor or pinned(ts, user) or is_barrier(ts.key):
        return True
    return bool(ts.dependencies) and any(is_barrier(dep.key) for dep in ts.dependencies)


def pinned(ts: TaskState, user: Any) -> bool:
    """Whether a task's user has chosen its worker."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return user is not None and len(user) == 1


def is_barrier(key: Any) -> bool:
    """Whether a task is the barrier of a P2P shuffle, whose restrictions place all its outputs."""
    return isinstance(key, str) and key.startswith("shuffle-barrier-")
