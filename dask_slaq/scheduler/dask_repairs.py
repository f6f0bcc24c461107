"""Repairs of Dask's own bookkeeping, without which the tasks of jobs would hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["drop_stale_counts"]


def drop_stale_counts(scheduler: Scheduler) -> list[str]:
    """Drop counts of tasks by prefix that outlived their prefix.

    ``client.restart()`` forgets all prefixes, but not the number of processing tasks of each. These
    counts are 0 after a restart, except for a prefix with a task whose secession was announced
    twice. From then on, Dask raises a `KeyError` whenever it adds up the occupancy of the cluster.

    Returns
    -------
    list of str
        Names of the prefixes whose counts were dropped.
    """
    counts = getattr(scheduler, "_task_prefix_count_global", {})
    stale = [name for name in counts if name not in scheduler.task_prefixes]
    for name in stale:
        del counts[name]
    return stale
