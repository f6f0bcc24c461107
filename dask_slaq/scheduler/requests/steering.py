"""Steering of running jobs, who may, and answers to what people ask; loaded when somebody does."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from time import time
from typing import Any

from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.jobs.settings import CHANGEABLE, OF_ENGINE, check_changes, plain
from dask_slaq.core.owners.owners import Owners
from dask_slaq.core.owners.terms import OwnerTerms, check_owners, flat_terms
from dask_slaq.core.owners.usage import check_by
from dask_slaq.core.scaling_terms import MOST_WORKERS
from dask_slaq.core.search_settings import CHANGEABLE as OF_SEARCHES
from dask_slaq.core.settings import check_limits, check_owner, is_name, is_number, is_whole, shown
from dask_slaq.scheduler import views
from dask_slaq.scheduler.current import RunningPlugin
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.owners.identity import Sender
from dask_slaq.scheduler.requests.validation import know_goal
from dask_slaq.scheduler.trials import Searches

#: What can be done to a running job.
ACTIONS = ("set", "pause", "unpause", "stop")


def check_operator(operators: Collection[str], by: object, what: str) -> None:
    """Raise `NotAllowed` unless `by` is an operator; everyone is if none are configured.

    Operators are owners, with or without the host: ``ann@host`` or ``ann``.
    """
    is_known = isinstance(by, str) and (by in operators or by.partition("@")[0] in operators)
    if operators and not is_known:
        raise NotAllowed(f"{shown(by)} may not {what}: only operators may ({', '.join(operators)})")


def _set(jobs: ScheduledJobs, searches: Searches, name: str, settings: Mapping[str, Any]) -> None:
    for key in settings:
        if key not in CHANGEABLE + OF_SEARCHES:
            raise InvalidSetting(
                f"{shown(key)} cannot be changed while a job runs; allowed are: "
                + ", ".join(CHANGEABLE + OF_SEARCHES)
            )
    given = {key: value for key, value in settings.items() if value is not None}
    of_job = {key: value for key, value in given.items() if key in CHANGEABLE}
    of_search = {key: value for key, value in settings.items() if key in OF_SEARCHES}
    checked = check_changes(of_job, jobs.engine.jobs[name].settings)
    if of_search:
        know_goal(of_search.get("goal"))
        searches.check(name, of_search)
    jobs.engine.set_job(name, **{key: of_job[key] for key in of_job if key in OF_ENGINE})
    if "value_per_hour" in checked:
        jobs.value[name] = checked["value_per_hour"]
    if of_search:
        searches.change(name, of_search)
    pool, now = jobs.pools.pools[name], jobs.engine.jobs[name]
    pool.weight = now.weight
    pool.touch()
    pool.floor = bool(now.min_share)
    pool.granted.most = math.inf if now.max_share is None else now.max_share


def steer(
    plugin: RunningPlugin,
    sender: Sender | None,
    /,
    job: Any,
    what: Any,
    by: Any = "",
    **settings: Any,
) -> None:
    """Do one of `ACTIONS` to a running job, for a `sender`, which need not be known.

    The `settings` for ``"set"`` are new values for some of `CHANGEABLE`, and of a search also for
    some of `OF_SEARCHES`. Only operators may steer the jobs of others; everyone if there are none.
    On an error nothing is changed: `UnknownJob`, `NotAllowed` or `InvalidSetting`.
    """
    jobs, searches = plugin.jobs, plugin.searches
    if not jobs.runs(job):
        raise jobs.unknown(job)
    name = str(job)
    if what not in ACTIONS:
        raise InvalidSetting(f"{shown(what)} cannot be done to a job; allowed are: {ACTIONS}")
    if not jobs.is_of(name, None if sender is None else sender.comm) and by != jobs.owner[name]:
        owner = f"{what} job {shown(name)} of {jobs.owner[name] or 'another client'}"
        check_operator(plugin.settings.operators, by, owner)
    if what != "set" and settings:
        raise InvalidSetting(f"settings are for 'set' alone, not {shown(what)}")
    if what == "set":
        _set(jobs, searches, name, settings)
    else:
        for each in (name, *searches.jobs_of(name)):
            if what == "stop":
                jobs.stop(each)
            else:
                jobs.pause(each, what == "pause")
    plugin.changed()


def policy(plugin: RunningPlugin, /, policy: Any, by: Any = "") -> None:
    """Change the policy."""
    check_operator(plugin.settings.operators, by, "change the policy")
    plugin.set_policy(str(policy))


def owner(plugin: RunningPlugin, /, owner: Any, by: Any = "", **settings: Any) -> None:
    """Change settings of an owner until the scheduler ends; those that are not given stay.

    They are some of `OwnerTerms`, and inf removes a limit. On `InvalidSetting` nothing is changed.
    """
    check_operator(plugin.settings.operators, by, "change the settings of owners")
    jobs = plugin.jobs
    if not (isinstance(owner, str) and (owner := check_owner(owner))):
        raise InvalidSetting(f"owner must be the name of an owner, not {shown(owner)}")
    if not settings:
        raise InvalidSetting(f"no setting of {owner} is given: {', '.join(OwnerTerms._fields)}")
    given = flat_terms(owner, {name: plain(value) for name, value in settings.items()})
    checked = check_owners({owner: given})[owner]
    owners = jobs.engine.owners or Owners({})
    values = {name: getattr(checked, name) for name in given}
    jobs.engine.set_owner(owner, owners.given(owner)._replace(**values))
    jobs.budgets.check()
    jobs.admit()
    plugin.changed()


def limit(plugin: RunningPlugin, /, label: Any, most: Any, by: Any = "") -> None:
    """Limit the tasks of a label at once until the scheduler ends; None removes the limit.

    On `InvalidSetting` nothing is changed.
    """
    check_operator(plugin.settings.operators, by, "change the limits of labels")
    if plugin.failed is not None:
        raise InvalidSetting(
            f"no limit is in force, because {plugin.failed}: register the plugin again"
        )
    limits: dict[Any, Any] = dict(plugin.jobs.pools.limits.most)
    if most is None:
        if not is_name(label) or label not in limits:
            known = ", ".join(limits) or "none"
            raise InvalidSetting(f"{shown(label)} has no limit; labels with a limit are: {known}")
        del limits[label]
    elif not is_name(label):
        raise InvalidSetting(f"a label must be a name in one line, not {shown(label)}")
    else:
        limits.update(check_limits({label: most}))
    plugin.jobs.pools.set_limits(limits)
    plugin.changed()


async def reserve(
    plugin: RunningPlugin, /, owner: Any, threads: Any, begin: Any, end: Any, by: Any = ""
) -> dict[str, Any]:
    """Reserve threads for an owner. Returns the reservation; see `Reservations.reserve`."""
    check_operator(plugin.settings.operators, by, "reserve threads")
    made = await plugin.jobs.reservations.reserve(owner, threads, begin, end)
    plugin.changed()
    return made


async def unreserve(plugin: RunningPlugin, /, number: Any, by: Any = "") -> None:
    """Remove a reservation by its number."""
    check_operator(plugin.settings.operators, by, "remove reservations")
    await plugin.jobs.reservations.remove(number)
    plugin.changed()


async def reservations(plugin: RunningPlugin, /) -> list[dict[str, Any]]:
    """Return the reservations that have not ended, by when they begin."""
    return await plugin.jobs.reservations.as_dicts()


def models(plugin: RunningPlugin, /, search: Any) -> dict[str, Any]:
    """Return the models of a search by its name, without curves, and whether it maximizes."""
    rows, settings = plugin.searches.tables.table(str(search), curves=False)
    return {"rows": rows, "maximize": settings is not None and settings.maximize}


def workers(plugin: RunningPlugin, /) -> dict[str, dict[str, Any]]:
    """Return how fast each worker is, by address; see `workers_of`."""
    return views.workers_of(plugin.scheduler, plugin.speeds)


async def ended(plugin: RunningPlugin, /, seconds: float = 86_400.0) -> list[dict[str, Any]]:
    """Return the jobs that ended in the last `seconds`, oldest first."""
    return await plugin.run_history.all_ended(plugin.jobs.ended, time() - seconds)


async def audit(plugin: RunningPlugin, /) -> list[dict[str, Any]]:
    """Return who changed what, oldest first, also on earlier schedulers; see `audit`."""
    return await plugin.run_history.audit(plugin.audited)


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
    return plugin.by_value.advise(None if workers is None else int(workers))


def history(plugin: RunningPlugin, /, start: int = 0, stop: int | None = None) -> dict[str, Any]:
    """Return a piece of the remembered epochs, oldest first; see `Epochs.read`."""
    return plugin.jobs.epochs.read(time(), start, stop)


def bindings(plugin: RunningPlugin, /) -> list[list[Any]]:
    """Return the remembered task bindings, oldest first, as lists of `Binding` fields."""
    bindings = plugin.pools.bindings
    return [[b.time, str(b.key), b.job, b.worker, b.reason, b.why] for b in bindings]
