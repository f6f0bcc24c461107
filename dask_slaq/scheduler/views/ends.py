"""Ends of running jobs: when they are expected, and why one is late."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.views.reasons import cannot_run

if TYPE_CHECKING:
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs

#: Times that are told, of those in `Engine.end_of`.
TOLD = ("fair", "promised", "low", "expected", "high")
#: Factor by which the time from arrival to the promised end may grow until it is told.
LATER = 1.2
#: Seconds from now that count as never: a paused job has no end in sight.
FOREVER = 1e8


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
    if found is None or _has_unknown_stages(jobs, name) or cannot_run(jobs, pool) is not None:
        return None
    found = {key: value if abs(value) < FOREVER else None for key, value in found.items()}
    if found["high"] is None:
        found.update(fair=None, low=None, expected=None)  # the fair end is known as little
    job, stages = jobs.engine.jobs[name], pool.stages
    announced = job.max_iter is not None or stages is not None
    told = {key: found[key] for key in TOLD}
    return {**told, "late": _late(jobs, name, found), "of": "job" if announced else "submitted"}


def _has_unknown_stages(jobs: ScheduledJobs, name: str) -> bool:
    """Return whether neither like runs nor reports tell which stages of a job are to come."""
    stages = jobs.pools.pools[name].stages
    if stages is None or stages.current.reports:
        return False
    return not jobs.memory.expected_stages(name)


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
    if now + age <= LATER * (before + age):
        return None
    threads = sum(ws.nthreads for ws in jobs.scheduler.running)
    if threads < then:
        return f"threads of the cluster: {threads}, and {then:g} when it was promised"
    return "more jobs have come, or its work has grown"
