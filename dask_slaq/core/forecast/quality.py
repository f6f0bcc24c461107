"""Quality of jobs, now and to come: normalized loss, and iterations until a loss is reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_slaq.core.forecast.corrections import first_at
from dask_slaq.core.forecast.types import Forecast, Predictor, Status
from dask_slaq.core.job_arrays import FloatArray

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
    return np.where(known[:, None], np.array(found).T, np.nan)


def _first_below(horizons: FloatArray, losses: FloatArray, targets: FloatArray) -> FloatArray:
    """Return where losses (n_jobs, n_horizons) reach their targets (n_jobs,); inf if nowhere."""
    fallen = -np.minimum.accumulate(losses, axis=1)
    ahead = first_at(-targets, fallen, horizons)
    return np.where(fallen[:, -1] < -targets, np.inf, ahead)
