"""What functions that train a model call, and a decorator of these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec

from dask_slaq.client.block import Result, running_job
from dask_slaq.core.errors import StopTraining, TrialPruned, UnknownJob
from dask_slaq.worker import report_trial

Arguments = ParamSpec("Arguments")


def report(
    loss: float | Mapping[str, float],
    step: int | None = None,
    *,
    state: Any = None,
) -> None:
    """Report the loss of an iteration: of the current job, or of the model of this task.

    In a job block it returns at once; see `Job.report`. In a task of a `search` it may wait while
    other models gain more. In another task it returns at once, with one warning.

    Parameters
    ----------
    loss : float or Mapping of str to float
        Lower is better, unless the search maximizes. One that is nan or infinite is dropped with
        one warning, and its iteration counts. Of several metrics, such as ``{"loss": 0.3, "auc":
        0.9}``, the loss is the ``metric`` of the block, or else the first one of the first report.
        One without it is dropped, with one warning. A search keeps up to eight others; see
        `Search.trials`.
    step : int, optional
        Number of the iteration, from 0 or 1, such as the epoch, if not every one is reported. By
        default the next one. The first one once more, after others, begins a new curve: what was
        reported before no longer counts.
    state : object or callable, optional
        What the function needs to go on after this report, or a callable that returns it, called
        only when it is kept. With it, a model of a search may leave its worker in the report. Its
        task then begins again, here or elsewhere, where `resume` returns the state.

    Raises
    ------
    NonFiniteLoss, InvalidSetting
        The loss is not a number, or the step not a whole one.
    UnknownJob
        Called neither in a job block nor in a task, or in a thread started there: use `Job.report`.
    StopTraining
        The job or search was stopped; `TrialPruned` if the search gave this model up.

    Examples
    --------
    >>> def train(params):
    ...     for epoch in range(40):
    ...         report(train_one_epoch(params))
    >>> with search("grid", steps=40) as grid_search:  # doctest: +SKIP
    ...     futures = grid_search.map(train, grid)
    """
    current = running_job.get()
    if current is not None:
        current.report(loss, step, state=state)
    elif not report_trial(loss, step=step, state=state):
        raise UnknownJob(
            "report() was called outside a job: call it in a 'with dask_slaq.job(name)' block or "
            "in a task of a 'with dask_slaq.search(name)' block, or use job.report"
        )


@dataclass(frozen=True)
class Pruned:
    """Result of a model that its search gave up, or that was stopped; see `trial`.

    Attributes
    ----------
    loss : float
        Last loss, as it was reported.
    step : int
        Step of this loss, from 1.
    why : str
        ``"pruned"`` or ``"stopped"``.

    Examples
    --------
    >>> results = [0.2, Pruned(loss=0.9, step=5)]
    >>> [result for result in results if not isinstance(result, Pruned)]
    [0.2]
    """

    loss: float
    step: int
    why: str = "pruned"


@dataclass(frozen=True)
class SearchInTask:
    """Search as a task has it that closes over it: it has what models call."""

    name: str
    report = staticmethod(report)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"in a task a search only has report, not {name!r}")


def trial(function: Callable[Arguments, Result]) -> Callable[Arguments, Result | Pruned]:
    """Return a function whose tasks end with `Pruned` as their result if their search ends them.

    Without it, the `TrialPruned` of a `report` fails the task, and ``client.gather`` raises it.
    What the function itself catches and returns stays its result.

    Parameters
    ----------
    function : callable
        Trains a model, and calls `report`.

    Returns
    -------
    callable

    Examples
    --------
    >>> @trial
    ... def train(params):
    ...     for epoch in range(40):
    ...         report(train_one_epoch(params))
    """

    @functools.wraps(function)
    def train(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | Pruned:
        try:
            return function(*args, **kwargs)
        except StopTraining as stop:
            why = "pruned" if isinstance(stop, TrialPruned) else "stopped"
            return Pruned(stop.loss, stop.step, why)

    return train
