"""State of a scheduler and of all that runs there, as `dask_slaq.status` and the pages show it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from time import localtime, strftime, time
from typing import Any

from distributed import Scheduler
from distributed.scheduler import WorkerState

from dask_slaq.core.owners.usage import DAY_SECONDS, EARLIER_DAY, Usage, sum_by
from dask_slaq.core.runtime import Known, WorkerSpeeds
from dask_slaq.scheduler.current import RunningPlugin
from dask_slaq.scheduler.owners.accounts import Accounts
from dask_slaq.scheduler.views.reasons import positions, reason
from dask_slaq.scheduler.views.status import owners_of_jobs, status_of_jobs, teams_of_jobs


def workers_of(scheduler: Scheduler, speeds: WorkerSpeeds) -> dict[str, dict[str, Any]]:
    """Return what is known of each worker, by address.

    ``factor`` is what is used: by how much longer tasks take there, 1 while it is not sure that
    they do. ``estimate`` is the best guess, and ``low`` to ``high`` its 80 % band; they are None
    while nothing is known.
    """
    return {
        address: {
            "name": str(ws.name),
            "host": ws.host,
            "threads": ws.nthreads,
            **_of(speeds.workers.get(address)),
        }
        for address, ws in scheduler.workers.items()
    }


def _of(known: Known | None) -> dict[str, float | None]:
    if known is None:
        return {"factor": 1.0, "estimate": None, "low": None, "high": None}
    width = math.exp(1.28 * known.error)  # the middle 80 % of a normal distribution
    return {
        "factor": known.factor,
        "estimate": known.estimate,
        "low": known.estimate / width,
        "high": known.estimate * width,
    }


def speeds_in_words(workers: Iterable[WorkerState], speeds: WorkerSpeeds) -> str:
    """Return how many workers surely differ from the others; empty if none does."""
    factors = [speeds.factor(ws.address) for ws in workers]
    slower, faster = sum(f > 1 for f in factors), sum(f < 1 for f in factors)
    parts = [f"{n} {what}" for n, what in ((slower, "slower"), (faster, "faster")) if n]
    return f"workers: {', '.join(parts)}" if parts else ""


def overview(plugin: RunningPlugin) -> dict[str, Any]:
    """Return the state of the scheduler and of every job; see `JOB_COLUMNS`."""
    jobs, places = plugin.jobs, positions(plugin.pools)
    trials, failed = plugin.searches.describe, plugin.failed is not None
    return {
        "policy": plugin.engine.policy.name,
        "epoch": plugin.settings.epoch,
        "capacity": plugin.scheduler.total_nthreads,
        "holding": plugin.pools.records.holding,
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
        "speeds": speeds_in_words(plugin.scheduler.workers.values(), plugin.speeds),
        "run_history": plugin.run_history.about(),
        "searches": plugin.searches.tables.names(),
    }


async def usage_of(accounts: Accounts, by: Sequence[str], seconds: float | None) -> dict[str, Any]:
    """Return usage by fields of `UsageKey`, of the last `seconds` in whole days, or all.

    It has ``rows`` (see `usage_as_dicts`), ``file``, ``since`` (Unix seconds from which usage
    was counted, None if from the file's beginning) and ``note`` (what is missing, or None).
    """
    from dask_slaq.run_history import usage_as_dicts  # and SQLite

    since = EARLIER_DAY if seconds is None else int((time() - seconds) // DAY_SECONDS)
    accounts.tick()
    left = [(key, usage) for key, usage in accounts.ledger.rows.items() if key.day >= since]
    found, store, note = sum_by(left, by), accounts.store, accounts.broken
    kept = None
    if store is not None:
        kept = await asyncio.get_running_loop().run_in_executor(None, store.usage, by, since)
        for key, usage in (kept or {}).items():
            found.setdefault(key, Usage()).add(usage)
    begin = strftime("%Y-%m-%d %H:%M:%S", localtime(accounts.begin))
    if note is not None:
        note = f"usage is no longer counted: {note}"
    elif store is None:
        note = f"since the scheduler's start at {begin}: slaq.run-history names no file to keep it"
    elif store.failed is not None or kept is None:
        note = f"{store.path} cannot be used, and usage is kept until the scheduler ends"
    return {
        "rows": usage_as_dicts(found, by),
        "file": None if store is None else str(store.path),
        "since": accounts.begin if kept is None else None,
        "note": note,
    }


def core_seconds_by_day(accounts: Accounts) -> dict[tuple[int, str], float]:
    """Return the core-seconds of the last days by day and owner."""
    accounts.settle()
    # Days whose usage the board shows.
    return {
        (day, owner): seconds
        for day, of_day in accounts.spent.days.items()
        for owner, seconds in of_day.items()
        if day > time() // DAY_SECONDS - 14
    }
