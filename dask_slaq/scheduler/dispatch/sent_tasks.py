"""Tasks that were sent to workers through slots, workers that have a slot, and their load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dask_slaq.scheduler.dispatch.durations import TRIVIAL

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from dask_slaq.scheduler.dispatch.durations import Like
    from dask_slaq.scheduler.dispatch.pool import Pool
    from dask_slaq.scheduler.dispatch.ready import Entry

#: Seconds until the scheduler receives the end of a task.
REPORTED = 0.005


@dataclass(slots=True)
class SentTask:
    """Task sent through a slot.

    Attributes
    ----------
    entry : Entry
    pool : Pool
    rank : float
        Order on the worker, lowest first; see `TaskControl.bind`.
    expected : float
        Expected compute time in seconds; infinite if unknown.
    soonest : float
        Compute time in seconds after which the task may plausibly have ended.
    start : float or None
        Estimated start of the computation, monotonic seconds; None while the task waits.
    since : float
        Time at which it was sent, monotonic seconds.
    fetches : bool
        Whether inputs must be fetched from other workers first: later tasks may start before it.
    """

    entry: Entry
    pool: Pool
    rank: float
    expected: float
    soonest: float
    start: float | None
    since: float
    fetches: bool

    def left(self, now: float) -> float:
        """Return the estimated seconds until the task ends.

        An overdue task is expected to take as long again as it is overdue.
        """
        if self.start is None:
            return self.expected
        elapsed = now - self.start
        if elapsed < self.expected:
            return max(self.soonest - elapsed, 0.0)
        return max(elapsed - self.expected - REPORTED, 0.0)


class OpenWorker(NamedTuple):
    """Worker that has a slot.

    Attributes
    ----------
    ws : distributed.scheduler.WorkerState
    free : bool
        Whether a thread is free.
    free_in : float
        Seconds until a task sent now would start; infinite if unknown.
    rootish : bool
        Whether a task that Dask would queue may be sent: no more of them are sent ahead than
        Dask's ``worker-saturation`` allows.
    """

    ws: WorkerState
    free: bool
    free_in: float
    rootish: bool

    def takes_at_once(self, like: Like) -> bool:
        """Return whether tasks like `like` are trivial and would start and end at once."""
        return like.is_trivial and self.free_in < TRIVIAL


def load(ws: WorkerState) -> int:
    """Return the number of tasks on a worker, except seceded and `blocked` ones."""
    there = len(ws.processing) - len(ws.long_running)
    return there - blocked(ws) if ws.used_resources else there


def blocked(ws: WorkerState) -> int:
    """Return the number of tasks on a worker that wait there for a resource.

    Resources have any unit, such as bytes: the tasks that need one are taken to need equal amounts.
    """
    most = 0.0
    for resource, used in ws.used_resources.items():
        over = used - ws.resources.get(resource, 0)
        if over > 0:
            need = sum(resource in (ts.resource_restrictions or ()) for ts in ws.processing)
            most = max(most, over / used * need)
    return math.ceil(most - 1e-6)


def has_thread(ws: WorkerState) -> bool:
    """Return whether a worker has fewer tasks than threads."""
    return load(ws) < ws.nthreads
