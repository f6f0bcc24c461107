"""Normalized loss, which makes jobs comparable: 1 at the start of a job, 0 at convergence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.types import Forecast, Status

__all__ = ["normalized", "predicted_range", "scale"]

FloatArray = NDArray[np.float64]

#: Smallest divisor, in standard deviations of the noise of one report.
NOISE_FLOOR = 2.0


def predicted_range(forecast: Forecast) -> FloatArray:
    """Return the predicted whole fall (n_jobs,) in raw loss units: so far, and still to come."""
    return _fallen(forecast) + forecast.remaining


def scale(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the divisor (n_jobs,) that normalizes losses: finite, > 0, at least twice the noise.

    It is the predicted whole range or, for ``"largest-change"``, the largest change between two
    reports so far (§4.1 of the paper), for which the range stands in until the loss changes. It is
    1 without any information.
    """
    size = predicted_range(forecast)
    if normalizer == "largest-change":
        size = np.where(forecast.largest_change > 0, forecast.largest_change, size)
    # A fall below the noise is not a visible gain. Without this floor, a job that only fluctuates
    # would be measured by its own fluctuations and always have much to gain.
    size = np.maximum(size, NOISE_FLOOR * forecast.noise)
    # Division by a subnormal number would overflow.
    return np.where(size >= np.finfo(np.float64).tiny, size, 1.0)


def normalized(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the remaining fall (n_jobs,) divided by `scale`: in [0, 1], 1 if unknown."""
    size = scale(forecast, normalizer)
    fraction = np.clip(forecast.remaining / size, 0.0, 1.0)
    diverged = (forecast.status == Status.DIVERGING) & (_fallen(forecast) == 0)
    unknown = diverged | (predicted_range(forecast) < np.finfo(np.float64).tiny)
    return np.where(unknown, 1.0, fraction)


def _fallen(forecast: Forecast) -> FloatArray:
    """Return the fall from the first report to the present level; 0 before the first report."""
    fallen = np.maximum(forecast.start - forecast.level, 0.0)
    return np.where(np.isnan(fallen), 0.0, fallen)
