"""Steering of running jobs: who may change them, and what is changed.

Loaded when somebody asks for a change: the functions from `steer` on are requests.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.job_settings import CHANGEABLE, OF_ENGINE, check_changes, plain
from dask_slaq.core.owner_terms import OwnerTerms, check_owners, flat_terms
from dask_slaq.core.owners import Owners
from dask_slaq.core.search_settings import CHANGEABLE as OF_SEARCHES
from dask_slaq.core.settings import check_limits, check_owner, is_name, shown
from dask_slaq.scheduler.requests.validation import know_goal

if TYPE_CHECKING:
    from dask_slaq.scheduler.current import RunningPlugin
    from dask_slaq.scheduler.identity import Sender
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs
    from dask_slaq.scheduler.trials import Searches

#: What can be done to a running job.
ACTIONS = ("set", "pause", "resume", "stop")


def check_operator(operators: Collection[str], by: object, what: str) -> None:
    """Raise `NotAllowed` unless `by` is an operator; everyone is if none are configured.

    Operators are owners, with or without the host: ``ann@host`` or ``ann``.
    """
    is_known = isinstance(by, str) and (by in operators or by.partition("@")[0] in operators)
    if operators and not is_known:
        raise NotAllowed(f"{shown(by)} may not {what}: only operators may ({', '.join(operators)})")


def set_owner(jobs: ScheduledJobs, owner: object, settings: Mapping[str, Any]) -> None:
    """Change settings of an owner until the scheduler ends; those that are not given stay.

    They are some of `OwnerTerms`, and inf removes a limit. On `InvalidSetting` nothing is changed.
    """
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


def set_limit(jobs: ScheduledJobs, label: object, most: object) -> None:
    """Limit the tasks of a label at once until the scheduler ends; None removes the limit.

    On `InvalidSetting` nothing is changed.
    """
    limits: dict[Any, Any] = dict(jobs.pools.limits.most)
    if most is None:
        if not is_name(label) or label not in limits:
            known = ", ".join(limits) or "none"
            raise InvalidSetting(f"{shown(label)} has no limit; labels with a limit are: {known}")
        del limits[label]
    elif not is_name(label):
        raise InvalidSetting(f"a label must be a name in one line, not {shown(label)}")
    else:
        limits.update(check_limits({label: most}))
    jobs.pools.set_limits(limits)


def _steer(
    jobs: ScheduledJobs,
    searches: Searches,
    job: object,
    what: object,
    settings: Mapping[str, Any],
    *,
    comm: object,
    by: object,
    operators: Collection[str],
) -> None:
    """Do one of `ACTIONS` to a running job, for the client of a connection whose owner is `by`.

    The `settings` for ``"set"`` are new values for some of `CHANGEABLE`, and of a search also for
    some of `OF_SEARCHES`. Only `operators` may steer the jobs of others; everyone if there are
    none. On an error nothing is changed: `UnknownJob`, `NotAllowed` or `InvalidSetting`.
    """
    if not jobs.runs(job):
        raise jobs.unknown(job)
    name = str(job)
    if what not in ACTIONS:
        raise InvalidSetting(f"{shown(what)} cannot be done to a job; allowed are: {ACTIONS}")
    if not jobs.is_of(name, comm) and by != jobs.owner[name]:
        owner = f"{what} job {shown(name)} of {jobs.owner[name] or 'another client'}"
        check_operator(operators, by, owner)
    if what != "set" and settings:
        raise InvalidSetting(f"settings are for 'set' alone, not {shown(what)}")
    if what == "set":
        _set(jobs, searches, name, settings)
        return
    for each in (name, *searches.jobs_of(name)):
        if what == "stop":
            jobs.stop(each)
        else:
            jobs.pause(each, what == "pause")


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
    if "worth_per_hour" in checked:
        jobs.worth[name] = checked["worth_per_hour"]
    if of_search:
        searches.change(name, of_search)
    pool, now = jobs.pools.pools[name], jobs.engine.jobs[name]
    pool.weight = now.weight
    pool.touch()
    pool.floor = bool(now.min_share)
    pool.most = math.inf if now.max_share is None else now.max_share


def steer(
    plugin: RunningPlugin,
    sender: Sender | None,
    /,
    job: Any,
    what: Any,
    by: Any = "",
    **settings: Any,
) -> None:
    """Change, pause, resume or stop a job. See `_steer`. A `sender` need not be known."""
    comm, operators = None if sender is None else sender.comm, plugin.settings.operators
    about = {"comm": comm, "by": by, "operators": operators}
    _steer(plugin.jobs, plugin.searches, job, what, settings, **about)
    plugin.changed()


def policy(plugin: RunningPlugin, /, policy: Any, by: Any = "") -> None:
    """Change the policy."""
    check_operator(plugin.settings.operators, by, "change the policy")
    plugin.set_policy(str(policy))


def owner(plugin: RunningPlugin, /, owner: Any, by: Any = "", **settings: Any) -> None:
    """Change settings of an owner. See `set_owner`."""
    check_operator(plugin.settings.operators, by, "change the settings of owners")
    set_owner(plugin.jobs, owner, settings)
    plugin.changed()


def limit(plugin: RunningPlugin, /, label: Any, most: Any, by: Any = "") -> None:
    """Change the limit of a label. See `set_limit`."""
    check_operator(plugin.settings.operators, by, "change the limits of labels")
    if plugin.failed is not None:
        raise InvalidSetting(
            f"no limit is in force, because {plugin.failed}: register the plugin again"
        )
    set_limit(plugin.jobs, label, most)
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
