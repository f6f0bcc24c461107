"""Optuna pruner that makes ``should_prune`` report the trial's latest value to its search."""

from __future__ import annotations

import contextlib
from typing import Any

from distributed import Reschedule

from dask_slaq import worker
from dask_slaq.adapters.observing import warn_of
from dask_slaq.adapters.optional import made_on_access, optional
from dask_slaq.core.errors import StopTraining, TrialPruned


def _made() -> type:
    optuna = optional("optuna", "optuna")

    class Pruner(optuna.pruners.BasePruner):  # type: ignore[misc,name-defined]
        """Optuna pruner that lets a trial wait in ``should_prune`` while others gain more.

        In a task of a search (`search`), ``trial.report(value, step)`` and then
        ``trial.should_prune()`` report the value; they make Optuna's trial a trial of the search.
        The study's direction tells what is better: leave the search's `maximize` at False. By
        itself it prunes nothing, except what a search with ``prune=True`` prunes or after the
        search was stopped. Elsewhere it does nothing.

        `wrapped` is a pruner to ask after the wait. Most of Optuna's fetch all trials for each
        question.

        Examples
        --------
        >>> study = optuna.create_study(  # doctest: +SKIP
        ...     storage=DaskStorage(), pruner=slaq.optuna.Pruner()
        ... )
        >>> with slaq.search("study"):  # doctest: +SKIP
        ...     runs = [client.submit(study.optimize, objective, n_trials=1, pure=False)
        ...             for _ in range(40)]
        """

        def __init__(self, wrapped: Any = None) -> None:
            self._wrapped = wrapped
            self._reported: tuple[int, int] | None = None

        def prune(self, study: Any, trial: Any) -> bool:
            """Report the latest value of a trial, wait, and return whether the trial ends."""
            step = trial.last_step
            if step is not None and (trial.number, step) != self._reported:
                self._reported = trial.number, step
                value = trial.intermediate_values[step]
                maximizes = study.direction == optuna.study.StudyDirection.MAXIMIZE
                try:
                    loss = -value if maximizes else value
                    worker.report_trial(
                        loss, step=step, trial=trial.number, params=lambda: trial.params
                    )
                except TrialPruned:
                    return True
                except StopTraining:
                    with contextlib.suppress(RuntimeError):  # a trial of the user's own asking
                        study.stop()
                    return True
                except Reschedule:
                    raise
                except Exception as error:  # such as a step below 0
                    warn_of(error, "a value was not reported")
            return self._wrapped is not None and self._wrapped.prune(study, trial)

    return Pruner


__getattr__ = made_on_access(__name__, Pruner=_made)
