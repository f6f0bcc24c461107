"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from dask_slaq.scheduler.dispatch import Pool
from dask_slaq.scheduler.pools.invariants import check_task
from dask_slaq.scheduler.pools.pools import Pools

__all__ = ["Pool", "Pools", "check_task"]
