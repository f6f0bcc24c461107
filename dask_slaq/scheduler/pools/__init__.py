"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from dask_slaq.scheduler.dispatch import Pool
from dask_slaq.scheduler.pools.adoption import Adoption
from dask_slaq.scheduler.pools.invariants import check_task
from dask_slaq.scheduler.pools.pools import Pools
from dask_slaq.scheduler.pools.task_owners import TaskOwners

__all__ = ["Adoption", "Pool", "Pools", "TaskOwners", "check_task"]
