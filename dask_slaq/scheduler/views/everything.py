"""State of a scheduler and of all that runs there, as `dask_slaq.status` and the pages show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.views.reasons import positions, reason
from dask_slaq.scheduler.views.status import owners_of_jobs, status_of_jobs, teams_of_jobs
from dask_slaq.scheduler.views.workers import speeds_in_words

if TYPE_CHECKING:
    from dask_slaq.scheduler.current import RunningPlugin


def overview(plugin: RunningPlugin) -> dict[str, Any]:
    """Return the state of the scheduler and of every job; see `JOB_COLUMNS`."""
    jobs, places = plugin.jobs, positions(plugin.pools)
    trials, failed = plugin.searches.describe, plugin.failed is not None
    return {
        "policy": plugin.engine.policy.name,
        "epoch": plugin.settings.epoch,
        "capacity": plugin.scheduler.total_nthreads,
        "holding": plugin.pools.tracker.holding,
        "failed": plugin.failed,
        "jobs": {
            name: {
                **job,
                "reason": reason(jobs, name, places, trials, failed),
                "position": places.get(name),
            }
            for name, job in status_of_jobs(jobs).items()
        },
        "owners": owners_of_jobs(jobs),
        "teams": teams_of_jobs(jobs),
        "foretold": plugin.engine.jobs.ends.hits._asdict(),
        "limits": plugin.pools.limits.as_dict(),
        "speeds": _speeds(plugin),
        "memory": plugin.memory.about(),
        "searches": plugin.searches.tables.names(),
    }


def _speeds(plugin: RunningPlugin) -> str:
    """Return how many workers surely differ from the others; empty if none does."""
    if not plugin.speeds.unlike:
        return ""
    return speeds_in_words(plugin.scheduler.workers.values(), plugin.speeds)
