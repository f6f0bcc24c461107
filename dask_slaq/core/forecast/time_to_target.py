"""Expected iterations until jobs reach their targets, with a band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.corrections import first_at
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
    fallen = -np.minimum.accumulate(losses, axis=1)
    ahead = first_at(-targets, fallen, horizons)
    return np.where(fallen[:, -1] < -targets, np.inf, ahead)
