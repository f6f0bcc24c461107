"""What a decision on the jobs of a scheduler is fed with, and what becomes of it."""

from __future__ import annotations

import math
from time import monotonic

from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs


def observe_demand(jobs: ScheduledJobs) -> list[str]:
    """Pass the numbers of ready and running tasks, and the work left, to the engine.

    Work is counted by tasks until a job reports a loss; then by its iterations. Returns the pools
    of unowned tasks that have no unfinished task left.
    """
    over, engine = [], jobs.engine
    for name, pool in jobs.pools.pools.items():
        if not pool.reports and not pool.unfinished:
            over.append(name)
        else:
            engine.observe_demand(name, pool.demand - jobs.pools.limits.blocked(pool))
            left = math.nan if jobs.reports.get(name) else pool.submitted
            engine.observe_left(name, left, more=pool.is_open)
    return over


def decide(jobs: ScheduledJobs, reserve: float) -> None:
    """Decide, and apply the grants to the pools.

    `reserve` is the part of the threads that the pools of unowned tasks get at least.
    """
    engine, pools, running = jobs.engine, jobs.pools, jobs.scheduler.running
    workers = {ws.address: ws.nthreads for ws in running if ws.address not in pools.draining}
    if not (pools.pools and workers):
        return
    if reserve:
        others = [name for name, job in engine.jobs.items() if not job.reports]
        for name in others:
            engine.set_floor(name, reserve * sum(workers.values()) / len(others))
    if jobs.accounts.half_life is not None:
        engine.observe_use(jobs.accounts.lately(jobs.owner.values()))
    engine.set_reserved(jobs.reservations.now())
    if engine.owners is not None:
        engine.set_spare(set(filter(jobs.budgets.is_over, jobs.owner.values())))
    eligible = {
        name: [
            ws.address
            for ws in running
            if all(ws.resources.get(r, 0) >= n for r, n in needs.items())
        ]
        for name, needs in jobs.resources.items()
        if needs
    }
    affinity = {name: pool.bytes_at for name, pool in pools.pools.items()}
    grants = engine.reallocate(workers, monotonic(), eligible=eligible, affinity=affinity)
    by = {"by_service": engine.traits.by_service, "by_tokens": engine.traits.by_tokens}
    pools.apply(grants.terms(), grants.owners, engine.jobs.owner, **by)
    if not jobs.epochs:
        jobs.record()
