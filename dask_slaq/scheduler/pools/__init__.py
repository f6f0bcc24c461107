"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from dask_slaq.scheduler.pools.blocking import Blocked, find_blocked, name_of
from dask_slaq.scheduler.pools.durations import ByGroup, group_of, input_bytes
from dask_slaq.scheduler.pools.label_limits import Limits
from dask_slaq.scheduler.pools.ownership import TaskOwners
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.pools import Pools
from dask_slaq.scheduler.pools.slots import blocked, load
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.tracker import TaskTracker

__all__ = [
    "Binding",
    "Blocked",
    "ByGroup",
    "Limits",
    "Pool",
    "Pools",
    "TaskControl",
    "TaskOwners",
    "TaskTracker",
    "blocked",
    "find_blocked",
    "group_of",
    "input_bytes",
    "load",
    "name_of",
]
