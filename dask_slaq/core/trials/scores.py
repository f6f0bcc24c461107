"""Scores of the trials of a search: who trains first, by forecasts, early ranks and the past."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dask_slaq.core.forecast import LossPredictor, at_horizon, in_logs, predicted_range
from dask_slaq.core.search_settings import FEWEST_REPORTS, Goal, Model, SearchSettings, goal_of
from dask_slaq.core.trials.past import Past, PastModel
from dask_slaq.core.trials.priors import Early
from dask_slaq.core.trials.pruning import find_noise, if_it_falls_on
from dask_slaq.core.trials.trial import FinalLoss, Trial


class Scores:
    """Forecasts and scores of the trials of a search with a `goal`, after `past` ones like it."""

    def __init__(self, goal: str, past: Iterable[PastModel] = ()) -> None:
        self.predictor = LossPredictor()
        self._early, self._past = Early(), Past(past)
        self.set_goal(goal)

    def set_goal(self, goal: str) -> None:
        """Score by another goal from now on."""
        self.goal: Goal | None = goal_of(goal)  # None for one that is built in
        self.hopeless: set[str] = set()  # trials, by name, that a goal of a user's gives up

    def add(self, name: str, *, bounded: bool) -> None:
        """Follow a new trial; zero bounds its losses unless others' were negative."""
        self.predictor.add(name)
        if not bounded:
            self.predictor.unbound([name])

    def report(self, trial: Trial, loss: float) -> None:
        """Take in the usable loss that a trial has just reported."""
        self.predictor.report(trial.name, loss)
        self._early.add(trial.losses.count, loss)

    def forecast(
        self,
        trials: Sequence[Trial],
        everyone: Sequence[Trial],
        settings: SearchSettings,
        to_come: Callable[[Trial], tuple[int, int]],
    ) -> None:
        """Predict the final losses of `trials`, which have reported, and score `everyone`.

        `to_come` returns the expected steps to come of a trial, and as many as it may make.
        """
        self._predict(trials, settings, to_come)
        if self.goal is not None:
            self._judge(self.goal, everyone, settings.steps)
        elif settings.goal == "best":
            self._score_young(everyone)
            if self._past:
                self._score_by_past(everyone)

    def _predict(
        self,
        trials: Sequence[Trial],
        settings: SearchSettings,
        to_come: Callable[[Trial], tuple[int, int]],
    ) -> None:
        self.predictor.fit()
        names = [trial.name for trial in trials]
        forecast = self.predictor.forecast(names)
        lower, upper = self.predictor.band(names)
        # Forecasts count usable reports.
        stride = np.array([trial.losses.stride for trial in trials])
        left, most = np.array([to_come(trial) for trial in trials], float).T / stride
        ahead = forecast.level - at_horizon(left, forecast.reduction)
        low, high, least = (
            at_horizon(at, losses) for at, losses in ((left, lower), (left, upper), (most, lower))
        )
        scaled, _ = in_logs(forecast, forecast.level)
        soon = at_horizon(np.full(len(trials), float(FEWEST_REPORTS)), scaled.reduction)
        soon /= np.maximum(predicted_range(scaled), 1e-300)
        columns = [ahead, low, high, least, soon, forecast.start]
        rows = np.stack(columns, axis=1).tolist()
        for trial, row in zip(trials, rows, strict=True):
            predicted, low, high, _, fall, trial.losses.first = row
            if trial.diverges:
                trial.forecast = FinalLoss(math.inf, math.inf, math.inf)
                trial.score = math.inf
                continue
            if math.isfinite(trial.known) or (settings.goal == "best" and _is_young(trial)):
                continue
            in_reach = min(row[3], if_it_falls_on(trial.losses, to_come(trial)[1]))
            trial.forecast = FinalLoss(predicted, low, high, in_reach)
            if settings.goal != "all":
                trial.score = predicted
            else:
                trial.score = -fall * trial.reports / max(trial.times.computed, 1e-9)
            if settings.prunes:
                find_noise(trial.losses, settings.pruning.noise)

    def _judge(self, goal: Goal, everyone: Sequence[Trial], steps: int | None) -> None:
        """Score the trials by a goal that is not built in."""
        some = sorted((t for t in everyone if t.losses.count), key=lambda t: int(t.name))
        scores, hopeless = goal([_as_model(trial, steps) for trial in some])
        for trial, score in zip(some, scores, strict=True):
            if not trial.diverges:
                trial.score = score
        self.hopeless = {some[at].name for at in hopeless}

    def _score_young(self, everyone: Sequence[Trial]) -> None:
        """Score the trials of too few reports for a forecast by their ranks among all."""
        young = [t for t in everyone if not t.state.ended and _is_young(t) and not t.diverges]
        if not young:
            return
        firsts, finals = [], []
        for trial in everyone:
            final = final_of(trial)
            if trial.losses.count and not trial.diverges and math.isfinite(final):
                firsts.append(trial.losses.curve.losses[0])
                finals.append(final)
        scores = self._early.scores(
            [(t.losses.count, t.losses.latest) for t in young], firsts, finals
        )
        for trial, score in zip(young, scores, strict=True):
            trial.score = score

    def _score_by_past(self, everyone: Sequence[Trial]) -> None:
        """Score the trials whose parameters were in the last search of this kind."""
        # Those that train, with their ranks and scores without it; finals of all.
        some, known, finals = [], [], []
        # Places, with first losses here, and with final ones as predicted.
        first, last = list[tuple[float, float]](), list[tuple[float, float]]()
        for trial in everyone:
            final = final_of(trial)
            own = final if math.isfinite(final) else trial.score
            if not trial.losses.count or trial.diverges or not math.isfinite(own):
                continue
            finals.append(own)
            rank = self._past.rank(trial.params)
            if rank is None:
                continue
            if not trial.state.ended and not math.isfinite(trial.known):
                some.append(trial)
                known.append((rank, own))
            first.append((rank, trial.losses.curve.losses[0]))
            if math.isfinite(final):
                last.append((rank, final))
        if known:
            scores = self._past.scores(known, finals, self._past.trust(first, last))
            for trial, score in zip(some, scores, strict=True):
                trial.score = score


