"""Status of jobs, as plain values that can be sent in a message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.pools import Pool


def status_of_job(engine: Engine, pool: Pool, name: str) -> dict[str, Any]:
    """Return the current status of a job.

    Parameters
    ----------
    engine : Engine
    pool : Pool
        Pool of the job.
    name : str
        Name of the job.

    Returns
    -------
    dict
        ``iteration`` (reports received), ``max_iter`` (maximum number of iterations, None if
        unknown), ``loss`` (last raw loss), ``normalized_loss`` (in [0, 1]), ``predicted`` (fall of
        the normalized loss by the next epoch), ``share`` (threads), ``index`` (order of dispatch),
        ``workers`` (addresses of the worker set), ``running`` and ``ready`` (numbers of tasks),
        ``attained`` (core-seconds used), ``reports`` (False for unowned tasks), ``weight``,
        ``why`` (reason for the grant, as text).
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


def values_of_jobs(
    engine: Engine | Recorder, pools: Mapping[str, Pool], names: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Return the current values of many jobs.

    Parameters
    ----------
    engine : Engine or Recorder
    pools : mapping of str to Pool
        Pools by job.
    names : sequence of str
        Names of the jobs.

    Returns
    -------
    dict of str to array (n_jobs,)
        The variables `core.epochs.VARIABLES`, as in `status_of_job`.
    """
    rows = np.fromiter(map(engine.jobs.row, names), np.int64, len(names))
    seen = engine.jobs.runtimes.column
    granted = {
        "normalized_loss": np.ones(len(rows)),
        "predicted": np.full(len(rows), math.nan),
        "share": np.zeros(len(rows)),
    }
    if (decision := engine.grants.decision) is not None:
        position = engine.grants.position
        at = np.array([position.get(name, -1) for name in names], np.int64)
        decided = decision.normalized, decision.predicted, decision.share
        for values, all_of in zip(granted.values(), decided, strict=True):
            values[at >= 0] = all_of[at[at >= 0]]
    return {
        "iteration": seen["reports"][rows],
        "loss": seen["loss"][rows],
        "running": np.array([len(pools[name].running) for name in names], np.int64),
        **granted,
    }
