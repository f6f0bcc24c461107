"""Status of jobs and owners: how what `JOB_COLUMNS` names is made, as plain values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import FitStatus
from dask_slaq.core.owners.terms import standings
from dask_slaq.core.owners.usage import Usage
from dask_slaq.scheduler.jobs.hindrances import is_waiting
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.jobs.values import etas, values_of_jobs
from dask_slaq.scheduler.views.reasons import cannot_run

#: Times that are shown, of those in `Engine.end_of`.
SHOWN = ("fair", "promised", "low", "expected", "high")


def ends_of(jobs: ScheduledJobs, name: str) -> dict[str, Any] | None:
    """Return when a job ends, in seconds from now; None if its length is unknown, or it cannot run.

    ``fair`` is on a cluster that shares fairly (negative once that has passed), ``promised`` at the
    latest (None without a promise), ``expected`` in the 80 % band ``low`` to ``high``. All but the
    promise are None while too little is known. ``late`` is the reason if the promise has moved
    since a fifth of the work was done, or None. ``of`` is ``"job"``, or ``"submitted"`` for a job
    that announced nothing: the end of what it has submitted so far.
    """
    found: dict[str, Any] | None = jobs.engine.end_of(name, monotonic())
    pool = jobs.pools.pools[name]
    if found is None or cannot_run(jobs, pool) is not None:
        return None
    # Seconds from now that count as never: a paused job has no end in sight.
    found = {key: value if abs(value) < 1e8 else None for key, value in found.items()}
    if found["high"] is None:
        found.update(fair=None, low=None, expected=None)  # the fair end is known as little
    announced = jobs.engine.jobs[name].max_iter is not None
    times = {key: found[key] for key in SHOWN}
    return {**times, "late": _late(jobs, name, found), "of": "job" if announced else "submitted"}


def _late(jobs: ScheduledJobs, name: str, found: Mapping[str, float | None]) -> str | None:
    """Return why a job ends later than it was promised, if it does."""
    if name in jobs.queued:
        return "it waits for another job of its owner"
    if jobs.pools.pools[name].paused:
        return "it is paused"
    now, before, then = found["promised"], found["before"], found["threads"]
    if now is None or before is None or then is None:
        return None
    age = monotonic() - jobs.engine.jobs[name].arrival
    # Factor by which the time from arrival to the promised end may grow until that is shown.
    if now + age <= 1.2 * (before + age):
        return None
    threads = sum(ws.nthreads for ws in jobs.scheduler.running)
    if threads < then:
        return f"threads of the cluster: {threads}, and {then:g} when it was promised"
    return "more jobs have come, or its work has grown"


def status_of_jobs(
    jobs: ScheduledJobs, names: Collection[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the status of jobs, by default of all and of unowned tasks.

    Reason and position are not in it, since they depend on other jobs.
    """
    engine, now = jobs.engine, monotonic()
    names = jobs.pools.pools if names is None else names
    expected = etas(engine, jobs.pace, [name for name in names if name in jobs.reports])
    kept = values_of_jobs(engine, jobs.pools.pools, names, {})
    kept["attained"] = kept.pop("core_seconds")
    rows = zip(*(column.tolist() for column in kept.values()), strict=True)
    found, pools = {}, jobs.pools.pools
    granted = {name: pool.shown_share for name, pool in pools.items()}
    of_all = standings(granted, {name: pool.threads - pool.lent for name, pool in pools.items()})
    for name, row in zip(names, rows, strict=True):
        job, grant, pool = engine.jobs[name], engine.grants.get(name), jobs.pools.pools[name]
        found[name] = {
            **dict(zip(kept, row, strict=True)),
            "lent": of_all[name]["lent"],
            "borrowed": of_all[name]["borrowed"],
            "owed": 0.0 if pool.account.is_limit else max(pool.account.owed(now), 0.0),
            "owner": jobs.owner.get(name, ""),
            "state": state_of_job(jobs, name),
            "age": now - job.arrival,
            "max_iter": job.max_iter,
            "ready": pool.without_thread(jobs.pools.records.holding),
            "eta": expected.get(name),
            "ends": ends_of(jobs, name),
            "index": grant.index if grant else 0.0,
            "why": grant.why if grant else "just arrived: explored",
            "workers": sorted(grant.workers) if grant else [],
            "reports": job.reports,
            "weight": job.weight,
            "min_share": job.min_share,
            "max_share": job.max_share,
            "target": job.target,
            "max_slowdown": job.max_slowdown,
            "kind": jobs.run_history.kind_name(name),
            "like_runs": jobs.run_history.like_runs(name),
        }
    return found


def state_of_job(jobs: ScheduledJobs, name: str) -> str:
    """Return the state of a job in one word: ``idle`` while its driver computes."""
    pool = jobs.pools.pools[name]
    if name in jobs.stopping:
        return "stopping"
    if name in jobs.paused:
        return "paused"
    if name in jobs.queued:
        return "waiting"
    if pool.running:
        return "running"
    if is_waiting(jobs, name):
        return "waiting"
    return "running" if any(ts.state == "processing" for ts in pool.unfinished) else "idle"


