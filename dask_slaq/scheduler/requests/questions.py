"""Answers to what people ask of a running scheduler; loaded when somebody asks."""

from __future__ import annotations

import math
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.scaling_terms import MOST_WORKERS
from dask_slaq.core.settings import is_number, is_whole, shown
from dask_slaq.core.usage import check_by
from dask_slaq.scheduler import views

if TYPE_CHECKING:
    from dask_slaq.scheduler.current import RunningPlugin


def models(plugin: RunningPlugin, /, search: Any) -> dict[str, Any]:
    """Return the models of a search by its name, without curves, and whether it maximizes."""
    rows, settings = plugin.searches.tables.table(str(search), curves=False)
    return {"rows": rows, "maximize": settings is not None and settings.maximize}


def workers(plugin: RunningPlugin, /) -> dict[str, dict[str, Any]]:
    """Return how fast each worker is, by address; see `workers_of`."""
    return views.workers_of(plugin.scheduler, plugin.speeds)


async def ended(plugin: RunningPlugin, /, seconds: float = 86_400.0) -> list[dict[str, Any]]:
    """Return the jobs that ended in the last `seconds`, oldest first."""
    return await plugin.memory.all_ended(plugin.jobs.ended, time() - seconds)


async def audit(plugin: RunningPlugin, /) -> list[dict[str, Any]]:
    """Return who changed what, oldest first, also on earlier schedulers; see `audit`."""
    return await plugin.memory.audit(plugin.audited)


async def usage(plugin: RunningPlugin, /, by: Any = "owner", seconds: Any = None) -> dict[str, Any]:
    """Return usage of the last `seconds`, summed `by` owner, kind, job or day."""
    if seconds is not None and not (is_number(seconds) and 0 <= seconds < math.inf):
        raise InvalidSetting(f"usage is of a number of seconds >= 0, not {shown(seconds)}")
    jobs = plugin.jobs
    found = await views.usage_of(jobs.accounts, check_by(by), seconds)
    return {**found, "budgets": [each.as_dict() for each in jobs.budgets.all()]}


def explain(plugin: RunningPlugin, /, job: Any) -> dict[str, Any]:
    """Return why a job has what it has, or waits. See `explain`."""
    return views.explain(plugin.jobs, job, plugin.searches.describe, plugin.failed is not None)


def whatif(plugin: RunningPlugin, /, workers: Any = None) -> dict[str, Any]:
    """Return how many workers pay, and what another number would change."""
    if workers is not None and not (is_whole(workers, 0) and workers <= MOST_WORKERS):
        raise InvalidSetting(
            f"workers must be a whole number from 0 to {MOST_WORKERS}, not {shown(workers)}"
        )
    return plugin.by_worth.advise(None if workers is None else int(workers))


def history(plugin: RunningPlugin, /, start: int = 0, stop: int | None = None) -> dict[str, Any]:
    """Return a piece of the remembered epochs, oldest first; see `Epochs.read`."""
    return plugin.jobs.epochs.read(time(), start, stop)


def bindings(plugin: RunningPlugin, /) -> list[list[Any]]:
    """Return the remembered task bindings, oldest first, as lists of `Binding` fields."""
    bindings = plugin.pools.bindings
    return [[b.time, str(b.key), b.job, b.worker, b.reason, b.why] for b in bindings]
