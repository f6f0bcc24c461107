"""Reports of boosting rounds: what the callbacks of xgboost, LightGBM and CatBoost share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from dask_slaq.adapters.observing import begin_trial, publish, value_of, warn_of, warn_once

#: Latest value and whether higher is better, by metric, by evaluation set.
Scores = dict[str, dict[str, tuple[float, bool]]]

_here = threading.local()  # has the last trial that began in this thread


def first_loss(scores: Iterable[tuple[float, bool]], best: float = 0.0) -> float | None:
    """Return the first value where lower is better, else `best` minus the first; None of none."""
    scores = list(scores)
    for value, higher in scores:
        if not higher:
            return float(value)
    return best - float(scores[0][0]) if scores else None


class RoundReport:
    """Callback that reports a metric of an evaluation set after each round.

    The reports go to the job that is open where the model is trained, or to the search of the
    task that trains it. *n* rounds give *n* reports. A model that is trained from the start is a
    trial of its own, also where one task trains several.

    Parameters
    ----------
    metric : str, optional
        Name of the metric. By default the first where lower is better, or else the first.
    data : str, optional
        Name of the evaluation set. By default the last one.
    maximize : bool, optional
        Whether higher is better; minus the metric is reported then. By default what the library
        knows of the metric.
    """

    library = ""

    def __init__(
        self, metric: str | None = None, data: str | None = None, maximize: bool | None = None
    ) -> None:
        self.metric = metric
        self.data = data
        self.maximize = maximize
        self._trial: Hashable = None
        self._training: Any = None  # whose states are kept

    def begin(self, *, keeps: bool = False) -> Any:
        """Begin a trial: a model is trained from the start, or goes on if it `keeps` states.

        Returns the state from which it goes on; None from the start.
        """
        self._trial, self._training, kept = begin_trial(self.library, keeps=keeps)
        _here.trial = self._trial
        return kept

    def report(
        self,
        scores: Scores | Callable[[], Scores],
        step: int | None = None,
        make_state: Callable[[], Any] | None = None,
    ) -> bool:
        """Report the loss of a round.

        Parameters
        ----------
        scores : Scores, or callable
            What the library evaluated in this round, or what returns that. Of a tuple, such as a
            mean with its deviation, the first value counts. What is no number is not reported,
            with one warning: a report never fails a training.
        step : int, optional
            Number of the round, from 1; by default the next one.
        make_state : callable, optional
            Returns the state from which the training can go on after this round.

        Returns
        -------
        bool
            False if the training was stopped or pruned.
        """
        try:
            loss = self._choose(scores() if callable(scores) else scores)
        except Exception as error:  # whatever the library has logged
            warn_of(error, f"a round of {self.library} was not reported")
            return True
        # A fit that continues a model goes on with the last trial that began in this thread.
        trial = self._trial or getattr(_here, "trial", None)
        state = None
        if self._training is not None and make_state is not None:
            state = self._training.keeping(make_state)
        return loss is None or publish(loss, trial=trial, step=step, state=state)

    def _choose(self, scores: Scores) -> float | None:
        data = self.data if self.data is not None else next(reversed(scores), None)
        known = scores.get(data, {}) if data is not None else {}
        metric = self.metric
        if metric is None:
            lower = (name for name, (_, higher) in known.items() if not higher)
            metric = next(lower, next(iter(known), None))
        if metric is None or metric not in known:
            self._warn(scores)
            return None
        value, higher = known[metric]
        if self.maximize is not None:
            higher = self.maximize
        return -value_of(value) if higher else value_of(value)

    def _warn(self, scores: Scores) -> None:
        wanted = f"metric {self.metric!r}" if self.metric else "metric"
        where = f" of {self.data!r}" if self.data else ""
        names = [f"{name} of {data}" for data, known in scores.items() for name in known]
        there = ", ".join(names) or "nothing: pass it an evaluation set"
        warn_once(
            f"{self.library} {self.metric} {self.data}",
            f"there is no {wanted}{where} to report; {self.library} evaluates {there}",
        )
