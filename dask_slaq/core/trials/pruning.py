"""Which trials are given up: those that end worse than others, or whose loss stays nan."""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from dask_slaq.core.search_settings import PATIENCE, SearchSettings
from dask_slaq.core.trials.losses import TrialLosses
from dask_slaq.core.trials.trial import Trial

#: Part of its steps before which a trial whose loss has not changed is not hopeless, and losses
#: that tell its level.
UNCHANGED, FEW = 0.5, 3
#: Standard deviation of a noise over the median of its second differences; of the latest losses,
#: so many at least.
PER_DIFFERENCE, LATEST = 1.4826 / math.sqrt(6), 10
#: Models ready that all end better than a hopeless trial: so many, or this part of all if that is
#: less. The lowest loss reported is no measure: where models overfit, none ends there.
BETTER, BETTER_PART = 3, 0.15
#: Part of its pace since half of its steps at which a trial may fall on, whatever is predicted:
#: some begin slowly.
FALLS_ON = 0.5
#: Trials with the lowest losses of all at the same step that are not hopeless, whatever is
#: predicted: at most so many, and this part of all trials.
LOWEST, LOWEST_PART = 8, 0.08
#: Steps of which the lowest losses are kept: trials may name any.
MOST_STEPS = 10_000


class Peers:
    """Models that are compared: all of a search, or of a group.

    It has the lowest losses at each of the steps that were reported last, and the lowest `finals`,
    with which models ended, sorted.
    """

    def __init__(self) -> None:
        self._losses: OrderedDict[int, list[float]] = OrderedDict()
        self.finals: list[float] = []

    def end(self, loss: float) -> None:
        """Record the loss with which a model ended."""
        insort(self.finals, loss)
        del self.finals[BETTER:]

    def add(self, step: int, loss: float) -> None:
        """Record a loss."""
        lowest = self._losses.setdefault(step, [])
        insort(lowest, loss)
        del lowest[LOWEST + 1 :]
        self._losses.move_to_end(step)
        if len(self._losses) > MOST_STEPS:
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
        enough = min(BETTER, math.ceil(BETTER_PART * count))
        patience = pruning.reports(settings.steps)
        known = trial.losses
        if known.count < patience or len(finals) < enough:
            return False
        # Little is known of a loss that has just left a plateau, and nothing of one that is on it.
        half = UNCHANGED * (settings.steps or 2 * longest)
        if not known.left and (known.leaves or trial.step < half):
            return False
        # Where all losses are alike, they tell more than forecasts.
        lowest, margin = self._losses.get(trial.step, []), pruning.noise / 4 * known.noise
        most = min(LOWEST, math.ceil(LOWEST_PART * count), len(lowest) - 1)
        if most > 0 and known.latest - margin <= lowest[most - 1]:
            return False
        bar = finals[enough - 1]
        return trial.forecast.least - margin > bar + pruning.slack * max(known.first - bar, 0.0)


def stays_diverged(trial: Trial, others: Iterable[Trial], patience: int) -> bool:
    """Return whether a trial that diverges is given up, but for the one with the lowest loss.

    Its loss may come back, as after a few steps of nan.
    """
    losses = trial.losses
    if losses.missed < patience or not losses.count:
        return losses.missed >= patience
    return any(other.losses.count and other.losses.latest <= losses.latest for other in others)


def find_noise(losses: TrialLosses, deviations: float) -> None:
    """Find how noisy the latest losses of a trial are, and whether they left its first level.

    It has left that by so many standard `deviations` of the noise. Its first loss is left out: many
    fall in their first step, and stay there.
    """
    known = np.array(losses.curve.losses)[1:]
    latest = known[-max(len(known) // 2 + 1, LATEST) :]
    if len(latest) > 2:
        losses.noise = PER_DIFFERENCE * float(np.median(abs(np.diff(latest, 2))))
        far = deviations * losses.noise
        level = np.median(known[:FEW])
        losses.left = bool(abs(known[-FEW:].mean() - level) > far)
        losses.leaves = bool(abs(known[-1] - level) > far)
        if not np.ptp(known[-PATIENCE:]):  # it may have fallen back to a level
            losses.left = losses.leaves = False


def if_it_falls_on(losses: TrialLosses, steps: int) -> float:
    """Return the final loss of a trial that keeps much of its pace for so many `steps`.

    That is its pace since half of its steps, or that of its latest reports, if it has just begun to
    fall.
    """
    curve, last, fall = losses.curve, losses.last_step, 0.0
    for since in (max(bisect(curve.steps, last / 2) - 1, 0), max(len(curve) - FEW, 0)):
        apart = max(last - curve.steps[since], 1)
        fall = max(fall, (curve.losses[since] - losses.latest) / apart)
    return losses.latest - FALLS_ON * fall * steps
