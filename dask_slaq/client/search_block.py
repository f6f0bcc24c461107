"""Searches: blocks in which many models are submitted, one task each."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import dask
from dask.tokenize import TokenizationError
from distributed import Future

from dask_slaq.adapters import end_calls
from dask_slaq.client.block import Result, Training, running_job
from dask_slaq.client.changes import steer
from dask_slaq.client.connection import request
from dask_slaq.client.job_block import Job
from dask_slaq.client.training import SearchInTask
from dask_slaq.client.trials_table import (
    Best,
    Trial,
    as_curves,
    as_frame,
    as_html,
    best_row,
    check_models,
    in_short,
    read_rows,
    submit_again,
)
from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.core.settings import shown
from dask_slaq.core.trials import (
    PastModel,
    arguments,
    as_given,
    as_parameters,
    bounded,
    in_order,
)
from dask_slaq.worker import report_trial

if TYPE_CHECKING:
    import pandas
    import xarray
    from distributed import Client

logger = logging.getLogger(__name__)


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
    _marks = 0  # number of requests
    _rows: list[dict[str, Any]] | None = None  # of the last answer, without curves

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
        self._notes: dict[str, Any] = {}  # annotations of its tasks
        self._given: dict[Any, dict[str, Any]] = {}  # parameters by key of the task, or job
        self._trainings: dict[str, Training[Any]] = {}  # models that are jobs, by their names

    def map(
        self, function: Callable[..., Result], *iterables: Iterable[Any], **kwargs: Any
    ) -> list[Future[Result]]:
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
        if not calls:
            return []
        given = [as_given(arguments(function, args, {})) for args in calls]
        order = self._order(given)
        columns = [[calls[i][at] for i in order] for at in range(len(calls[0]))]
        if isinstance(keys := kwargs.get("key"), list) and len(keys) == len(calls):
            kwargs["key"] = [keys[i] for i in order]
        try:
            submitted = client.map(function, *columns, **kwargs)
        except (TokenizationError, TypeError) as error:  # the latter in older releases of Dask
            if isinstance(error, TypeError) and "Could not serialize" not in str(error):
                raise
            raise SlaqError(
                f"{shown(function)} cannot be sent to workers, as nothing can that closes over a "
                "client or a job: use slaq.report in tasks, and distributed.worker_client() there"
            ) from error
        at = dict(zip(order, submitted, strict=True))
        futures = [at[i] for i in range(len(calls))]
        self._given.update({f.key: params for f, params in zip(futures, given, strict=True)})
        return futures

    def _order(self, given: list[dict[str, Any]]) -> Sequence[int]:
        """Return the order of submission: first what ended best in past searches of this kind."""
        if not (past := self._opened.get("past")):
            return range(len(given))
        params = [bounded(as_parameters(one)) for one in given]
        return in_order([PastModel(*model) for model in past], params)

    def trials(self) -> list[Trial]:
        """Return what the trials of the search do, also after its block was left.

        Returns
        -------
        list of Trial
            One dict per model, whose keys `Trial` describes. With an asynchronous client, an
            awaitable is returned.

        Raises
        ------
        SlaqError
            The block was not entered yet.
        NoPlugin
            The scheduler no longer runs the plugin.

        Examples
        --------
        >>> [trial["error"] for trial in grid_search.trials()]  # doctest: +SKIP
        """
        return self._ask(lambda rows: rows, curves=True)  # type: ignore[arg-type,return-value]

    def best(self, by: str = "last") -> Best:
        """Return the best model that is done: the one with the lowest last loss, or highest score.

        Parameters
        ----------
        by : {"last", "lowest"}
            Whether the last loss of a model counts, as its result is of then, or its lowest.

        Returns
        -------
        Best
            ``params``, that ``loss`` and ``future``, whose result is what the function returned.
            With an asynchronous client, an awaitable is returned.

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
    def best_params(self) -> dict[str, Any]:
        """Parameters of the best model that is done; see `best`."""
        return self._ask(lambda rows: self._best(rows).params)

    def results(self) -> pandas.DataFrame:
        """Return the trials as a table, the best loss first.

        Returns
        -------
        pandas.DataFrame
            One row per model: ``loss``, ``state``, ``iteration``, ``params_NAME`` for each
            parameter, ``metrics_NAME`` for each metric, and the rest of `trials`, without the
            curves. With an asynchronous client, an awaitable is returned.

        Examples
        --------
        >>> grid_search.results().head()  # doctest: +SKIP
        """
        return self._ask(lambda rows: as_frame(rows, self._maximizes))

    def curves(self, metric: str | None = None) -> xarray.DataArray:
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

        Examples
        --------
        >>> grid_search.curves().plot(hue="model")  # doctest: +SKIP
        """
        return self._ask(lambda rows: as_curves(rows, metric), curves=True)

    def set(  # type: ignore[override]
        self,
        *,
        prune: bool | str | Mapping[str, float] | None = None,
        steps: int | None = None,
        max_waiting: int | None = None,
        goal: str | None = None,
        **settings: float,
    ) -> None:
        """Change settings of the search while it runs. Settings that are None stay as they are.

        Parameters
        ----------
        prune, steps, max_waiting, goal : optional
            As of `search`. They count from the next decision on.
        **settings : float, optional
            ``weight``, ``min_share``, ``max_share``, ``max_slowdown`` and ``value_per_hour``, as of
            `change`.

        Raises
        ------
        UnknownJob, NotAllowed, InvalidSetting, NoPlugin
            Nothing was changed.

        Examples
        --------
        >>> grid_search.set(prune=True, max_waiting=10)  # doctest: +SKIP
        """
        given = {"prune": prune, "steps": steps, "max_waiting": max_waiting, "goal": goal}
        client = self._client or self._entered_with
        return steer(client, self.name, "set", **given, **settings)

    def __reduce__(self) -> tuple[type[SearchInTask], tuple[str]]:
        # Tasks may close over it.
        return SearchInTask, (self.name,)

    def __repr__(self) -> str:
        rows, doing = self._look(), "open" if self.is_open else "left, no model is known"
        if self._entered_with is None:
            doing = "not begun"
        elif self._plain:
            doing = "under plain Dask"
        elif rows is not None:
            doing = in_short(rows, self._maximizes)
        elif self._entered_with.asynchronous and not self.is_open:
            doing = "left, 'await search.trials()' tells more"
        return f"<Search {self.name!r}: {doing}>"

    def _repr_html_(self) -> str:
        rows = self._look()
        return escape(repr(self)) if rows is None else as_html(self.name, rows, self._maximizes)

    def _look(self) -> list[dict[str, Any]] | None:
        """Return the rows of now; those of the last answer where none comes while this waits."""
        if self._entered_with is not None and not self._entered_with.asynchronous:
            with contextlib.suppress(Exception):  # what displays a search shows what is known
                self._entered_with.sync(self._trials, self._entered_with, False, callback_timeout=2)
        return self._rows

    def _ask(
        self, made: Callable[[list[dict[str, Any]]], Result], *, curves: bool = False
    ) -> Result:
        """Return what is made of the trials; an awaitable with an asynchronous client.

        The `curves` of many models take long to be sent.
        """
        if self._entered_with is None:
            raise SlaqError(f"search {self.name!r} has not begun: enter its 'with' block first")

        async def make(client: Client) -> Result:
            return made(await self._trials(client, curves))

        return self._entered_with.sync(make, self._entered_with)

    def train_on(
        self, keys: Any = None, *, best: int | None = None, steps: int, **arguments: Any
    ) -> list[Future[Any]]:
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

        Examples
        --------
        >>> futures = grid_search.train_on(best=3, steps=200)  # doctest: +SKIP
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
            return ask_and_submit()  # type: ignore[return-value]
        return submit_again(client, client.sync(ask), annotations, changes)

    def _best(self, rows: list[dict[str, Any]], by: str = "loss") -> Best:
        row = best_row(rows, self._maximizes, by)
        if row is None:
            raise SlaqError(
                f"no model of search {self.name!r} is done yet with a loss (models that another "
                "search has trained are rows there: pure=False trains them again)"
            )
        client, key = self._entered_with, row["key"]
        held = client is not None and key in client.futures
        future: Training[Any] | Future[Any] | None = self._trainings.get(key)
        future = future or (Future(key, client=client) if held else None)
        return Best(self._given.get(key) or row["params"], row[by], future)

    def report(
        self,
        loss: float | Mapping[str, float],
        step: int | None = None,
        *,
        state: Any = None,
    ) -> None:
        """Report the loss of the running task's model; see `report`."""
        # Tasks of an in-process cluster may run in the context of the block.
        if not report_trial(loss, step=step, state=state):
            raise SlaqError(
                f"report() was called in the block of search {self.name!r}: call it in the "
                "function that trains a model, in its task"
            )

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
        rows = await request(client, "slaq_trials", run=self._run, curves=curves, **self._mark())
        found = read_rows(rows, self._given)
        self._rows = [row | {"curve": [], "curves": {}} for row in found] or self._rows
        return found

    def _enter(self, client: Client) -> Search:
        super()._enter(client)
        self._entered_with = client
        self._given.clear()
        self._trainings.clear()
        self._rows = None
        if dask.config.get("slaq.instrument", True):
            # A grid search whose fits were stopped half-way would return the best of these.
            self._end_fits(end_calls())
        self.futures: list[Future[Any]] = [
            Future(key, client) for key in self._opened.get("keys", ())
        ]
        if self.futures:
            wanted = [future.key for future in self.futures]
            client._send_to_scheduler(
                {"op": "client-desires-keys", "keys": wanted, "client": client.id}
            )
        if not self._plain:
            self._stack.enter_context(dask.annotate(slaq_search=self._run, **self._notes))
        return self

    def _know_model(
        self, future: Training[Any], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Know a training that was submitted in the block, and what it is called with."""
        self._trainings[future.job.name] = future
        given = self._given[future.job.name] = as_given(arguments(function, args, kwargs))
        future.job._params = as_parameters(given)

    def __exit__(self, error: object = None, *rest: object) -> None:
        for training in self._trainings.values():  # afterwards they would be jobs of no search
            training._begun.wait(10)
        super().__exit__(error, *rest)

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
            if not self._asynchronous:
                await self._trials(client, False)  # is shown when the cluster has gone
