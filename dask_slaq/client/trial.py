"""Decorator of functions that train a model: one that is given up returns what it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, ParamSpec, TypeVar

from dask_slaq.client.job_block import begin_again, report
from dask_slaq.core.errors import StopTraining, TrialPruned

__all__ = ["Pruned", "trial"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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
    """

    loss: float
    step: int
    why: str = "pruned"


@dataclass(frozen=True)
class SearchInTask:
    """Search as a task has it that closes over it: it has what models call."""

    name: str
    report = staticmethod(report)
    begin_again = staticmethod(begin_again)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"in a task a search only has report and begin_again, not {name!r}")


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
        Takes the same arguments.

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
