"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from dask_slaq.scheduler.pools.blocking import Blocked as Blocked
from dask_slaq.scheduler.pools.blocking import find_blocked as find_blocked
from dask_slaq.scheduler.pools.blocking import name_of as name_of
from dask_slaq.scheduler.pools.charges import Charges as Charges
from dask_slaq.scheduler.pools.label_limits import Limits as Limits
from dask_slaq.scheduler.pools.ownership import TaskPools as TaskPools
from dask_slaq.scheduler.pools.pool import Pool as Pool
from dask_slaq.scheduler.pools.pools import Pools as Pools
from dask_slaq.scheduler.pools.records import TaskRecords as TaskRecords
from dask_slaq.scheduler.pools.slots import blocked as blocked
from dask_slaq.scheduler.pools.slots import load as load
from dask_slaq.scheduler.pools.task_control import TaskControl as TaskControl
from dask_slaq.scheduler.pools.tracker import TaskTracker as TaskTracker
