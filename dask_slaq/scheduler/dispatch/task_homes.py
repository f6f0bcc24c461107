"""Homes of ready tasks and their expected compute time, determined once per ready task.

A task is at home on the workers that hold its inputs, if moving them takes long compared with its
own compute time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.pool import Pool
from dask_slaq.scheduler.dispatch.ready import ANY, Entry, Kind, order_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.scheduler.dispatch.durations import Like

__all__ = ["TaskHomes", "confined"]

# Inputs are cheap to move within these seconds, or within this fraction of the compute time.
CHEAP_SECONDS = 0.001
CHEAP_FRACTION = 0.1
# Inputs of at most these bytes may be other things than data, such as sockets.
NOT_DATA = 10_000
# A task with this many homes, or more, may run on any worker.
MOST_HOMES = 16


class TaskHomes:
    """Factory of `Entry` objects for ready tasks.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def entry(self, pool: Pool, ts: TaskState, user: Iterable[str] | None, count: int) -> Entry:
        """Return the entry of a ready task.

        Parameters
        ----------
        pool : Pool
            Pool of the task. The bytes of the task's inputs are added to its `bytes_at`.
        ts : distributed.scheduler.TaskState
        user : iterable of str, optional
            Addresses of the workers to which the user restricted the task.
        count : int
            Unique number that orders tasks of equal priority.
        """
        needs = ts.resource_restrictions
        kind = ANY
        if user or needs:
            kind = Kind(
                frozenset(user) if user else None, tuple(sorted(needs.items())) if needs else None
            )
        like = pool.durations.like(ts)
        expected = self.expected(ts, like)
        rootish = kind is ANY and self._rootish(ts)
        order = order_of(ts.priority, rootish)
        entry = Entry(order, count, ts, kind, (), (), 0.0, expected, like, rootish)
        return self._at_home(pool, entry) if ts.dependencies else entry

    def _rootish(self, ts: TaskState) -> bool:
        """Return whether Dask would queue a task if it were not held."""
        if getattr(ts.run_spec, "data_producer", False):
            return True
        group = ts.group
        return (
            len(group) > self.scheduler.total_nthreads * 2
            and len(group.dependencies) < 5
            and sum(map(len, group.dependencies)) < 5
        )

    def expected(self, ts: TaskState, like: Like) -> float:
        """Return the expected compute time of a task, in seconds.

        This is the mean of similar tasks of its job or, without any, Dask's estimate. Dask's own
        method is not called, because every second release renames it.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        like : Like
            Compute times of similar tasks of the job.
        """
        if like.count:
            return like.mean
        if ts.prefix.duration_average >= 0:
            return ts.prefix.duration_average
        if ts.prefix.max_exec_time > 0:
            return 2 * ts.prefix.max_exec_time
        return self.scheduler.UNKNOWN_TASK_DURATION

    def _at_home(self, pool: Pool, entry: Entry) -> Entry:
        """Return an entry with its homes, and with the time to move its inputs elsewhere."""
        held: dict[str, int] = {}
        for dep in entry.ts.dependencies:
            for ws in dep.who_has or ():
                if entry.kind is ANY or entry.kind.allows(ws):
                    held[ws.address] = held.get(ws.address, 0) + dep.nbytes
        if not held:
            return entry
        for address, nbytes in held.items():
            pool.bytes_at[address] = pool.bytes_at.get(address, 0.0) + nbytes / len(held)
        if only := confined(pool, entry.ts) & held.keys():
            return entry._replace(homes=tuple(sorted(only)), moving=math.inf)
        most, bandwidth = max(held.values()), self.scheduler.bandwidth
        cheap = max(CHEAP_SECONDS, CHEAP_FRACTION * entry.expected) * bandwidth
        entry = entry._replace(moving=most / bandwidth)
        enough = min(MOST_HOMES, len(self.scheduler.running))
        homes = sorted(a for a, nbytes in held.items() if most - nbytes <= min(cheap, 0.9 * most))
        if len(homes) >= enough:
            return entry
        if most <= cheap:
            return entry._replace(near=tuple(homes))
        return entry._replace(homes=tuple(homes))


def confined(pool: Pool, ts: TaskState) -> frozenset[str]:
    """Return the workers that a ready task should not leave; empty if it may run anywhere.

    These workers hold all small inputs that were made on a worker chosen by the user. Such inputs
    may be impossible to move, like the sockets by which LightGBM's workers find each other.

    Parameters
    ----------
    pool : Pool
        Pool of the task.
    ts : distributed.scheduler.TaskState

    Returns
    -------
    frozenset of str
        Addresses.
    """
    made = [
        frozenset(ws.address for ws in dep.who_has or ())
        for dep in ts.dependencies
        if len(pool.tasks.get(dep) or ()) == 1
        and not dep.loose_restrictions
        and dep.nbytes <= NOT_DATA
    ]
    return frozenset.intersection(*made) if made else frozenset()
