"""What the dispatcher asks of a ready task, found out once: where it is at home, how long it takes.

A task is at home where its inputs lie, if moving them takes long beside its own time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.pool import ANY, Entry, Kind, Pool

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.scheduler.dispatch.durations import Like

__all__ = ["Filing", "confined"]

# Inputs are cheap to move if it takes at most these seconds, or this part of the task's time.
CHEAP_SECONDS = 0.001
CHEAP_FRACTION = 0.1
# Homes that a task may have; with more than these, any worker will do.
MOST_HOMES = 16


class Filing:
    """Makes entries of ready tasks.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def entry(self, pool: Pool, ts: TaskState, user: Iterable[str] | None, count: int) -> Entry:
        """File a ready task.

        Parameters
        ----------
        user : iterable of str, optional
            Workers to which the user restricted it.
        count : int
            Orders tasks of equal priority.
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
        entry = Entry(ts.priority, count, ts, kind, (), (), 0.0, expected, like, rootish)
        return self._at_home(pool, entry) if ts.dependencies else entry

    def _rootish(self, ts: TaskState) -> bool:
        """Whether Dask would queue a task if it were not held."""
        if getattr(ts.run_spec, "data_producer", False):
            return True
        group = ts.group
        return (
            len(group) > self.scheduler.total_nthreads * 2
            and len(group.dependencies) < 5
            and sum(map(len, group.dependencies)) < 5
        )

    def expected(self, ts: TaskState, like: Like) -> float:
        """Return the seconds that a task may compute: as known of its job's tasks now, else the
        scheduler's own estimate, whose method is named differently in every second release."""
        if like.count:
            return like.mean
        if ts.prefix.duration_average >= 0:
            return ts.prefix.duration_average
        if ts.prefix.max_exec_time > 0:
            return 2 * ts.prefix.max_exec_time
        return self.scheduler.UNKNOWN_TASK_DURATION

    def _at_home(self, pool: Pool, entry: Entry) -> Entry:
        """An entry with its homes, and how long it takes to move its inputs elsewhere."""
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
        return entry._replace(**{"near" if most <= cheap else "homes": tuple(homes)})


def confined(pool: Pool, ts: TaskState) -> frozenset[str]:
    """Where a ready task had better stay, if anywhere: with those of its inputs that the job made
    on workers of its user's choice. They may be of a kind that cannot move, as the sockets by
    which LightGBM's workers find each other.
    """
    made = [
        frozenset(ws.address for ws in dep.who_has or ())
        for dep in ts.dependencies
        if len(pool.tasks.get(dep) or ()) == 1 and not dep.loose_restrictions
    ]
    return frozenset.intersection(*made) if made else frozenset()
