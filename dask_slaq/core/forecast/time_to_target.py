"""Expected iterations until jobs reach their targets, with a band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.types import Predictor, Status

__all__ = ["iterations_to_losses"]

FloatArray = NDArray[np.float64]


def iterations_to_losses(
    predictor: Predictor, jobs: Sequence[str], targets: FloatArray
) -> FloatArray:
    """Return the iterations (n_jobs, 3) until jobs reach a raw loss: low, expected and high.

    The band follows the prediction intervals of the predictor, where it has any. Iterations are inf
    where the forecast does not reach the loss, and nan before there is a forecast.
    """
    jobs = list(jobs)
    forecast = predictor.forecast(jobs)
    curve = forecast.level[:, None] - forecast.reduction
    low, high = curve, curve
    if (band := getattr(predictor, "band", None)) is not None and jobs:
        lower, upper = band(jobs)
        low, high = np.fmin(lower, curve), np.fmax(upper, curve)
    found = [_first_below(forecast.horizons, each, targets) for each in (low, curve, high)]
    known = (forecast.status == Status.OK) & np.isfinite(forecast.level)
    iterations: FloatArray = np.where(known[:, None], np.array(found).T, np.nan)
    return iterations


def _first_below(horizons: FloatArray, losses: FloatArray, targets: FloatArray) -> FloatArray:
    """Return where losses (n_jobs, n_horizons) reach their targets (n_jobs,); inf if nowhere."""
    falling = np.minimum.accumulate(losses, axis=1)
    right = (falling > targets[:, None]).sum(axis=1)
    row, last = np.arange(len(targets)), len(horizons) - 1
    at = np.clip(right, 1, last)
    above, below = falling[row, at - 1], falling[row, at]
    part = np.divide(
        above - targets, above - below, out=np.zeros(len(targets)), where=above > below
    )
    step = horizons[at] - horizons[at - 1]
    ahead = horizons[at - 1] + np.clip(part, 0.0, 1.0) * step
    return np.where(right == 0, 0.0, np.where(right > last, np.inf, ahead))
