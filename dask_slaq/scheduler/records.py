"""What the scheduler tells of a job: plain values that travel in a message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.scheduler.divisions import Part
    from dask_slaq.scheduler.pools import Pool


def status_of_job(engine: Engine, pool: Pool, name: str) -> dict[str, Any]:
    """One job now.

    Returns
    -------
    dict
        ``iteration`` (reports so far), ``max_iter`` (at most, None if unknown), ``loss`` (last,
        raw), ``normalized_loss`` (fraction in [0, 1]), ``predicted`` (fall of the normalized loss
        by the next epoch), ``share`` (threads), ``index`` (order of dispatch), ``workers``
        (addresses held), ``running`` and ``ready`` (tasks now), ``attained`` (core-seconds so
        far), ``reports`` (False for the tasks of no job), ``weight``, ``why`` (the decision in
        words).
    """
    job = engine.jobs[name]
    grant = engine.grants.get(name)
    return {
        "iteration": job.iteration,
        "max_iter": job.max_iter,
        "loss": job.loss,
        "normalized_loss": grant.normalized if grant else 1.0,
        "predicted": grant.predicted if grant else math.nan,
        "share": grant.share if grant else 0.0,
        "index": grant.index if grant else 0.0,
        "workers": sorted(grant.workers) if grant else [],
        "running": len(pool.running),
        "ready": len(pool.ready),
        "attained": job.runtime.attained,
        "reports": job.reports,
        "weight": job.weight,
        "why": grant.why if grant else "just arrived: explored",
    }


def status_of_part(part: Part, pool: Pool, job: dict[str, Any]) -> dict[str, Any]:
    """One part of a job now: as `status_of_job`.

    Parameters
    ----------
    job : dict
        Status of its job. What it weighs and is granted is divided among the parts alike.
    """
    parts = len(pool.line.parts)
    return {
        **job,
        "iteration": part.iteration,
        "loss": part.loss,
        "normalized_loss": math.nan,
        "predicted": math.nan,
        "share": job["share"] / parts,
        "running": len(pool.running),
        "ready": len(pool.ready),
        "attained": pool.attained,
        "weight": job["weight"] / parts,
        "why": f"one of {parts} parts of {part.job}, which are served as one",
    }
