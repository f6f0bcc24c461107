"""Expected time until a job reaches its target, with a band."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import Predictor

__all__ = ["iterations_to_loss"]

FloatArray = NDArray[np.float64]


def iterations_to_loss(
    predictor: Predictor, job: str, target: float
) -> tuple[float, float, float] | None:
    """Return the iterations that a job still needs to reach a loss: low, expected and high.

    The band follows the prediction intervals of the predictor, where it has any.

    Parameters
    ----------
    predictor : Predictor
    job : str
        A job that the predictor follows.
    target : float
        Loss, in raw units.

    Returns
    -------
    tuple of float or None
        Numbers of iterations; inf where the forecast does not reach the loss. None before there
        is a forecast.
    """
    forecast = predictor.forecast([job])
    level = float(forecast.level[0])
    if math.isnan(level) or not forecast.status[0] > 0:
        return None
    horizons, curve = forecast.horizons, level - forecast.reduction[0]
    curves = [curve] * 3
    if (band := getattr(predictor, "band", None)) is not None:
        low, high = (np.asarray(bound[0], float) for bound in band([job]))
        if low.shape == curve.shape and np.isfinite(low).all() and np.isfinite(high).all():
            curves = [np.minimum(low, curve), curve, np.maximum(high, curve)]
    best, middle, worst = (_first_below(horizons, each, target) for each in curves)
    return best, middle, worst


def _first_below(horizons: FloatArray, losses: Sequence[float], target: float) -> float:
    """Return the horizon at which falling losses first reach `target`; inf if they do not."""
    falling = np.minimum.accumulate(np.asarray(losses, float))
    if falling[-1] > target:
        return math.inf
    return float(np.interp(-target, -falling, horizons))
