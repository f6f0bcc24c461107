"""Trials of one search: their reports, and the loss with which each is predicted to end."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast import LossPredictor, at_horizon
from dask_slaq.core.settings import is_whole, shown

__all__ = ["EXPLORE", "SearchSettings", "Trial", "Trials"]

#: What a search is for: its best model soon, or all models soon.
GOALS = ("best", "all")
#: Reports that every trial makes before it is compared with others, and in each later turn.
EXPLORE, TURN = 3, 6
#: Part of the way to the lower end of its band at which a trial with `EXPLORE` reports is ranked.
DOUBT = 0.5
#: Once a model is ready, one turn in this many goes to the least advanced trial of the worker.
SECOND_LOOK = 4
#: Reports after which a trial may be hopeless. It is if the lower end of its band ends above the
#: best loss by more than this part of its own distance from the start to the best.
PATIENCE, SLACK = 8, 0.1


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search; see `dask_slaq.search`. Raises `InvalidSetting`."""

    goal: str = "best"
    steps: int | None = None
    maximize: bool = False
    prune: bool = False
    max_waiting: int = 100

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            allowed = ", ".join(GOALS)
            raise InvalidSetting(f"goal must be one of {allowed}, not {shown(self.goal)}")
        if self.steps is not None and not is_whole(self.steps, 1):
            raise InvalidSetting(
                f"steps must be a number of reports >= 1, or None, not {shown(self.steps)}"
            )
        for name in ("maximize", "prune"):
            if not isinstance(value := getattr(self, name), bool):
                raise InvalidSetting(f"{name} must be True or False, not {shown(value)}")
        if not is_whole(self.max_waiting, 0):
            raise InvalidSetting(
                f"max_waiting must be a number of models >= 0, not {shown(self.max_waiting)}"
            )


@dataclass(slots=True, eq=False)
class Trial:
    """Training of one model, by reports of a loss that is lower for better models."""

    key: Hashable  # of its task
    worker: str  # that computes it
    name: str
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    reports: int = 0
    first: float = math.nan  # loss of the first report
    loss: float = math.nan  # of the latest report
    computed: float = 0.0  # seconds
    waited: float = 0.0  # seconds
    waits: bool = False  # in its report, or has given up its thread by itself
    turn: int = 0  # number of reports when it last began or went on
    predicted: float = math.nan  # final loss; nan without a forecast
    low: float = math.nan  # lower end of the 80 % band of `predicted`
    high: float = math.nan
    score: float = math.inf  # order among the trials of a worker, lowest first
    verdict: str = ""  # "pruned" or "stopped" once its report has said so
    outcome: str = ""  # how it ended; empty while it has not
    hopeless: bool = False
    known: float = math.nan  # loss with which it ended before its result was lost

    @property
    def explored(self) -> bool:
        """Whether it has made enough reports to be compared with others."""
        return self.reports >= EXPLORE

    @property
    def in_turn(self) -> bool:
        """Whether it trains, and began or went on only few reports ago."""
        return not self.waits and self.reports - self.turn < (TURN if self.turn else EXPLORE)


