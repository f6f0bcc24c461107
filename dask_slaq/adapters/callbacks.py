"""Callbacks that report a training: what those of all libraries share, of rounds, and of logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from dask_slaq.adapters.observing import begin_trial, publish, value_of, warn_of, warn_once

#: Latest value and whether higher is better, by metric, by evaluation set.
Scores = dict[str, dict[str, tuple[float, bool]]]

_here = threading.local()  # has the last trial that began in this thread


class TrainingReport:
    """Callback of a `library` that reports the losses of a training, and never fails it."""

    library = ""
    _trial: Hashable = None
    _training: Any = None  # whose states are kept

    def begin(self, *, keeps: bool = False) -> Any:
        """Begin a trial: a model is trained from the start, or goes on if it `keeps` states.

        Returns the state from which it goes on; None from the start.
        """
        self._trial, self._training, kept = begin_trial(self.library, keeps=keeps)
        return kept

    def send(
        self,
        read: Callable[[], Any],
        step: int | None = None,
        make_state: Callable[[], Any] | None = None,
    ) -> bool:
        """Report the loss that `read` returns, unless that is None; of a tuple the first value.

        The `step` is counted from 1; by default it is the next one. With what `make_state` returns
        the training can go on. Returns False if the training was stopped or pruned.
        """
        try:
            if (loss := read()) is None:
                return True
            loss = value_of(loss)
        except Exception as error:  # whatever the library has logged
            warn_of(error, f"a loss of {self.library} was not reported")
            return True
        state = None
        if self._training is not None and make_state is not None:
            state = self._training.keeping(make_state)
        return publish(loss, trial=self._trial, step=step, state=state)

    def warn_of_lack(self, wanted: str, there: Iterable[object], nothing: str = "nothing") -> None:
        """Warn once that there is not what was `wanted` to report, and what there is."""
        names = ", ".join(map(str, there)) or nothing
        warn_once(
            f"{self.library} {wanted}",
            f"{self.library} logs no {wanted} to report; it logs {names}",
        )


class LogReport(TrainingReport):
    """Callback that reports one of the metrics that a library logs, always the same one.

    The reports go to the job that is open where the model is trained, or else to the search of the
    task that trains it; elsewhere nothing happens. A training that begins anew is a trial of its
    own. What is no number is not reported, with one warning: a report never fails a training.

    Parameters
    ----------
    monitor : str, optional
        Name of the metric. By default the loss on validation data, or without these the training
        loss.
    maximize : bool
        Whether higher is better; minus the metric is reported then.
    """

    def __init__(self, monitor: str | None = None, maximize: bool = False) -> None:
        super().__init__()
        self.monitor, self.maximize = monitor, maximize
        self._metric = monitor  # of this training

    def begin_training(self, *, goes_on: bool) -> None:
        """Begin a training: another trial, unless it goes on."""
        if not goes_on or self._trial is None:
            self.begin()
            self._metric = self.monitor

    def report(self, logs: Mapping[str, Any], step: int | None = None) -> bool:
        """Report the metric, of a `step`, if it is logged; False if the training should end."""

        def read() -> float | None:
            if self._metric is None or self._metric not in logs:
                self.warn_of_lack(repr(self._metric), logs)
                return None
            value = value_of(logs[self._metric])
            return -value if self.maximize else value

        return self.send(read, step)


def first_loss(scores: Iterable[tuple[float, bool]], best: float = 0.0) -> float | None:
    """Return the first value where lower is better, else `best` minus the first; None of none."""
    scores = list(scores)
    for value, higher in scores:
        if not higher:
            return float(value)
    return best - float(scores[0][0]) if scores else None


def latest(log: Mapping[str, Mapping[str, Any]], higher_is_better: Callable[[str], bool]) -> Scores:
    """Return the scores of the last round in a log of lists by evaluation set and metric."""
    return {
        data: {name: (values[name][-1], higher_is_better(name)) for name in values}
        for data, values in log.items()
    }


class RoundReport(TrainingReport):
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

    def __init__(
        self, metric: str | None = None, data: str | None = None, maximize: bool | None = None
    ) -> None:
        self.metric, self.data, self.maximize = metric, data, maximize

    def begin(self, *, keeps: bool = False) -> Any:
        """Begin a trial; see `TrainingReport.begin`."""
        kept = super().begin(keeps=keeps)
        _here.trial = self._trial
        return kept

    def report(
        self,
        scores: Callable[[], Scores],
        step: int | None = None,
        make_state: Callable[[], Any] | None = None,
    ) -> bool:
        """Report the loss of a round.

        Parameters
        ----------
        scores : callable
            Returns what the library evaluated in this round. Of a tuple, such as a mean with its
            deviation, the first value counts.
        step : int, optional
            Number of the round, from 1; by default the next one.
        make_state : callable, optional
            Returns the state from which the training can go on after this round.

        Returns
        -------
        bool
            False if the training was stopped or pruned.
        """
        # A fit that continues a model goes on with the last trial that began in this thread.
        self._trial = self._trial or getattr(_here, "trial", None)
        return self.send(lambda: self._choose(scores()), step, make_state)

    def _choose(self, scores: Scores) -> float | None:
        data = self.data if self.data is not None else next(reversed(scores), None)
        known = scores.get(data, {}) if data is not None else {}
        metric = self.metric
        if metric is None:
            lower = (name for name, (_, higher) in known.items() if not higher)
            metric = next(lower, next(iter(known), None))
        if metric is None or metric not in known:
            wanted = f"metric {self.metric!r}" if self.metric else "metric"
            where = f" of {self.data!r}" if self.data else ""
            names = [f"{name} of {data}" for data, known in scores.items() for name in known]
            self.warn_of_lack(wanted + where, names, "nothing: pass it an evaluation set")
            return None
        value, higher = known[metric]
        if self.maximize is not None:
            higher = self.maximize
        return -value_of(value) if higher else value_of(value)