def owners_of_jobs(jobs: ScheduledJobs) -> dict[str, dict[str, Any]]:
    """Return the standing of every owner that has or had jobs, or has terms of its own.

    ``jobs`` are those that run and wait; ``deserved``, ``got``, ``lent``, ``borrowed`` and ``idle``
    are threads, means of recent epochs (None unless ``slaq.owners`` is configured); ``factor`` is
    by what its weight counts because of what it used lately, and ``lately`` that over its share
    (None unless ``slaq.half-life`` is configured); ``core_hours`` is its budget and
    ``core_hours_left`` what is left of that (None without a budget or any use), ``spare`` whether
    nothing is.
    """
    engine, usage = jobs.engine, jobs.accounts.totals
    running = Counter(jobs.owner[name] for name in jobs.reports)
    found = {}
    known = {**usage, **running}
    listed = []
    if engine.owners is not None:
        theirs = {engine.owners.account_of(owner.partition("@")[0]) for owner in known}
        teams = {team[:-1] for name in engine.owners.terms for team in jobs.line(name)[1:]}
        listed = [name for name in engine.owners.terms if name not in theirs | teams | known.keys()]
    grants = engine.grants.owners if jobs.pools.pools else {}  # else those of the last job
    mine = {name: grant for name, grant in grants.items() if not name.endswith("/")}
    of_all = standings(
        {name: grant.deserved for name, grant in mine.items()},
        {name: grant.got for name, grant in mine.items()},
    )
    unknown = dict.fromkeys(("deserved", "got", "lent", "borrowed", "idle"))
    for owner in (*known, *listed):
        used = usage.get(owner, Usage())
        found[owner] = {
            **_terms(jobs, owner),
            "jobs": running[owner],
            **of_all.get(owner, unknown),
            "core_seconds": used.core_seconds,
            "finished_jobs": used.jobs,
            "loss_reduction": used.loss_reduction,
        }
    return found


def teams_of_jobs(jobs: ScheduledJobs) -> dict[str, dict[str, Any]]:
    """Return the standing of every team, by its name with a slash; see `owners_of_jobs`.

    Threads, jobs and usage are the sums over its members.
    """
    owners = owners_of_jobs(jobs)
    members: dict[str, list[str]] = {}
    for owner in owners:
        for team in jobs.line(owner)[1:]:
            members.setdefault(team, []).append(owner)
    found = {}
    for team, names in sorted(members.items()):
        found[team] = _terms(jobs, team)
        for key in owners[names[0]].keys() - found[team].keys():
            known = [owners[name][key] for name in names if owners[name][key] is not None]
            found[team][key] = sum(known) if known else None
    return found


def _terms(jobs: ScheduledJobs, owner: str) -> dict[str, Any]:
    """Return the terms of an owner or team, None for no limit, and how it stands by them."""
    own, spending, grant = jobs.terms_of(owner), jobs.budgets.of(owner), None
    if jobs.pools.pools and jobs.accounts.half_life is not None:
        grant = jobs.engine.grants.owners.get(owner)
    return {
        "weight": own.weight,
        "max_threads": own.max_threads if math.isfinite(own.max_threads) else None,
        "max_jobs": own.max_jobs if math.isfinite(own.max_jobs) else None,
        "max_resources": dict(own.max_resources or {}),
        "core_hours": own.core_hours if own.has_budget else None,
        "core_hours_left": None if spending is None else spending.left,
        "spare": jobs.budgets.is_over(owner),
        "factor": None if grant is None else grant.factor,
        "lately": None if grant is None else grant.lately,
    }


class CurveToCome(NamedTuple):
    """Predicted raw loss of a job, ``(n_horizons,)`` seconds from now, at its present pace.

    `low` and `high` are the band that holds 80 % of the reports to come, None if unknown; `best`
    is the predicted final loss, and `span` the whole predicted range.
    """

    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    best: float
    span: float


def curves_to_come(jobs: ScheduledJobs, names: Iterable[str]) -> dict[str, CurveToCome]:
    """Return the predicted curves of those jobs that have one; all `names` report."""
    predictor, pace = jobs.engine.forecaster, jobs.pace
    known = [name for name in names if name in pace and pace[name].seconds > 0]
    if not known:
        return {}
    forecast = predictor.forecast(known)
    band = getattr(predictor, "band", None)
    band_of = None if band is None else band(known)
    found = {}
    for i, name in enumerate(known):
        best = float(forecast.level[i] - forecast.remaining[i])
        span = float(forecast.start[i]) - best
        if forecast.status[i] != FitStatus.OK or not span > 0:
            continue
        low, high = (None, None) if band_of is None else (band_of[0][i], band_of[1][i])
        has_band = low is not None and bool(np.isfinite([low, high]).all())
        found[name] = CurveToCome(
            forecast.horizons * pace[name].seconds,
            forecast.level[i] - forecast.reduction[i],
            low if has_band else None,
            high if has_band else None,
            best,
            span,
        )
    return found
