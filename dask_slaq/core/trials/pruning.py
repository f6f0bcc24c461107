"""Which trials are given up: those that end worse than others, or whose loss stays nan."""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dask_slaq.core.search_settings import PATIENCE_REPORTS, SearchSettings
from dask_slaq.core.trials.losses import TrialLosses
from dask_slaq.core.trials.trial import Trial

#: Losses that tell the level of a trial.
FEW_LOSSES = 3


class Peers:
    """Models that are compared: all of a search, or of a group.

    It has the lowest losses at each of the steps that were reported last, and the lowest `finals`,
    with which models ended, sorted.
    """

    def __init__(
        self,
        *,
        # Models ready that all end better than a hopeless trial: so many, or this part of all if
        # that is less. The lowest loss reported is no measure: where models overfit, none ends
        # there.
        better: int = 3,
        better_part: float = 0.15,
        # Trials with the lowest losses of all at the same step that are not hopeless, whatever is
        # predicted: at most so many, and this part of all trials.
        lowest: int = 8,
        lowest_part: float = 0.08,
        unchanged: float = 0.5,  # part of its steps for which a loss may stay as it is
        most_steps: int = 10_000,  # of which the lowest losses are kept: trials may name any
    ) -> None:
        self._better, self._better_part = better, better_part
        self._lowest, self._lowest_part = lowest, lowest_part
        self._unchanged, self._most_steps = unchanged, most_steps
        self._losses: OrderedDict[int, list[float]] = OrderedDict()
        self.finals: list[float] = []

    def end(self, loss: float) -> None:
        """Record the loss with which a model ended."""
        insort(self.finals, loss)
        del self.finals[self._better :]

    def add(self, step: int, loss: float) -> None:
        """Record a loss."""
        lowest = self._losses.setdefault(step, [])
        insort(lowest, loss)
        del lowest[self._lowest + 1 :]
        self._losses.move_to_end(step)
        if len(self._losses) > self._most_steps:
            self._losses.popitem(last=False)

    def forget(self, trial: Trial) -> None:
        """Forget the losses of a trial that begins again."""
        curve = trial.losses.curve
        for step, loss in zip(curve.steps, curve.losses, strict=True):
            if loss in self._losses.get(step, ()):
                self._losses[step].remove(loss)

    def is_hopeless(self, trial: Trial, settings: SearchSettings, count: int, longest: int) -> bool:
        """Return whether enough of `count` models are ready that end better than a trial can.

        None of these made more steps than the `longest`.
        """
        pruning, finals = settings.pruning, self.finals
        enough = min(self._better, math.ceil(self._better_part * count))
        patience = pruning.reports(settings.steps)
        known = trial.losses
        if known.count < patience or len(finals) < enough:
            return False
        # Little is known of a loss that has just left a plateau, and nothing of one that is on it.
        half = self._unchanged * (settings.steps or 2 * longest)
        if not known.left and (known.leaves or trial.step < half):
            return False
        # Where all losses are alike, they tell more than forecasts.
        lowest, margin = self._losses.get(trial.step, []), pruning.noise / 4 * known.noise
        most = min(self._lowest, math.ceil(self._lowest_part * count), len(lowest) - 1)
        if most > 0 and known.latest - margin <= lowest[most - 1]:
            return False
        bar = finals[enough - 1]
        return trial.forecast.least - margin > bar + pruning.slack * max(known.first - bar, 0.0)


def telling_parameter(trials: Iterable[Trial], pruned: Callable[[Trial], bool]) -> str:
    """Return the parameter whose value alone tells which models were pruned; empty without one.

    It has few values, which others share, as a fold or a data set has. All models that were pruned
    first have one of them, or most models of less than half of them were, and hardly any others.
    """
    by_name: dict[str, dict[Any, list[bool]]] = {}
    for trial in trials:
        for name, value in trial.params.items():
            if not isinstance(value, float):
                by_name.setdefault(name, {}).setdefault(value, []).append(pruned(trial))
    for name, values in by_name.items():
        lost = [some for some in values.values() if sum(some) > len(some) / 2]
        n, most = sum(map(sum, lost)), sum(map(sum, values.values()))
        others = sum(len(some) for some in values.values()) / max(len(values), 1)
        if (
            0 < 2 * len(lost) < len(values)
            and n >= max(FEW_LOSSES, 0.9 * most)
            and others >= FEW_LOSSES
        ):
            return name
        of_one = max(map(sum, values.values()))
        if of_one == most > FEW_LOSSES and len(values) > 2 and others > FEW_LOSSES:
            return name
    return ""


def stays_diverged(trial: Trial, others: Iterable[Trial], patience: int) -> bool:
    """Return whether a trial that diverges is given up, but for the one with the lowest loss.

    Its loss may come back, as after a few steps of nan.
    """
    losses = trial.losses
    if losses.missed < patience or not losses.count:
        return losses.missed >= patience
    return any(other.losses.count and other.losses.latest <= losses.latest for other in others)


def find_noise(losses: TrialLosses, deviations: float, fewest: int = 10) -> None:
    """Find how noisy the latest losses of a trial are, and whether they left its first level.

    It has left that by so many standard `deviations` of the noise. The latest are half of all, and
    `fewest` at least. Its first loss is left out: many fall in their first step, and stay there.
    """
    known = np.array(losses.curve.losses)[1:]
    latest = known[-max(len(known) // 2 + 1, fewest) :]
    if len(latest) > 2:
        # Standard deviation of a normal noise over the median of its second differences.
        losses.noise = 1.4826 / math.sqrt(6) * float(np.median(abs(np.diff(latest, 2))))
        far = deviations * losses.noise
        level = np.median(known[:FEW_LOSSES])
        losses.left = bool(abs(known[-FEW_LOSSES:].mean() - level) > far)
        losses.leaves = bool(abs(known[-1] - level) > far)
        if not np.ptp(known[-PATIENCE_REPORTS:]):  # it may have fallen back to a level
            losses.left = losses.leaves = False


def if_it_falls_on(losses: TrialLosses, steps: int, part: float = 0.5) -> float:
    """Return the final loss of a trial that keeps this part of its pace for so many `steps`.

    Whatever is predicted, it may: some begin slowly.
    That is its pace since half of its steps, or that of its latest reports, if it has just begun to
    fall.
    """
    curve, last, fall = losses.curve, losses.last_step, 0.0
    for since in (max(bisect(curve.steps, last / 2) - 1, 0), max(len(curve) - FEW_LOSSES, 0)):
        apart = max(last - curve.steps[since], 1)
        fall = max(fall, (curve.losses[since] - losses.latest) / apart)
    return losses.latest - part * fall * steps