class Trials:
    """Trials of one search."""

    def __init__(self, settings: SearchSettings) -> None:
        self.settings = settings
        self.alive: dict[Hashable, Trial] = {}  # trials that have not ended, by task
        self._ended: dict[Hashable, list[Trial]] = {}  # by task
        self._known: dict[tuple[Hashable, Hashable], float] = {}  # by task and number
        self.best = math.inf  # lowest loss reported so far
        self.best_final = math.inf  # lowest loss with which a trial ended
        self.longest = 0  # most reports of a trial that ended
        self._predictor = LossPredictor()
        self._reported: dict[str, Trial] = {}
        self._count = 0
        self._turns: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of trials that have not ended."""
        return len(self.alive)

    def __iter__(self) -> Iterator[Trial]:
        yield from self.ended
        yield from self.alive.values()

    @property
    def ended(self) -> list[Trial]:
        """Trials that have ended, and whose results are not lost."""
        return [trial for some in self._ended.values() for trial in some]

    @property
    def waiting(self) -> int:
        """Number of trials that wait."""
        return sum(trial.waits for trial in self.alive.values())

    def at(self, key: Hashable, worker: str, number: Hashable = None) -> Trial:
        """Return the trial of the task `key`, which begins if it is new, or runs again elsewhere.

        Another `number` than before begins another trial of the same task.
        """
        trial = self.alive.get(key)
        if trial is not None and trial.worker == worker and trial.number == number:
            return trial
        if trial is not None:
            self.end(key, "done" if trial.worker == worker else "")
        self._count += 1
        trial = self.alive[key] = Trial(key, worker, str(self._count), number)
        known = self._known.pop((key, number), math.nan)
        if math.isfinite(known) and self.settings.goal == "best":
            trial.known = trial.predicted = trial.low = trial.high = trial.score = known
        self._predictor.add(trial.name)
        return trial

    def report(self, trial: Trial, losses: Iterable[float], seconds: float) -> None:
        """Record losses of a trial after computing for `seconds`; not finite ones diverge."""
        sign = -1.0 if self.settings.maximize else 1.0
        trial.computed += seconds
        for loss in losses:
            trial.reports += 1
            trial.loss = loss = sign * loss
            if math.isfinite(loss):
                if math.isnan(trial.first):
                    trial.first = loss
                self._predictor.report(trial.name, loss)
                self.best = min(self.best, loss)
        self._reported[trial.name] = trial

    def begin_turn(self, trial: Trial) -> None:
        """Record that a trial goes on for a turn."""
        trial.waits, trial.turn = False, trial.reports
        self._turns[trial.worker] = self._turns.get(trial.worker, 0) + 1

    def second_looks(self, worker: str) -> bool:
        """Return whether the next turn on a worker goes to its least advanced trial.

        Losses that stay high for long, and then fall, are predicted to stay high. Such trials would
        come last, so some turns go round once a model is ready.
        """
        return bool(self._ended) and self._turns.get(worker, 0) % SECOND_LOOK == 0

    def end(self, key: Hashable, outcome: str) -> None:
        """Record that the task of a trial ended, or with an empty outcome, that it runs again."""
        trial = self.alive.pop(key, None)
        if trial is None:
            return
        self._predictor.remove(trial.name)
        self._reported.pop(trial.name, None)
        if outcome:
            trial.outcome, trial.waits = trial.verdict or outcome, False
            self._ended.setdefault(key, []).append(trial)
        if trial.outcome == "done":
            self.longest = max(self.longest, trial.reports)
            if math.isfinite(trial.loss):
                self.best_final = min(self.best_final, trial.loss)

    def again(self, key: Hashable) -> None:
        """Record that a task that had ended runs again: its result was lost, or it is retried."""
        for trial in self._ended.pop(key, ()):
            if trial.outcome == "done":
                self._known[key, trial.number] = trial.loss

    def forecast(self) -> None:
        """Predict the final losses of the trials whose turn is over, and that reported since."""
        trials = [trial for trial in self._reported.values() if not trial.in_turn]
        if not trials:
            return  # a fit takes two milliseconds, however few have reported
        for trial in trials:
            del self._reported[trial.name]
        self._predictor.fit()
        names = [trial.name for trial in trials]
        forecast = self._predictor.forecast(names)
        lower, upper = self._predictor.band(names)
        left = np.array([self.steps_left(trial) for trial in trials], float)
        ahead = forecast.level - at_horizon(left, forecast.reduction)
        low, high = at_horizon(left, lower), at_horizon(left, upper)
        soon = at_horizon(np.full(len(trials), float(EXPLORE)), forecast.reduction)
        rows = np.stack([ahead, low, high, soon, forecast.remaining], axis=1).tolist()
        for trial, (predicted, least, most, fall, remaining) in zip(trials, rows, strict=True):
            if not math.isfinite(trial.loss):
                trial.predicted = trial.low = trial.high = trial.score = math.inf
                trial.hopeless = self.settings.prune and trial.reports >= PATIENCE
                continue
            if math.isfinite(trial.known):
                continue
            trial.predicted, trial.low, trial.high = predicted, least, most
            if self.settings.goal == "best":
                # With few reports, towards the lower end: a slow starter may be the best.
                doubt = DOUBT * min(EXPLORE / max(trial.reports, 1), 1.0)
                trial.score = predicted - doubt * (predicted - least)
            else:
                span = max(trial.first - trial.loss + remaining, 1e-300)
                trial.score = -fall / span * trial.reports / max(trial.computed, 1e-9)
            trial.hopeless = self.settings.prune and self._is_hopeless(trial)

    def steps_left(self, trial: Trial) -> int:
        """Return the expected number of reports to come of a trial."""
        steps = self.settings.steps or self.longest
        if trial.reports < steps:
            return steps - trial.reports
        # Without a bound, as many again; beyond one, one more.
        return 1 if steps else max(trial.reports, EXPLORE)

    def seconds_left(self, trial: Trial) -> float:
        """Return the expected seconds that a trial still computes."""
        return self.steps_left(trial) * trial.computed / max(trial.reports, 1)

    def seconds_of_one(self) -> float:
        """Return the mean seconds that a trial that has not ended computes from start to end."""
        seconds = [t.computed + self.seconds_left(t) for t in self.alive.values() if t.reports]
        return sum(seconds) / max(len(seconds), 1)

    def _is_hopeless(self, trial: Trial) -> bool:
        distance = max(trial.first - self.best, 0.0)
        return trial.reports >= PATIENCE and trial.low > self.best + SLACK * distance

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return one dict per trial, with losses as they were reported; see `Search.trials`."""
        sign = -1.0 if self.settings.maximize else 1.0
        found = []
        for trial in self:
            ends = sorted((sign * trial.low, sign * trial.high))
            found.append(
                {
                    "key": trial.key,
                    "trial": trial.number,
                    "worker": trial.worker,
                    "iteration": trial.reports,
                    "loss": sign * trial.loss,
                    "predicted": sign * trial.predicted,
                    "low": ends[0],
                    "high": ends[1],
                    "state": trial.outcome or ("waiting" if trial.waits else "training"),
                    "computed": trial.computed,
                    "waited": trial.waited,
                }
            )
        return found
