"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later
from dask_slaq.scheduler.pools.durations import ByGroup, group_of, input_bytes
from dask_slaq.scheduler.pools.ownership import TaskOwners
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.pools import Pools
from dask_slaq.scheduler.pools.slots import blocked, load
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.tracker import TaskTracker

if TYPE_CHECKING:
    from dask_slaq.scheduler.pools.blocking import Blocked as Blocked
    from dask_slaq.scheduler.pools.blocking import find_blocked as find_blocked
    from dask_slaq.scheduler.pools.blocking import name_of as name_of
    from dask_slaq.scheduler.pools.gangs import LooseRuns as LooseRuns
    from dask_slaq.scheduler.pools.label_limits import Limits as Limits

__all__ = [
    "Binding",
    "ByGroup",
    "Pool",
    "Pools",
    "TaskControl",
    "TaskOwners",
    "TaskTracker",
    "blocked",
    "group_of",
    "input_bytes",
    "load",
]

# What most clusters never need.
__getattr__ = later(
    __name__,
    {
        "blocking": ("find_blocked", "name_of"),
        "gangs": ("LooseRuns",),
        "label_limits": ("Limits",),
    },
)
