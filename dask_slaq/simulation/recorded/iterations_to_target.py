"""Iterations to a target loss, recorded or else predicted.

They are assumed not to depend on the number of threads. This holds for solvers whose iterations
compute the same on any number of threads, such as synchronous ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_slaq.core.forecast import LossPredictor, Status
from dask_slaq.core.gains import iterations_to_target
from dask_slaq.simulation.recorded.runs import Trial

__all__ = ["Iterations", "iterations_to"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Iterations:
    """Iterations to a target loss.

    `middle`, `low` and `high` are median, least and most over those of all `runs` that `reached`
    the target. If none did, they are the prediction for the longest run and its band, which should
    hold the loss of four runs in five; infinite where the target is not reached. `lowest` is the
    lowest loss of all runs, and `level` the lower end of the band to which the longest run is
    predicted to fall; `lowest` if a run reached the target.
    """

    middle: float
    low: float
    high: float
    reached: int
    runs: int
    lowest: float
    level: float

    @property
    def predicted(self) -> bool:
        """Whether no run has reached the target, so that the number is predicted."""
        return self.reached == 0


def iterations_to(trials: Sequence[Trial], target: float) -> Iterations:
    """Return the iterations that the `trials` of a solver took, or would take, to a `target`."""
    lowest = min(float(trial.losses.min()) for trial in trials)
    took = [np.argmax(t.losses <= target) + 1.0 for t in trials if (t.losses <= target).any()]
    if took:
        middle, low, high = float(np.median(took)), float(min(took)), float(max(took))
        return Iterations(middle, low, high, len(took), len(trials), lowest, lowest)
    longest = max(trials, key=lambda trial: len(trial.losses))
    ahead, level = _predicted(longest.losses, target)
    low, middle, high = (len(longest.losses) + max(n, 1.0) for n in ahead)  # at least one more
    return Iterations(middle, low, high, 0, len(trials), lowest, level)


def _predicted(losses: FloatArray, target: float) -> tuple[tuple[float, float, float], float]:
    """Predict the iterations ahead (least, middle, most) to `target`, and the final loss.

    Every report is followed by a fit, as on a cluster, so that it tests the experts and bands.
    """
    predictor = LossPredictor()
    predictor.add("", target=None)
    for loss in losses.tolist():
        predictor.report("", loss)
        predictor.fit()
    forecast = predictor.forecast([""])
    lower, upper = (bound[0] for bound in predictor.band([""]))
    end = float(lower[-1])
    if forecast.status[0] != Status.OK:
        return (math.inf, math.inf, math.inf), end
    middle = float(iterations_to_target(forecast, np.array([target]), np.array([0.0]))[0])
    least = min(_first_below(forecast.horizons, lower, target), middle)
    most = max(_first_below(forecast.horizons, upper, target), middle)
    return (least, middle, most), end


def _first_below(horizons: FloatArray, losses: FloatArray, target: float) -> float:
    """Return the horizon at which `losses` first reach `target`; infinite if they do not."""
    below = losses <= target
    if not below.any():
        return math.inf
    at = int(np.argmax(below))
    if at == 0:
        return float(horizons[0])
    part = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(horizons[at - 1] + part * (horizons[at] - horizons[at - 1]))
