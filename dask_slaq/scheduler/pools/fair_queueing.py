"""Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996) of jobs of equal index.

Each has a `service`, its core-seconds over its weight, charged when a task is sent and corrected
when it ends; the least is served first. A job that comes back starts from what is served now, less
a moment's worth: it is owed what it waited for and not what it left to others.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from time import monotonic

from dask_slaq.scheduler.dispatch import Pool

__all__ = ["FairQueueing"]

#: Seconds for which a job that was away is owed what it would have been served meanwhile.
OWED = 0.25


class FairQueueing:
    """Keeps the `service` of pools comparable.

    Attributes
    ----------
    served : float
        Service of the pool that was served last, at that time.
    """

    def __init__(self) -> None:
        self.served = 0.0

    def begin(self, pool: Pool) -> None:
        """Let a pool start from what is served now."""
        pool.service = self.served

    def sent(self, pool: Pool) -> None:
        """Note that a pool is served, before it is charged."""
        self.served = max(self.served, pool.service)
        pool.is_new = False

    def is_back(self, pool: Pool, pools: Collection[Pool], threads: int) -> None:
        """Note that a pool has something to run again: it is owed a moment's service at most."""
        now = monotonic()
        if math.isfinite(pool.left_at):
            away = now - pool.left_at
            pool.gap = away if math.isinf(pool.gap) else pool.gap + 0.5 * (away - pool.gap)
        weights = sum(p.weight for p in pools if p.unfinished) or pool.weight
        pool.service = max(pool.service, self.served - OWED * threads / weights)

    def place_newcomers(self, pools: Collection[Pool]) -> None:
        """Put pools that were not served yet no later than the one that was served least: what that
        was charged when they came may have been too much."""
        newcomers = [pool for pool in pools if pool.is_new and pool.ready]
        if newcomers:
            served = (pool.service for pool in pools if pool.ready and not pool.is_new)
            least = min(served, default=math.inf)
            for pool in newcomers:
                pool.service = min(pool.service, least)
