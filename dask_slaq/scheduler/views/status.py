"""Status of jobs, as plain values that can be sent in a message."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import iterations_to_losses
from dask_slaq.core.owners import OwnerTerms
from dask_slaq.core.usage import Usage
from dask_slaq.scheduler.views.ends import ends_of
from dask_slaq.scheduler.views.usage import in_short

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.jobs import ScheduledJobs
    from dask_slaq.scheduler.pools import Pool


def status_of_job(jobs: ScheduledJobs, name: str, eta: list[float | None] | None) -> dict[str, Any]:
    """Return the current status of a job.

    Parameters
    ----------
    jobs : ScheduledJobs
    name : str
        Name of the job.
    eta : list of float, optional
        See `etas`.

    Returns
    -------
    dict
        ``age`` (seconds since it was opened), ``iteration`` (reports received), ``max_iter``
        (maximum number of iterations, None if unknown), ``loss`` (last raw loss),
        ``normalized_loss`` (in [0, 1]), ``predicted`` (fall of the normalized loss by the next
        epoch), ``share`` (threads), ``index`` (order of dispatch),
        ``workers`` (addresses of the worker set), ``running`` and ``ready`` (numbers of tasks that
        compute, and that wait for a thread),
        ``attained`` (core-seconds used), ``reports`` (False for unowned tasks), ``weight``,
        ``min_share`` and ``max_share`` (threads, None for none), ``target`` (loss, None for none),
        ``eta`` (None, or low, expected and high seconds to the target), ``latest`` (factor of its
        fair time, None for that of all), ``ends`` (see `ends_of`), ``owner``, ``state``
        (``running``, ``waiting`` for a thread or the end of another job, ``idle`` while
        its driver computes, ``paused``, ``stopping``), ``kind`` (None for unowned tasks),
        ``like_runs`` (past runs of like kind on which its forecast rests), ``why`` (reason for the
        grant, as text).
    """
    engine, pool = jobs.engine, jobs.pools.pools[name]
    job = engine.jobs[name]
    grant = engine.grants.get(name)
    running, ready = pool.counts(jobs.pools.tracker.holding)
    return {
        "age": monotonic() - job.arrival,
        "iteration": job.iteration,
        "max_iter": job.max_iter,
        "loss": job.loss,
        "normalized_loss": grant.normalized if grant else 1.0,
        "predicted": grant.predicted if grant else math.nan,
        "share": grant.share if grant else 0.0,
        "index": grant.index if grant else 0.0,
        "workers": sorted(grant.workers) if grant else [],
        "running": running,
        "ready": ready,
        "attained": job.runtime.attained,
        "reports": job.reports,
        "weight": job.weight,
        "min_share": job.min_share,
        "max_share": job.max_share,
        "target": job.target,
        "eta": eta,
        "latest": job.latest,
        "ends": ends_of(jobs, name),
        "owner": jobs.owner.get(name, ""),
        "state": state_of_job(jobs, name),
        "kind": jobs.memory.kind_name(name),
        "like_runs": jobs.memory.like_runs(name),
        "why": grant.why if grant else "just arrived: explored",
    }


def state_of_job(jobs: ScheduledJobs, name: str) -> str:
    """Return the state of a job in one word, see `status_of_job`."""
    pool = jobs.pools.pools[name]
    if name in jobs.stopping:
        return "stopping"
    if name in jobs.paused:
        return "paused"
    if name in jobs.queued:
        return "waiting"
    if pool.running:
        return "running"
    return "waiting" if pool.ready or pool.waiting else "idle"


def etas(jobs: ScheduledJobs, names: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the low, expected and high seconds until the `jobs` in `names` reach their targets.

    Returns
    -------
    dict of str to list
        By job. Jobs without a target or forecast are left out. A value is None where the forecast
        does not reach the target.
    """
    known, column = jobs.engine.jobs, jobs.engine.jobs.table.column["target"]
    targets = {
        name: float(column[known.row(name)])
        for name in names
        if name in jobs.pace and jobs.pace[name].seconds > 0
    }
    targets = {name: target for name, target in targets.items() if not math.isnan(target)}
    losses = np.array(list(targets.values()))
    found = iterations_to_losses(jobs.engine._predictor, list(targets), losses)
    return {
        name: [n * jobs.pace[name].seconds if math.isfinite(n) else None for n in row]
        for name, row in zip(targets, found.tolist(), strict=True)
        if not math.isnan(row[1])
    }


def owners_of_jobs(jobs: ScheduledJobs) -> dict[str, dict[str, Any]]:
    """Return the standing of every owner that has or had jobs, or has terms of its own.

    Returns
    -------
    dict of str to dict
        By owner: ``weight``, ``max_threads`` and ``max_jobs`` (None for no limit), ``jobs``
        (running ones and those that wait),
        ``deserved``, ``got``, ``lent`` and ``borrowed`` (threads, means of recent epochs; None
        unless ``slaq.owners`` is configured), ``factor`` (by which its weight counts because of
        what it used lately) and ``lately`` (that over its share; both None unless
        ``slaq.half-life`` is configured), ``core_seconds``, ``finished_jobs``,
        ``loss_reduction`` (sum over finished jobs, in normalized loss).
    """
    engine, usage = jobs.engine, jobs.usage.as_dict()
    running = Counter(jobs.owner[name] for name in jobs.names())
    found = {}
    known = {**usage, **running}
    without_host = {owner.partition("@")[0] for owner in known}
    terms = () if engine.owners is None else engine.owners.terms
    standings = engine.grants.owners if jobs.pools.pools else {}  # else those of the last job
    for owner in (*known, *(name for name in terms if name not in without_host | known.keys())):
        own = OwnerTerms() if engine.owners is None else engine.owners.of(owner)
        grant = standings.get(owner)
        standing: dict[str, Any] = dict.fromkeys(
            ("deserved", "got", "lent", "borrowed", "factor", "lately")
        )
        if grant is not None:
            standing = {
                "deserved": grant.deserved,
                "got": grant.got,
                "lent": max(grant.deserved - grant.got, 0.0),
                "borrowed": max(grant.got - grant.deserved, 0.0),
                "factor": grant.factor if jobs.accounts.half_life is not None else None,
                "lately": grant.lately if jobs.accounts.half_life is not None else None,
            }
        found[owner] = {
            "weight": own.weight,
            "max_threads": own.max_threads if math.isfinite(own.max_threads) else None,
            "max_jobs": own.max_jobs if math.isfinite(own.max_jobs) else None,
            "jobs": running[owner],
            **standing,
            **usage.get(owner, in_short(Usage())),
        }
    return found


def values_of_jobs(
    engine: Engine | Recorder,
    pools: Mapping[str, Pool],
    names: Sequence[str],
    running: Mapping[str, float],
) -> dict[str, NDArray[Any]]:
    """Return the current values of many jobs.

    Parameters
    ----------
    engine : Engine or Recorder
    pools : mapping of str to Pool
        Pools by job.
    names : sequence of str
        Names of the jobs.
    running : mapping of str to float
        Core-seconds of tasks that run; see `usage.seconds_of_running_tasks`.

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
        "running": np.array([pools[name].counts(True)[0] for name in names], np.int64),
        "core_seconds": seen["attained"][rows] + [running.get(name, 0.0) for name in names],
        **granted,
    }
