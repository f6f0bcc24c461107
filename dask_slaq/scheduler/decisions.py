"""How a decision is made on a scheduler: demand and workers in, grants to the pools out."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_slaq.scheduler.jobs import ScheduledJobs

__all__ = ["Decisions"]


class Decisions:
    """Decisions on the jobs of a scheduler.

    Parameters
    ----------
    jobs : ScheduledJobs
    reserve : float
        Fraction of all threads that unowned tasks keep.
    """

    def __init__(self, jobs: ScheduledJobs, reserve: float) -> None:
        self._jobs, self._reserved = jobs, reserve

    def observe_demand(self) -> list[str]:
        """Pass the numbers of ready and running tasks, and the work left, to the engine.

        Work is counted by tasks until a job reports a loss; then by its iterations.

        Returns
        -------
        list of str
            Pools of unowned tasks that have no unfinished task left.
        """
        over, engine, reports = [], self._jobs.engine, self._jobs.reports
        for name, pool in self._jobs.pools.pools.items():
            if not pool.reports and not pool.unfinished:
                over.append(name)
            else:
                blocked = self._jobs.pools.limits.blocked(pool)
                engine.observe_demand(name, pool.demand - blocked)
                engine.observe_left(name, math.nan if reports.get(name) else pool.left)
        return over

    def make(self) -> None:
        """Decide, and apply the grants to the pools."""
        jobs, pools = self._jobs, self._jobs.pools
        workers = {ws.address: ws.nthreads for ws in jobs.scheduler.running}
        if not (pools.pools and workers):
            return
        self._reserve(sum(workers.values()))
        if jobs.accounts.half_life is not None:
            jobs.engine.observe_use(jobs.accounts.lately(jobs.owner.values()))
        grants = jobs.engine.reallocate(
            workers,
            monotonic(),
            eligible=self._eligible(),
            affinity={name: pool.bytes_at for name, pool in pools.pools.items()},
        )
        by_service = jobs.engine.traits.by_service
        pools.apply(grants.terms(), grants.owners, jobs.engine.jobs.owner, by_service=by_service)
        if not jobs.epochs:
            jobs.record()

    def _eligible(self) -> dict[str, list[str]]:
        """Return the workers that supply the resources of each job that needs any."""
        return {
            name: [
                ws.address
                for ws in self._jobs.scheduler.running
                if all(ws.resources.get(r, 0) >= n for r, n in needs.items())
            ]
            for name, needs in self._jobs.resources.items()
            if needs
        }

    def _reserve(self, capacity: int) -> None:
        """Divide the reserved threads among the pools of unowned tasks, as their floors."""
        if not self._reserved:
            return
        engine = self._jobs.engine
        others = [name for name, job in engine.jobs.items() if not job.reports]
        for name in others:
            engine.set_floor(name, self._reserved * capacity / len(others))
