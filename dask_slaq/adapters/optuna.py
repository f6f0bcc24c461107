"""Optuna pruner that makes ``should_prune`` report the trial's latest value to its search.

`Pruner` is created on first access, because its base class is Optuna's. It is pickled by name, so
a study that uses it can be sent to workers.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from dask_slaq import worker
from dask_slaq.core.errors import StopTraining, TrialPruned

__all__ = ["Pruner"]  # noqa: F822  (created by `__getattr__`)


def __getattr__(name: str) -> Any:
    if name == "Pruner":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _made() -> type:
    try:
        from optuna.pruners import BasePruner
        from optuna.study import StudyDirection
    except ImportError as error:
        raise ImportError("optuna is not installed: pip install dask-slaq[optuna]") from error

    class Pruner(BasePruner):  # type: ignore[misc]
        """Optuna pruner that lets a trial wait in ``should_prune`` while others gain more.

        In a task of a search (`search`), ``trial.report(value, step)`` and then
        ``trial.should_prune()`` report the value; they make Optuna's trial a trial of the search.
        The study's direction tells what is better: leave the search's `maximize` at False. By
        itself it prunes nothing, except what a search with ``prune=True`` prunes or after the
        search was stopped. Elsewhere it does nothing.

        Parameters
        ----------
        wrapped : optuna.pruners.BasePruner, optional
            Pruner to ask after the wait. Most of Optuna's fetch all trials for each question.

        Examples
        --------
        >>> study = optuna.create_study(  # doctest: +SKIP
        ...     storage=DaskStorage(), pruner=slaq.optuna.Pruner()
        ... )
        >>> with slaq.search("study"):  # doctest: +SKIP
        ...     runs = [client.submit(study.optimize, objective, n_trials=1, pure=False)
        ...             for _ in range(40)]
        """

        def __init__(self, wrapped: BasePruner | None = None) -> None:
            self._wrapped = wrapped
            self._reported: tuple[int, int] | None = None

        def prune(self, study: Any, trial: Any) -> bool:
            """Report the latest value of a trial, wait, and return whether the trial ends."""
            step = trial.last_step
            if step is not None and (trial.number, step) != self._reported:
                self._reported = trial.number, step
                value = trial.intermediate_values[step]
                maximizes = study.direction == StudyDirection.MAXIMIZE
                try:
                    worker.report_trial(-value if maximizes else value, trial=trial.number)
                except TrialPruned:
                    return True
                except StopTraining:
                    with contextlib.suppress(RuntimeError):  # a trial of the user's own asking
                        study.stop()
                    return True
            return self._wrapped is not None and self._wrapped.prune(study, trial)

    Pruner.__module__, Pruner.__qualname__ = __name__, "Pruner"
    return Pruner
