"""Searches: blocks in which many models are submitted, one task each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, fields
from html import escape
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import dask
from dask.tokenize import TokenizationError
from distributed import Future
from fsspec.registry import known_implementations, registry

from dask_slaq.adapters import end_calls
from dask_slaq.client.callbacks import Callback, Follower, check_callbacks
from dask_slaq.client.changes import steer
from dask_slaq.client.connection import request
from dask_slaq.client.job_block import Job, running_job, seconds_of
from dask_slaq.client.plotting import draw_search
from dask_slaq.client.train_on import check_models, submit_again
from dask_slaq.client.trial import SearchInTask
from dask_slaq.client.trials_table import Best, as_curves, as_frame, as_html, best_row, read_rows
from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.core.job_settings import CHANGEABLE, OF_SEARCH, check_job_settings, given_settings
from dask_slaq.core.search_goals import is_unknown
from dask_slaq.core.settings import check_name, shown
from dask_slaq.core.task_reports import as_metric
from dask_slaq.core.trials import CHANGEABLE as OF_SEARCHES
from dask_slaq.core.trials import SearchSettings, arguments, as_given, as_parameters
from dask_slaq.worker import begin_trial_again, report_trial

if TYPE_CHECKING:
    from distributed import Client

    from dask_slaq.client.submit import TrainingFuture

__all__ = ["Search", "search"]

logger = logging.getLogger(__name__)

#: Seconds for which the end of a block waits for each training to have begun.
LONGEST = 10.0


class Search(Job):
    """Search for a good model among many, used as a ``with`` or ``async with`` block.

    Create it with `search`, which documents the parameters.

    Attributes
    ----------
    name : str
    futures : list of distributed.Future
        Those of the models that were submitted before, if it has found a search that was kept.
    """

    _observes = False
    _entered_with: Client | None = None
    _callbacks: Iterable[Callback] = ()
    _follower: Follower | None = None
    _marks = 0  # number of requests

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        client: Client | None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(name, settings, client, more)
        self._of_search: dict[str, Any] = more["search"]
        self._maximizes = bool(self._of_search["maximize"])
        self._notes: dict[str, str] = {}  # annotations of its tasks
        self._given: dict[Any, dict[str, Any]] = {}  # parameters by key of the task, or job
        self._trainings: dict[str, TrainingFuture] = {}  # models that are jobs, by their names

    def map(
        self, function: Callable[..., Any], *iterables: Iterable[Any], **kwargs: Any
    ) -> list[Future]:
        """Submit one task per model, as ``client.map`` does, and keep the parameters of each.

        These are the arguments in which the calls differ, and not those in `kwargs`.

        Parameters
        ----------
        function : callable
            Trains a model, and calls `report`.
        *iterables
            Arguments of the calls, such as one list of dicts.
        **kwargs
            Other arguments of all calls, and options of ``client.map``.

        Returns
        -------
        list of distributed.Future

        Raises
        ------
        SlaqError
            The call is outside of the block.

        Examples
        --------
        >>> with search("grid", steps=40) as grid_search:  # doctest: +SKIP
        ...     futures = grid_search.map(train, [{"lr": 0.1}, {"lr": 0.01}])
        """
        client = self._client
        if client is None or running_job.get() is not self:
            raise SlaqError(f"map() was called outside of the block of search {self.name!r}")
        calls = list(zip(*iterables, strict=False))
        columns = [list(column) for column in zip(*calls, strict=True)]
        if not calls:
            return []
        try:
            futures: list[Future] = client.map(function, *columns, **kwargs)
        except (TokenizationError, TypeError) as error:  # the latter in older releases of Dask
            if isinstance(error, TypeError) and "Could not serialize" not in str(error):
                raise
            raise SlaqError(
                f"{shown(function)} cannot be sent to workers, as nothing can that closes over a "
                "client or a job: use slaq.report in tasks, and distributed.worker_client() there"
            ) from error
        for future, args in zip(futures, calls, strict=True):
            self._given[future.key] = as_given(arguments(function, args, {}))
        return futures

    def trials(self) -> Any:
        """Return what the trials of the search do, also after its block was left.

        Returns
        -------
        list of dict
            One per model: ``params``, its parameters (the plain arguments of the call, or those of
            Optuna's trial; of a model that has not reported, only what `map` knows), ``loss`` (the
            last one), ``iteration`` (steps),
            ``predicted``, ``low`` and ``high`` (predicted final loss, with its 80 % band; nan
            without a forecast, and once it has ended), ``state`` (``ready``, ``training``,
            ``waiting`` in a report, ``away`` from all workers, ``silent``, ``done``, ``pruned``,
            ``stopped``, ``failed``), ``began`` and ``ended`` (Unix seconds), ``computed`` and
            ``waited`` (seconds), ``worker`` (address), ``error`` (with which it failed), ``key``
            (of its task and result), ``trial`` (its number, where one task trains several models),
            ``curve``, a list of step and loss, of at most 500 points, ``metrics`` (last values of
            other metrics) and ``curves`` (theirs, by name).
            Losses are as they were reported. With an asynchronous client, an awaitable is returned.

        Raises
        ------
        SlaqError
            The block was not entered yet.
        NoPlugin
            The scheduler no longer runs the plugin.
        """
        return self._ask(lambda rows: rows, curves=True)

    def best(self, by: str = "last") -> Any:
        """Return the best model that is done: the one with the lowest last loss, or highest score.

        Parameters
        ----------
        by : {"last", "lowest"}
            Whether the last loss of a model counts, as its result is of then, or its lowest.

        Returns
        -------
        Best
            ``params``, that ``loss`` and ``future``, whose result is what the function returned;
            None if this client has dropped it. With an asynchronous client, an awaitable is
            returned.

        Raises
        ------
        SlaqError
            No model is done that has reported a loss.
        InvalidSetting
            `by` is neither.

        Examples
        --------
        >>> params, loss, future = grid_search.best()  # doctest: +SKIP
        """
        if by not in ("last", "lowest"):
            raise InvalidSetting(f"by must be 'last' or 'lowest', not {shown(by)}")
        return self._ask(lambda rows: self._best(rows, "loss" if by == "last" else by))

    @property
    def best_params(self) -> Any:
        """Parameters of the best model that is done; see `best`."""
        return self._ask(lambda rows: self._best(rows).params)

    def results(self) -> Any:
        """Return the trials as a table, the best loss first.

        Returns
        -------
        pandas.DataFrame
            One row per model: ``loss``, ``state``, ``iteration``, ``params_NAME`` for each
            parameter, ``metrics_NAME`` for each metric, and the rest of `trials`, without the
            curves. With an asynchronous client, an
            awaitable is returned.
        """
        return self._ask(lambda rows: as_frame(rows, self._maximizes))

    def curves(self, metric: str | None = None) -> Any:
        """Return the losses of all trials by step.

        Parameters
        ----------
        metric : str, optional
            Another metric that they have reported, instead of the loss.

        Returns
        -------
        xarray.DataArray
            Of shape (model, step), nan where a model did not report, in the order of `trials`. The
            coordinates ``key``, ``state`` and ``params_NAME`` are per model. With an asynchronous
            client, an awaitable is returned.
        """
        return self._ask(lambda rows: as_curves(rows, metric), curves=True)

    def set(  # type: ignore[override]
        self,
        *,
        prune: Any = None,
        steps: int | None = None,
        max_waiting: int | None = None,
        goal: str | None = None,
        weight: float | None = None,
        min_share: float | None = None,
        max_share: float | None = None,
        latest: float | None = None,
        worth_per_hour: float | None = None,
    ) -> Any:
        """Change settings of the search while it runs. Settings that are None stay as they are.

        Parameters
        ----------
        prune, steps, max_waiting, goal : optional
            As of `search`. They count from the next decision on.
        weight, min_share, max_share, latest, worth_per_hour : optional
            As of `set_job`.

        Raises
        ------
        UnknownJob, NotAllowed, InvalidSetting, NoPlugin
            Nothing was changed.
        """
        names = (*OF_SEARCHES, *(name for name in OF_SEARCH if name in CHANGEABLE))
        given = given_settings(locals(), names)
        return steer(self._client or self._entered_with, self.name, "set", **given)

    def plot(self) -> Any:
        """Return a Matplotlib figure of the losses of all models, and of the parameters."""
        settings = self._of_search
        return self._ask(lambda rows: draw_search(self.name, rows, settings), curves=True)

    def __reduce__(self) -> tuple[type[SearchInTask], tuple[str]]:
        # Tasks may close over it.
        return SearchInTask, (self.name,)

    def __repr__(self) -> str:
        left = "not begun" if self._entered_with is None else "its block was left"
        return f"<Search {self.name!r}: {'its block is open' if self.is_open else left}>"

    def _repr_html_(self) -> str:
        client = self._entered_with
        if client is None or client.asynchronous:
            return escape(repr(self))
        try:
            return str(self._ask(lambda rows: as_html(self.name, rows, self._maximizes)))
        except Exception as error:  # a notebook must show its cell
            return escape(f"{self!r} ({error})")

    def _ask(self, made: Callable[[list[dict[str, Any]]], Any], *, curves: bool = False) -> Any:
        """Return what is made of the trials; an awaitable with an asynchronous client.

        The `curves` of many models take long to be sent.
        """
        if self._entered_with is None:
            raise SlaqError(f"search {self.name!r} has not begun: enter its 'with' block first")

        async def make(client: Client) -> Any:
            return made(await self._trials(client, curves))

        return self._entered_with.sync(make, self._entered_with)

    def train_on(
        self, keys: Any = None, *, best: int | None = None, steps: int, **arguments: Any
    ) -> Any:
        """Submit models that have ended again, from their last state. Call it in the block.

        The function of each is called with the arguments that it had, but `steps`, which it must
        take as a keyword argument, and `resume` returns the last state that was kept. Results that
        it would compute anew are the same.

        Parameters
        ----------
        keys : future or key, or list of these, optional
            The models. Their futures must be held.
        best : int, optional
            As many of the models that are done, those with the best last loss.
        steps : int
            Steps of each model from its beginning. The search takes it for the most of all.
        **arguments
            Other keyword arguments of the function that change.

        Returns
        -------
        list of Future
            One per model, in their order, the best first. With an asynchronous client, an awaitable
            is returned.

        Raises
        ------
        InvalidSetting
            A model is unknown, has not ended, or its function does not take the arguments.
        SlaqError
            The search is over, or runs under plain Dask.
        """
        asked = check_models(keys, best, steps)
        client = self._entered_with
        if client is None or self._plain:
            raise SlaqError(f"search {self.name!r} does not run on a scheduler with SlaqPlugin")

        changes = {"steps": steps, **arguments}
        annotations = {
            "slaq_job": self.name,
            f"slaq_job:{self.name}": True,
            "slaq_search": self._run,
            **self._notes,
        }

        async def ask() -> Any:
            return await request(client, "slaq_train_on", run=self._run, **asked, **self._mark())

        async def ask_and_submit() -> Any:
            return submit_again(client, await ask(), annotations, changes)

        if client.asynchronous:
            return ask_and_submit()
        return submit_again(client, client.sync(ask), annotations, changes)

    def _best(self, rows: list[dict[str, Any]], by: str = "loss") -> Best:
        row = best_row(rows, self._maximizes, by)
        if row is None:
            raise SlaqError(f"no model of search {self.name!r} is done that has reported a loss")
        client, key = self._entered_with, row["key"]
        training = self._trainings.get(key)
        held = client is not None and key in client.futures
        future = training or (Future(key, client=client) if held else None)
        return Best(self._given.get(key) or row["params"], row[by], future)

    def report(
        self,
        loss: float | Mapping[str, float],
        step: int | None = None,
        *,
        state: Any = None,
        fold: Hashable = None,
    ) -> None:
        """Report the loss of the running task's model; see `report`."""
        # Tasks of an in-process cluster may run in the context of the block.
        if not report_trial(loss, step=step, state=state, fold=fold):
            raise SlaqError(
                f"report() was called in the block of search {self.name!r}: call it in the "
                "function that trains a model, in its task"
            )

    def begin_again(self) -> None:
        """Let the next report of the running task's model begin a new curve; see `begin_again`."""
        begin_trial_again()

    def reporter(self) -> NoReturn:
        """Raise SlaqError: the tasks of a search call `report` themselves."""
        raise SlaqError(f"the tasks of search {self.name!r} call dask_slaq.report(loss) themselves")

    def _mark(self) -> dict[str, int]:
        """Mark the stream of the client: what was submitted is known before a request is answered.

        Requests have a connection of their own, and overtake graphs.
        """
        with self._lock:
            self._marks += 1
            marked = self.is_open and self._say("slaq-mark", number=self._marks)
            return {"mark": self._marks} if marked else {}

    async def _trials(self, client: Client, curves: bool) -> list[dict[str, Any]]:
        if self._plain:
            return []
        told = await request(client, "slaq_trials", run=self._run, curves=curves, **self._mark())
        return read_rows(told, self._given)

    def _enter(self, client: Client) -> Search:
        super()._enter(client)
        self._entered_with = client
        self._given.clear()
        self._trainings.clear()
        if dask.config.get("slaq.instrument", True):
            # A grid search whose fits were stopped half-way would return the best of these.
            self._block = self._stack.enter_context(end_calls())
            if self._asked_to_stop:  # already
                self.ask_to_stop()
        found = self._opened.get("keys", ()) if isinstance(self._opened, dict) else ()
        self.futures = [Future(key, client) for key in found]
        if self.futures:
            wanted = [future.key for future in self.futures]
            client._send_to_scheduler(
                {"op": "client-desires-keys", "keys": wanted, "client": client.id}
            )
        if not self._plain:
            self._stack.enter_context(dask.annotate(slaq_search=self._run, **self._notes))
            if self._callbacks:
                self._follower = Follower(
                    client, self.name, self._run, self._callbacks, self._given
                )
        return self

    def _know_model(
        self, future: TrainingFuture, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Know a training that was submitted in the block, and what it is called with."""
        self._trainings[future.job.name] = future
        given = self._given[future.job.name] = as_given(arguments(function, args, kwargs))
        future.job._params = as_parameters(given)

    def __exit__(self, error: object = None, *rest: object) -> None:
        for training in self._trainings.values():  # afterwards they would be jobs of no search
            training._begun.wait(LONGEST)
        super().__exit__(error, *rest)
        if self._follower is not None:
            self._follower.catch_up()

    async def __aexit__(self, error: object = None, *rest: object) -> None:
        await super().__aexit__(error, *rest)
        if self._follower is not None:
            await asyncio.to_thread(self._follower.catch_up)

    async def _close(self, client: Client, outcome: str = "done") -> None:
        if client.status == "running" and not self._plain and not self._over(client):
            if outcome == "failed" and self._of_search["keep"] is not None:
                logger.warning(
                    "search %r goes on for %g s without its block: slaq.stop(%r) ends it, "
                    "slaq.search(%r, reattach=True) finds it again",
                    *(self.name, self._of_search["keep"], self.name, self.name),
                )
            # On the stream of the submitted tasks, after which it must arrive.
            message = {"op": "slaq-leave", "job": self.name, "run": self._run}
            client._send_to_scheduler({**message, "failed": outcome == "failed"})
            # The next block may have the same name, and opens in a request, which could overtake.
            await request(client, "slaq_left", run=self._run)


def search(
    name: str,
    *,
    goal: str = "best",
    steps: int | None = None,
    maximize: bool = False,
    metric: str | None = None,
    prune: bool | str | Mapping[str, float] = False,
    max_waiting: int = 500,
    trial_timeout: str | float | None = None,
    silent: str | float | None = "2min",
    restart_silent: bool = False,
    states: str | None = None,
    keep: str | float | None = None,
    reattach: bool = False,
    callbacks: Callback | Iterable[Callback] | None = None,
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    latest: float | None = None,
    resources: Mapping[str, float] | None = None,
    owner: str | None = None,
    worth_per_hour: float | None = None,
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
        With ``"best"`` threads go to the models with the lowest predicted final loss, so that the
        best ones are ready soon, with ``"all"`` to those whose loss falls fastest, so that all are
        good soon. Packages where the scheduler runs may add goals.
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
    max_waiting : int
        About how many models may have begun and wait: a few per worker may be on their way. Each
        keeps its memory and a thread. A worker above 60 % of its memory limit lets no further ones
        wait.
    trial_timeout : str or float, optional
        Time that a model may compute, as ``"10min"`` or in seconds. The next report after it raises
        `TrialPruned`.
    silent : str or float, optional
        Time without a report after which a model that trains counts as silent, if it is also ten
        times as long as its reports took so far. There is an alert ``"silent"``, `explain` says so,
        and its thread is no longer counted on until it reports. None for never.
    restart_silent : bool
        Whether the worker process of a silent model is restarted by its nanny, if there is another
        worker. What else is there has as long as the silence, at least 10 s, to leave or to end.
    states : str, optional
        Path or URL of a folder for the states of the models, by fsspec. They outlive the cluster: a
        search of this name whose tasks have the same keys goes on from them. The files are removed
        when the search ends with its last task. By default, Dask keeps states in the memory of two
        workers.
    keep : str or float, optional
        Time, as ``"10min"`` or in seconds, for which the search goes on, with its results, after
        its program has ended or an exception has left its block. By default it ends with its
        program, and goes on as plain tasks after an exception.
    reattach : bool
        Whether to take over a search of this name and owner that is kept: its models, and their
        futures in the `futures` of the search. If there is none, a new one begins.
    callbacks : callable or list of callables, optional
        Functions that are called with each event, such as one that writes to a tracker: a dict with
        ``event`` (``begin``, ``report``, ``pruned``, ``moved`` or ``end``), ``job`` (the name of
        the search), ``key``, ``trial``, ``model`` (identifier for the run of a tracker, the same
        also after a retry or `reattach`), ``params``, ``worker``, ``step``, ``loss``, ``metrics``,
        ``time`` (Unix seconds), and at the end ``state`` (``done``, ``pruned``, ``stopped``,
        ``failed``, or ``dropped`` if the model begins again or is followed no more) and ``error``.
        They are called in a thread of this program, one event after the other. What they raise is
        logged once. At the end of the block they have had all events so far.
    weight, min_share, max_share, latest, resources, owner, worth_per_hour, client
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
    if isinstance(trial_timeout, str):
        trial_timeout = seconds_of(trial_timeout, "trial_timeout")
    if isinstance(silent, str):
        silent = seconds_of(silent, "silent")
    if isinstance(keep, str):
        keep = seconds_of(keep, "keep")
    if not isinstance(reattach, bool):
        raise InvalidSetting(f"reattach must be True or False, not {shown(reattach)}")
    _check_folder(states)
    # The name is one part of the path, whatever it is.
    part = quote(name, safe=" ")
    if part.startswith("."):
        part = f"%2E{part[1:]}"
    folder = states = None if states is None else f"{states}/{part}"
    options = given_settings(locals(), [field.name for field in fields(SearchSettings)])
    some = check_callbacks(callbacks)
    if is_unknown(goal):
        from dask_slaq.plug_ins import add_goals

        add_goals()
    if is_unknown(goal):  # the scheduler may know it by its settings
        options["goal"] = "best"
    more: dict[str, Any] = {
        "search": asdict(SearchSettings(**options)) | {"goal": goal},
        **({"reattach": True} if reattach else {}),
        **({"events": True} if some else {}),
    }
    made = Search(name, settings, client, more)
    made._callbacks = some
    if folder is not None:
        made._notes["slaq_states"] = folder
    if (metric := as_metric(metric)) is not None:
        made._notes["slaq_metric"] = metric
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