def choose_leads(
    alive: Sequence[Trial],
    threads: int,
    seconds_left: Callable[[Trial], float],
    *,
    one_of: int = 8,
    best: float = 0.25,
) -> None:
    """Let some trials keep a thread to their end, so that a good model is ready soon.

    Of the `best` part of them by their scores, `one_of` so many `threads`, or of as few as two, is
    for those that are done first.
    """
    leads = sum(t.leads and not t.state.blocked for t in alive)
    some = [t for t in alive if t.losses.count and t.score < math.inf and not t.state.migrates]
    wanted = max((threads + one_of // 2) // one_of, int(threads > 1))
    if len(some) < one_of or leads >= wanted:
        return
    some.sort(key=lambda t: (t.score, t.name))
    del some[math.ceil(best * len(some)) :]
    some = [t for t in some if not (t.leads or t.state.blocked)]
    for trial in sorted(some, key=lambda t: (seconds_left(t), t.name))[: wanted - leads]:
        trial.leads = True


def rank_candidates(trials: Sequence[Trial]) -> None:
    """Let trials of groups stand as their candidate does: by its mean rank in these.

    The parts of a candidate advance together, so that it is known well before any has ended.
    """
    groups: dict[str | None, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    ranks: dict[str | None, list[float]] = {}
    for some in groups.values():
        some.sort(key=lambda t: f if math.isfinite(f := final_of(t)) else t.score)
        for place, trial in enumerate(some):
            ranks.setdefault(trial.candidate, []).append(place / len(some))
    means = {candidate: sum(some) / len(some) for candidate, some in ranks.items()}
    for trial in trials:
        trial.standing = means[trial.candidate], trial.step


def final_of(trial: Trial) -> float:
    """Return the final loss of a trial, or as predicted; nan without a forecast."""
    return trial.losses.latest if trial.outcome == "done" else trial.forecast.final


def _is_young(trial: Trial) -> bool:
    """Return whether a trial has too few losses for a forecast, and none that it ended with."""
    return 0 < trial.losses.count < FEWEST_REPORTS and not math.isfinite(trial.known)


def _as_model(trial: Trial, steps: int | None) -> Model:
    losses, forecast = trial.losses, trial.forecast
    return Model(
        int(trial.name),
        trial.step,
        steps,
        losses.curve.steps,
        losses.curve.losses,
        losses.latest,
        forecast.final,
        forecast.low,
        forecast.high,
        trial.times.computed,
        trial.outcome,
    )
