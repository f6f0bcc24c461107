"""Tasks in custody: held back, sent to a worker, or given back. The only file that touches the
restrictions of tasks or calls transitions.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

logger = logging.getLogger(__name__)

# No worker has this address: a task restricted to it waits in ``no-worker``. Dask takes an empty
# set for "every worker", so the restriction of a held task is never empty.
HELD = frozenset({"slaq://held"})
# A worker orders its tasks by the user's priority, then by generation, from 0. Ours come before:
# short ones first, then those bound, in the order in which they were bound.
SHORT, BOUND = -2, -1


class Custody:
    """Holds tasks of a scheduler. Each method takes the restrictions that the user gave a task."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._only: dict[str, frozenset[str]] = {}
        self._bound = itertools.count()

    def hold(self, ts: TaskState, user: Any) -> None:
        """Let a task wait in ``no-worker`` when it is ready, unless it must go its own way."""
        if goes_its_own_way(ts, user if self.has(ts) else ts.worker_restrictions):
            self.restore(ts, user)
        else:
            ts.worker_restrictions = HELD

    def has(self, ts: TaskState) -> bool:
        """Whether a task carries a restriction of ours."""
        restrictions = ts.worker_restrictions
        if restrictions is HELD:
            return True
        if not restrictions or len(restrictions) != 1:
            return False
        return restrictions is self._only.get(next(iter(restrictions)))

    def given(self, ts: TaskState) -> Any:
        """The restrictions that the user gave a new task."""
        return ts.worker_restrictions

    def holds(self, ts: TaskState) -> bool:
        """Whether a task is held."""
        return ts.worker_restrictions is HELD

    def restore(self, ts: TaskState, user: Any) -> None:
        """Take our restriction off a task."""
        if self.has(ts):
            ts.worker_restrictions = user

    def bind(self, ts: TaskState, user: Any, ws: WorkerState) -> None:
        """Send a held task to a worker, after all that was bound to it before."""
        ts.worker_restrictions = self._only.setdefault(ws.address, frozenset({ws.address}))
        self._send([ts], BOUND, next(self._bound))
        if ts.state == "no-worker":
            # Dask refuses the worker after all: leave the task to Dask's own scheduling.
            logger.warning("%s could not be bound to %s; left to Dask", ts.key, ws.address)
            self.restore(ts, user)
            self._transitions([ts], "processing")

    def let_pass(self, tasks: Mapping[TaskState, Any]) -> None:
        """Leave held tasks to Dask's choice of worker, which is to run them first."""
        for ts, user in tasks.items():
            self.restore(ts, user)
        self._send(tasks, SHORT)

    def give_back(self, tasks: Mapping[TaskState, Any]) -> None:
        """Leave all of these tasks that are held to Dask's own scheduling."""
        ours = [ts for ts in tasks if self.has(ts)]
        for ts in ours:
            self.restore(ts, tasks[ts])
        self._transitions([ts for ts in ours if ts.state == "no-worker"], "processing")

    def take_out_of_queue(self, tasks: Iterable[TaskState]) -> None:
        """Let tasks that Dask has queued get ready anew."""
        self._transitions([ts for ts in tasks if ts.state == "queued"], "released")

    def _send(self, tasks: Collection[TaskState], *before: int) -> None:
        """Send ready tasks to workers, which run them before others of the same user priority."""
        given = [ts.priority for ts in tasks]
        for ts, (user, *order) in zip(tasks, given, strict=True):
            ts.priority = (user, *before, *order)
        try:
            self._transitions(tasks, "processing")
        finally:
            for ts, priority in zip(tasks, given, strict=True):
                ts.priority = priority

    def _transitions(self, tasks: Iterable[TaskState], finish: str) -> None:
        recommendations = {ts.key: finish for ts in tasks}
        if recommendations:
            self.scheduler.transitions(recommendations, stimulus_id=f"slaq-{time()}")


def goes_its_own_way(ts: TaskState, user: Any) -> bool:
    """Whether a task is never held: an actor, one of a gang pinned to its worker, or a P2P
    shuffle's, whose own plugin restricts it."""
    if ts.actor or pinned(ts, user):
        return True
    return is_barrier(ts.key) or any(is_barrier(dep.key) for dep in ts.dependencies)


def pinned(ts: TaskState, user: Any) -> bool:
    """Whether a task's user has chosen its worker."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return user is not None and len(user) == 1


def is_barrier(key: Any) -> bool:
    """Whether a task is the barrier of a P2P shuffle, whose restrictions place all its outputs."""
    return isinstance(key, str) and key.startswith("shuffle-barrier-")
