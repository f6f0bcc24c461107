"""Task pools: hold the tasks of jobs and bind each to a worker when a slot is free."""

from dask_slaq.scheduler.pools.pools import Pool, Pools

__all__ = ["Pool", "Pools"]
