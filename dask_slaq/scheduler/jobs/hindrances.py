"""What keeps jobs from going on: they wait, are blocked by limits, or have become silent."""

from __future__ import annotations

from time import monotonic

from dask_slaq.core.settings import BLOCKED
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.jobs.values import SILENT_SECONDS
from dask_slaq.scheduler.pools import Blocked, Pool, find_blocked


def look_for_hindrances(jobs: ScheduledJobs) -> None:
    """Alert of jobs that are silent or blocked, and count the time of those that wait."""
    _look_for_silence(jobs)
    _look_for_blocked(jobs)
    jobs.accounts.count_waits(name for name in jobs.reports if is_waiting(jobs, name))


def _look_for_silence(jobs: ScheduledJobs) -> None:
    """Alert of jobs that have reported nothing for long, although nothing kept them from it."""
    now = monotonic()
    for name, pace in jobs.pace.items():
        if now - pace.since <= SILENT_SECONDS / 2:
            continue
        if jobs.pools.pools[name].paused or is_waiting(jobs, name) or not _acts(jobs, name):
            pace.since = now
        elif (message := silence_of(jobs, name)) is not None:
            jobs.goals.tell_once(name, "silent", message)


def _look_for_blocked(jobs: ScheduledJobs) -> None:
    """Alert of jobs whose limits never let them start; of those that are to stop, end that."""
    for name in list(jobs.reports):
        pool = jobs.pools.pools[name]
        if name in jobs.queued and (owner := jobs.admission.waits_for_itself(name)):
            jobs.goals.tell_once(name, "blocked", f"is blocked: {_around(jobs, owner)}")
        if not (pool.ready and jobs.pools.records.holding) or pool.paused:
            continue
        blocked = blocked_in(jobs, pool)
        if blocked is None:
            continue
        if name in jobs.stopping:
            if not (blocked.together and jobs.reports[name]):  # else it ends at its next report
                jobs.pools.control.cancel(blocked.tasks)
        elif jobs.goals.tell_once(name, "blocked", f"is blocked: {blocked.why}"):
            jobs.tell_client(name, BLOCKED, why=blocked.why)


def _around(jobs: ScheduledJobs, owner: str) -> str:
    most = jobs.terms_of(owner).max_jobs
    return f"the blocks around it have all {most:g} jobs of {owner}, and may wait for its end"


def blocked_in(jobs: ScheduledJobs, pool: Pool) -> Blocked | None:
    """Return what can never start of a pool under the limits as they are; None if all can."""
    if pool.group is None and not (pool.gang or jobs.pools.records.gangs):
        return None
    return find_blocked(jobs.pools, pool)


def _acts(jobs: ScheduledJobs, name: str) -> bool:
    """Return whether a job runs tasks, or its driver computes, and so could report."""
    unfinished = jobs.pools.pools[name].unfinished
    # The driver of a search reports nothing: all of its models are done.
    is_search = jobs.engine.jobs.search.get(name) == name
    drives = not unfinished and not is_search
    return drives or any(ts.state == "processing" for ts in unfinished)


def silence_of(jobs: ScheduledJobs, name: str) -> str | None:
    """Return for how long a job has been silent, in words; None if it is not silent."""
    pace, now = jobs.pace.get(name), monotonic()
    if pace is None or not pace.is_silent(now):
        return None
    return f"silent for {now - pace.last:.3g} s, usually {pace.seconds:.2g} s"


def is_waiting(jobs: ScheduledJobs, name: str) -> bool:
    """Return whether a job has tasks to run, and none of them has a thread."""
    pool = jobs.pools.pools[name]
    if pool.running or pool.paused:
        return False
    return bool(
        pool.ready
        or pool.waiting
        or any(ts.state in ("queued", "no-worker") for ts in pool.unfinished)
    )
