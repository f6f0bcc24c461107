"""The calls that create jobs and searches, with all their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from distributed import Client
from distributed.protocol import pickle
from fsspec.registry import known_implementations, registry

from dask_slaq.client.job_block import Job
from dask_slaq.client.queries import seconds_of
from dask_slaq.client.search_block import Search
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.reports import as_metric
from dask_slaq.core.jobs.settings import OF_SEARCH, check_job_settings, given_settings
from dask_slaq.core.search_settings import is_unknown
from dask_slaq.core.settings import check_name, shown
from dask_slaq.core.trials import SearchSettings
from dask_slaq.worker import CARRIES, as_carried

#: What times are like, for who gives another one.
TIMES = "'10min' or a number of seconds"


def job(
    name: str,
    *,
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    max_slowdown: float | None = None,
    resources: Mapping[str, float] | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    gang: bool = False,
    target_kind: str = "loss",
    by: str | float | None = None,
    stop: bool = False,
    kind: str | Mapping[str, Any] | None = None,
    owner: str | None = None,
    value_per_hour: float | None = None,
    metric: str | None = None,
    client: Client | None = None,
) -> Job:
    """Create a job: a block of code whose Dask tasks and losses belong to one training run.

    Parameters
    ----------
    name : str
        Name of the job, unique among the jobs running on the scheduler.
    weight : float
        Relative importance, > 0.
    min_share, max_share : float, optional
        Least threads of the job, and most while other jobs want them.
    max_slowdown : float, optional
        Factor of its fair time, at least 1, at which the job ends at the latest; inf for no
        promise. Defaults to the ``slaq.max-slowdown`` setting of the scheduler.
    resources : Mapping of str to float, optional
        Worker resources that each task of the job needs, such as ``{"GPU": 1}``.
    target : float, optional
        Loss to reach, up to which policies count the work left.
    max_iter : int, optional
        Maximum number of iterations. Detected for a job with a single fit of a supported library.
    gang : bool
        Whether tasks that are ready together must start together.
    target_kind : {"loss", "reduction"}
        Whether `target` is a loss, or a part of the predicted loss reduction, in (0, 1).
    by : str or float, optional
        Time in which the target should be reached, such as ``"10min"`` or in seconds; see `alerts`.
    stop : bool
        Whether it stops at its target. Otherwise it goes on with `min_share` and what others leave.
    kind : str or mapping, optional
        Jobs of one kind have loss curves of like shape, so past ones tell how this one will go:
        a name such as ``"resnet"``, or a mapping with the name and numbers >= 0 that shape the
        curve, such as ``{"name": "resnet", "lr": 0.01, "rows": 1e6}``. Supported libraries state
        it automatically. Defaults to the job's name without its numbers.
    owner : str, optional
        Who the job belongs to. Defaults to that of the block around it, to the ``slaq.owner``
        setting, or else to ``user@host``.
    value_per_hour : float, optional
        What it is worth that the job ends an hour sooner, in the unit of the price in the setting
        ``slaq.scaling``. By default what the cluster of late has cost per hour of a job.
    metric : str, optional
        Name of the metric that is the loss, where mappings are reported.
    client : distributed.Client, optional
        Client of the job. Defaults to the current client.

    Returns
    -------
    Job
        A context manager. Entering it raises `DuplicateJob` if the name is taken. If the scheduler
        does not run the plugin, the job runs under plain Dask with one warning per client; with
        ``slaq.require-plugin``, `NoPlugin` is raised.

    Raises
    ------
    InvalidSetting
        The name or a setting is invalid.

    Examples
    --------
    >>> with job("logreg-C0.1"):  # doctest: +SKIP
    ...     LogisticRegression(solver="gradient_descent").fit(X, y)
    """
    check_name(name)
    by = seconds_of(by, "by", TIMES)
    settings = check_job_settings(given_settings(locals()))
    return Job(name, settings, client, metric=as_metric(metric) or "")


def search(
    name: str,
    *,
    goal: str = "best",
    steps: int | None = None,
    maximize: bool = False,
    metric: str | None = None,
    prune: bool | str | Mapping[str, float] = False,
    group: str | Callable[[Mapping[str, Any]], Any] | None = None,
    max_waiting: int = 500,
    trial_timeout: str | float | None = None,
    silent: str | float | None = "2min",
    states: str | None = None,
    keep: str | float | None = None,
    reattach: bool = False,
    carries: Iterable[Any] = (),
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    max_slowdown: float | None = None,
    resources: Mapping[str, float] | None = None,
    owner: str | None = None,
    value_per_hour: float | None = None,
    client: Client | None = None,
) -> Search:
    """Create a search: a block in which many models are submitted, one task each.

    The tasks that call `report` are its trials. In a report, a model may wait while its thread goes
    to another that gains more; no result changes. Leaving the block does not end the search: it
    ends with its last task. If an exception leaves the block, what waits goes on at once.

    Parameters
    ----------
    name : str
        Name of the search, unique among the jobs running on the scheduler.
    goal : str
        With ``"best"`` threads go to the models with the lowest predicted final loss, with
        ``"all"`` to those whose loss falls fastest. Packages on the scheduler may add goals.
    steps : int, optional
        Maximum number of steps of a model, which are its reports unless these name their steps.
        Forecasts are better with it.
    maximize : bool
        Whether models report scores, which are higher for better models.
    metric : str, optional
        Name of the metric that is the loss, where models report mappings. By default it is the
        first one of a model's first report.
    prune : bool, "bold" or dict
        Whether the report of a model without hope raises `TrialPruned`: after an eighth of `steps`
        (at least five reports), if three models are ready that end better than it can. ``"bold"``
        does not ask for the noise of losses. A dict has other numbers: ``{"patience": 10, "slack":
        0.1, "noise": 4}`` spares those with fewer reports, those that end worse by a tenth of the
        distance from their own first loss, and those that have not changed by four standard
        deviations of their losses.
    group : str or callable, optional
        Parameter, such as a fold or a data set, or function of the parameters (run on workers): for
        `prune`, models are compared within their group only, and those whose other parameters are
        equal are pruned in all groups or in none. scikit-learn's folds are grouped without it.
    max_waiting : int
        About how many models may have begun and wait. Each keeps its memory and a thread. A worker
        above 60 % of its memory limit lets no further ones wait.
    trial_timeout : str or float, optional
        Time that a model may compute, as ``"10min"`` or in seconds. The next report after it raises
        `TrialPruned`.
    silent : str or float, optional
        Time without a report after which a model that trains has stalled, if it is also ten
        times as long as its reports took so far: there is an alert. None for never.
    states : str, optional
        Path or URL (of fsspec) of a folder for the states of the models, from which a search of
        this name whose tasks have the same keys goes on, on another cluster, too. The files go when
        the search ends with its last task. By default states are in memory, on two workers.
    keep : str or float, optional
        Time, as ``"10min"`` or in seconds, for which the search goes on after its program has ended
        or an exception has left its block. By default it ends with its program, and goes on as
        plain tasks after an exception.
    reattach : bool
        Whether to take over a search of this name and owner that is kept, with its `futures`. If
        there is none, a new one begins.
    carries : list of str or tuple
        What belongs to the process besides random generators, printing, the working folder and the
        environment, and a model takes along while it waits, on workers of one thread: the path of
        a module's attribute, such as ``"tracker.run"``, or a name, a function that returns it, and
        one that sets what that returned.
    weight, min_share, max_share, max_slowdown, resources, owner, value_per_hour, client
        As of `job`; the resources are what each task needs.

    Returns
    -------
    Search
        A context manager. Entering it raises `DuplicateJob` if the name is taken. If the scheduler
        does not run the plugin, the tasks run under plain Dask with one warning per client.

    Raises
    ------
    InvalidSetting

    Examples
    --------
    >>> with search("grid", steps=40) as grid_search:  # doctest: +SKIP
    ...     futures = grid_search.map(train, grid)
    >>> grid_search.best_params  # doctest: +SKIP
    """
    check_name(name)
    settings = check_job_settings(given_settings(locals(), OF_SEARCH))
    trial_timeout, silent, keep = (
        seconds_of(time, what, TIMES) if isinstance(time, str) else time
        for what, time in (("trial_timeout", trial_timeout), ("silent", silent), ("keep", keep))
    )
    if not isinstance(reattach, bool):
        raise InvalidSetting(f"reattach must be True or False, not {shown(reattach)}")
    _check_folder(states)
    # The name is one part of the path, whatever it is.
    part = quote(name, safe=" ")
    if part.startswith("."):
        part = f"%2E{part[1:]}"
    folder = states = None if states is None else f"{states}/{part}"
    by = pickle.dumps(group) if callable(group) else group
    group = None if callable(group) else group
    options = given_settings(locals(), [field.name for field in fields(SearchSettings)])
    if is_unknown(goal):
        from dask_slaq.plug_ins import add_goals

        add_goals()
    if is_unknown(goal):  # the scheduler may know it by its settings
        options["goal"] = "best"
    more: dict[str, Any] = {
        "search": asdict(SearchSettings(**options)) | {"goal": goal},
        **({"reattach": True} if reattach else {}),
    }
    made = Search(name, settings, client, more)
    if folder is not None:
        made._notes["slaq_states"] = folder
    if (metric := as_metric(metric)) is not None:
        made._notes["slaq_metric"] = metric
    if isinstance(carries, str) or not (carries is None or isinstance(carries, Iterable)):
        raise InvalidSetting(f"carries must be a list of what models carry, not {shown(carries)}")
    if carries := list(carries or ()):
        for part in carries:
            as_carried(part)
        made._notes[CARRIES] = pickle.dumps(carries)
    if by is not None:
        made._notes["slaq_group"] = by
    return made


def _check_folder(states: object) -> None:
    """Raise `InvalidSetting` unless states can be kept in a folder of this kind.

    Workers find out only when they keep the first one: each model would begin anew whenever it is
    lost, with a traceback in their logs.
    """
    if states is None:
        return
    if not isinstance(states, str | PurePath) or not str(states):
        raise InvalidSetting(f"states must be a path, a URL, or None, not {shown(states)}")
    protocol, found, _ = str(states).partition("://")
    known = {*known_implementations, *registry}
    if found and protocol.rpartition("::")[2] not in known:
        raise InvalidSetting(
            f"states must be a path or a URL that fsspec knows, not {shown(str(states))}"
        )
