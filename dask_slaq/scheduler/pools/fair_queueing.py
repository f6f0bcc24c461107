"""Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996) of jobs of equal index.

The service of a job is its core-seconds over its weight. It is charged when a task is sent and
corrected when the task ends. The job with the least service is served first. A job that comes back
continues from the current service, less `OWED` seconds: it is not owed what it left to others.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from time import monotonic

from dask_slaq.scheduler.dispatch import Pool

__all__ = ["FairQueueing"]

#: Maximum seconds of its fair share that a job is owed when it comes back.
OWED = 0.25


class FairQueueing:
    """Virtual clock that keeps the `service` of pools comparable.

    Attributes
    ----------
    served : float
        Highest service at which a pool has been served: the virtual time of fair queueing, in
        core-seconds over weight.
    """

    def __init__(self) -> None:
        self.served = 0.0

    def begin(self, pool: Pool) -> None:
        """Set the service of a new pool to the current one."""
        pool.service = self.served

    def sent(self, pool: Pool) -> None:
        """Record that a pool is served. Call this before the pool is charged."""
        self.served = max(self.served, pool.service)
        pool.is_new = False

    def is_back(self, pool: Pool, pools: Collection[Pool], threads: int) -> None:
        """Record that a pool has tasks again, and limit the service that it is owed.

        Parameters
        ----------
        pool : Pool
            Its `gap`, `spell` and `was_widest` are updated too.
        pools : collection of Pool
            All pools.
        threads : int
            Threads of the cluster.
        """
        now = monotonic()
        if math.isfinite(pool.left_at):
            away = now - pool.left_at
            pool.was_widest, pool.widest = pool.widest, 0
            pool.gap = away if math.isinf(pool.gap) else pool.gap + 0.5 * (away - pool.gap)
            pool.spell += 0.5 * (max(pool.left_at - pool.back_at, 0.0) - pool.spell)
        pool.back_at = now
        weights = sum(p.weight for p in pools if p.unfinished) or pool.weight
        pool.service = max(pool.service, self.served - OWED * threads / weights)

    def place_newcomers(self, pools: Collection[Pool]) -> None:
        """Lower the service of pools not yet served to the least service of the others.

        Newcomers started from a service that may have been charged in advance for too much.
        """
        newcomers = [pool for pool in pools if pool.is_new and pool.ready]
        if newcomers:
            served = (pool.service for pool in pools if pool.ready and not pool.is_new)
            least = min(served, default=math.inf)
            for pool in newcomers:
                pool.service = min(pool.service, least)
