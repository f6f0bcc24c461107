"""Changes of running jobs, owners, limits and the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import (
    ask,
    current_client,
    go_without,
    owner_of_client,
    request,
)
from dask_slaq.client.messages import find
from dask_slaq.core.errors import InvalidSetting, NoPlugin
from dask_slaq.core.jobs.settings import CHANGEABLE, check_changes, given_settings
from dask_slaq.core.settings import shown
from dask_slaq.core.trials import CHANGEABLE as OF_SEARCHES
from dask_slaq.core.trials import SearchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Client


def change(
    job: str,
    *,
    weight: float | None = None,
    min_share: float | None = None,
    max_share: float | None = None,
    target: float | None = None,
    max_slowdown: float | None = None,
    value_per_hour: float | None = None,
    client: Client | None = None,
) -> None:
    """Change settings of a running job. Settings that are None stay as they are.

    Parameters
    ----------
    job : str
        Name of a running job.
    weight : float, optional
        Relative importance, > 0.
    min_share, max_share : float, optional
        Floor, and cap while others want threads. A `min_share` of 0 and a `max_share` of inf
        remove the limit.
    target : float, optional
        Loss to reach.
    max_slowdown : float, optional
        Factor of its fair time at which the job ends at the latest; inf for no promise.
    value_per_hour : float, optional
        What it is worth that the job ends an hour sooner, in the unit of the price of workers.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Raises
    ------
    UnknownJob, NotAllowed, InvalidSetting, NoPlugin
        Nothing was changed.

    Examples
    --------
    >>> change("logreg-C0.1", weight=2, max_share=8)  # doctest: +SKIP
    """
    return steer(client, job, "set", **given_settings(locals(), CHANGEABLE))


def pause(job: str, client: Client | None = None) -> None:
    """Pause a job: no task of it starts until `unpause`.

    Tasks that run go on to their end. A fit in one long task, as of a boosting library, trains on:
    `stop` ends it.

    Parameters
    ----------
    job : str
        Name of a running job.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Raises
    ------
    UnknownJob, NotAllowed, NoPlugin

    Examples
    --------
    >>> pause("logreg-C0.1")  # doctest: +SKIP
    """
    return steer(client, job, "pause")


def unpause(job: str, client: Client | None = None) -> None:
    """Let a paused job go on.

    Parameters
    ----------
    job, client
        As of `pause`.

    Raises
    ------
    UnknownJob, NotAllowed, NoPlugin

    See Also
    --------
    resume : returns the state from which a model goes on.

    Examples
    --------
    >>> unpause("logreg-C0.1")  # doctest: +SKIP
    """
    return steer(client, job, "unpause")


def stop(job: str, client: Client | None = None) -> None:
    """Stop a job: its next report or fit raises `StopTraining` in its training loop.

    A fit of a supported library that has begun to iterate returns the model so far.

    Parameters
    ----------
    job, client
        As of `pause`.

    Raises
    ------
    UnknownJob, NotAllowed, NoPlugin

    Examples
    --------
    >>> stop("logreg-C0.1")  # doctest: +SKIP
    """
    return steer(client, job, "stop")


def set_policy(policy: str, client: Client | None = None) -> None:
    """Change the policy of the scheduler, without a restart.

    Parameters
    ----------
    policy : str
        Name of a policy, such as ``"fair"``.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Raises
    ------
    UnknownPolicy, NotAllowed, NoPlugin

    Examples
    --------
    >>> set_policy("fair")  # doctest: +SKIP
    """
    return ask(client, "slaq_policy", by=owner_of_client(), policy=policy)


def set_owner(
    owner: str,
    *,
    weight: float | None = None,
    max_threads: float | None = None,
    max_jobs: float | None = None,
    max_slowdown: float | None = None,
    value_per_hour: float | None = None,
    core_hours: float | None = None,
    period: str | float | None = None,
    over: str | None = None,
    max_resources: Mapping[str, float] | None = None,
    client: Client | None = None,
) -> None:
    """Change settings of an owner, until the scheduler ends. Settings that are None stay.

    Parameters
    ----------
    owner : str
        As in ``slaq.owners``: ``ann@desk``, ``ann`` for all of her machines, or ``default``.
    max_threads : float, optional
        Most threads; inf for no limit.
    max_jobs : float, optional
        Most jobs and searches at once; inf for no limit. Those that run go on.
    core_hours : float, optional
        Budget: core-hours that it may use within the period; inf for none.
    period : str or float, optional
        Period of the budget in whole days, such as ``"30d"``, or in seconds.
    over : str, optional
        What happens above the budget: new jobs ``"wait"``, or all jobs run on what nobody else
        wants, ``"spare"``. Those that run go on, on that.
    max_resources : mapping of str to float, optional
        Most of each resource that tasks of its jobs use at once, such as ``{"GPU": 4}``, in place
        of all earlier ones.
    weight, max_slowdown, value_per_hour, client : optional
        As of `change`: relative to other owners, of later jobs, and of jobs that say none.

    Raises
    ------
    InvalidSetting, NotAllowed, NoPlugin
        Nothing was changed.

    Examples
    --------
    >>> set_owner("ann", max_threads=8, core_hours=3000, period="30d")  # doctest: +SKIP
    """
    given = {name: value for name, value in locals().items() if name != "client"}
    return ask(client, "slaq_owner", by=owner_of_client(), **_given(**given))


def set_limit(label: str, most: int | None, client: Client | None = None) -> None:
    """Change how many tasks of a label may run at once, until the scheduler ends.

    Parameters
    ----------
    label : str
        Of the tasks submitted in ``dask.annotate(slaq_limit=label)``.
    most : int or None
        Most tasks at once; None for no limit. Those that run go on.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Raises
    ------
    InvalidSetting, NotAllowed, NoPlugin
        Nothing was changed.

    Examples
    --------
    >>> set_limit("database", 4)  # doctest: +SKIP
    """
    return ask(client, "slaq_limit", by=owner_of_client(), label=label, most=most)


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def steer(client: Client | None, job: str, what: str, **settings: Any) -> Any:
    """Ask the scheduler to change a job; settings that are None stay as they are."""
    given = _given(**settings)
    if what == "set" and not given:
        raise InvalidSetting(
            f"a call for {shown(job)} changes nothing: None leaves a setting as it is; prune=False "
            "ends pruning, and max_share=inf a limit"
        )
    client = current_client(client)
    return client.sync(_steer_or_go_without, client, job, what, given)


async def _steer_or_go_without(
    client: Client, job: str, what: str, settings: dict[str, Any]
) -> None:
    """Steer a job; without the plugin, do for a job of this client what needs no scheduler."""
    by = owner_of_client()
    try:
        await request(client, "slaq_steer", job=job, what=what, by=by, **settings)
    except NoPlugin as error:
        block = find(client, job)
        if block is None:
            raise
        go_without(client, error)
        of_search = {name: settings.pop(name) for name in OF_SEARCHES if name in settings}
        if of_search:
            SearchSettings(**of_search)
        check_changes(settings, {})
        if what == "stop":
            block._ask_to_stop()
        if "target" in settings:
            block._settings["target"] = settings["target"]  # nobody else looks at it
