"""Changes of running jobs, owners, limits and the policy; and stops that the scheduler asks for."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from dask_slaq.client.connection import (
    ask,
    current_client,
    go_without,
    owner_of_client,
    request,
)
from dask_slaq.core.errors import InvalidSetting, NoPlugin
from dask_slaq.core.jobs.settings import CHANGEABLE, check_changes, given_settings
from dask_slaq.core.settings import BLOCKED, OUTSIDE, SILENT, STOP, shown
from dask_slaq.core.trials import CHANGEABLE as OF_SEARCHES
from dask_slaq.core.trials import SearchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Client

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Block that is told what the scheduler has to say to it."""

    name: str
    _settings: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left."""

    def _ask_to_stop(self) -> None:
        """Let the next report raise `StopTraining`."""


#: Methods of a job by the messages of the scheduler that they are called for.
HEARD = {STOP: "_ask_to_stop", OUTSIDE: "_warn_of_threads", BLOCKED: "_warn_of_limits"}

# Jobs in their blocks by run, for each client.
_running: WeakKeyDictionary[Client, WeakValueDictionary[str, Listener]] = WeakKeyDictionary()


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
        block = _find(client, job)
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


def listen(client: Client, run: str, job: Listener) -> None:
    """Tell the job what the scheduler has to say to this `run` of its block."""
    jobs = _running.get(client)
    if jobs is None:
        jobs = _running[client] = WeakValueDictionary()
        for message, method in HEARD.items():
            client._stream_handlers[message] = functools.partial(_tell_block, jobs, method)  # type: ignore[assignment]  # narrow
        client._stream_handlers[SILENT] = warn_of_silence
    jobs[run] = job


def _find(client: Client, name: str) -> Listener | None:
    """Return the job of this name in whose block `client` is now, or None."""
    jobs = list(_running.get(client, {}).values())
    return next((job for job in jobs if job.name == name and job.is_open), None)


def _tell_block(
    jobs: WeakValueDictionary[str, Listener], method: str, run: str, **about: str
) -> None:
    if (job := jobs.get(run)) is not None:
        getattr(job, method)(**about)


#: What to do about tasks whose name contains a text.
REMEDIES = {
    "optimize": "Optuna's trials report where they ask whether to be pruned. Create or load the "
    "study with pruner=slaq.optuna.Pruner(), call trial.report and trial.should_prune in the "
    "objective, and leave n_jobs at 1 in a task",
    "_fit_and_score": "scikit-learn's fits report by a callback. Set it on the estimator that "
    "iterates: estimator.set_callbacks(dask_slaq.adapters.sklearn.SlaqReport())",
    "_parallel_build_trees": "the trees of a forest make no steps that could be compared, so use "
    "slaq.job instead of slaq.search",
    "create_model": "a search of dask-ml, such as IncrementalSearchCV or HyperbandSearchCV, trains "
    "its models in turns of tasks, and reports them itself to a job: use slaq.job instead of "
    "slaq.search. Other functions that train must call dask_slaq.report(loss) after each step",
}
OTHERWISE = (
    "the function that trains must call dask_slaq.report(loss) after each step, in the thread of "
    "its task"
)
#: What is wrong, by a word of the scheduler.
CAUSES = {
    "silent": "search %(job)r: %(n)s tasks %(tasks)r ended without a report, so that nothing is "
    "known of their models, and they ran as under plain Dask: %(remedy)s",
    "empty": "search %(job)r: no task was submitted in its block. Tasks belong to the search in "
    "whose block they are submitted or computed, wherever they were built: call client.map, "
    "client.compute or dask.compute inside of it. What client.submit has submitted before is not "
    "submitted again while its future is held, unless with pure=False",
    "known": "search %(job)r: %(n)s tasks %(tasks)r were submitted before, outside of this search: "
    "they are not computed again, and nothing is known of their models. To train these "
    "in the search, pass pure=False to map or submit, or drop the futures of before",
    "metric": "search %(job)r: %(tasks)s. Its models ran as under plain Dask: name the loss by "
    "metric= of the search",
    "metrics": "search %(job)r: its models are compared by different losses, %(tasks)s, the first "
    "metrics of their first reports: name one by metric= of the search",
    "several": "search %(job)r: a task %(tasks)r has reported more than twice its %(n)s steps: if "
    "it trains several models, they count as one, which ends with the last loss. Train one per "
    "task (as many partitions as models, Parallel(batch_size=1)), or if it is one, raise steps=",
    "group": "search %(job)r: its models have no parameter %(tasks)s: they are compared with all",
    "scores": "search %(job)r: the loss of every model only rose: if it is a score, open the "
    "search with maximize=True",
    "job": "job %(job)r: its tasks %(tasks)r call dask_slaq.report, which is for the tasks of a "
    "search: open the block with slaq.search instead of slaq.job if each task trains a model of "
    "its own, or pass job.reporter() to the tasks of one training",
}


#: Searches of which it is remembered what was advised about tasks that do not report.
REMEMBERED = 100
_advised: OrderedDict[object, set[str]] = OrderedDict()


def warn_of_silence(why: Any = "", run: Any = None, **about: Any) -> None:
    """Warn of what the scheduler has found in the block `run` of a search or job of this client.

    A block of many kinds of tasks has one warning that they do not report, or one per remedy.
    """
    cause = CAUSES.get(why)
    if cause is not None:
        name = str(about.get("tasks", ""))
        remedy = next((text for part, text in REMEDIES.items() if part in name), OTHERWISE)
        if why == "silent":
            before = _advised.setdefault(str(run), set())
            if remedy in before or (before and remedy is OTHERWISE):
                return
            before.add(remedy)
            while len(_advised) > REMEMBERED:
                _advised.popitem(last=False)
        about = {"n": "", "job": "", **about, "tasks": name, "remedy": remedy}
        logger.warning("%s", cause % about)
