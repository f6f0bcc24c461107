"""Normalized loss, which makes the losses of different jobs comparable.

It is 1 at the start of a job and 0 when the job has converged. The divisor is the predicted whole
range (fall so far + fall still to come), or the paper's largest change so far (§4.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast.predictor import Forecast, Status
from dask_slaq.core.settings import NORMALIZERS

__all__ = ["normalized", "predicted_range", "scale"]

FloatArray = NDArray[np.float64]

#: Smallest divisor, in standard deviations of the noise of one report.
NOISE_FLOOR = 2.0


def predicted_range(forecast: Forecast) -> FloatArray:
    """Return the predicted whole fall of each job: its fall so far plus the fall still to come.

    Returns
    -------
    (n_jobs,) array
        In raw loss units, finite, at least 0; 0 without any information.
    """
    return _fallen(forecast) + forecast.remaining


def scale(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the divisor that normalizes the loss reductions of each job.

    Parameters
    ----------
    forecast : Forecast
    normalizer : {"range", "largest-change"}
        The predicted whole range, or the paper's largest change between two reports so far. The
        predicted range stands in for the largest change as long as the loss has not changed.

    Returns
    -------
    (n_jobs,) array
        In raw loss units, positive and finite, at least twice the noise; 1 without any
        information.

    Raises
    ------
    InvalidSetting
        If `normalizer` is not one of `NORMALIZERS`.
    """
    if normalizer not in NORMALIZERS:
        raise InvalidSetting(
            f"normalizer is {normalizer!r}; it must be one of {', '.join(NORMALIZERS)}"
        )
    size = predicted_range(forecast)
    if normalizer == "largest-change":
        size = np.where(forecast.largest_change > 0, forecast.largest_change, size)
    # A fall below the noise is not a visible gain. Without this floor, a job that only fluctuates
    # would be measured by its own fluctuations and always have much to gain.
    size = np.maximum(size, NOISE_FLOOR * forecast.noise)
    # Division by a subnormal number would overflow.
    return np.where(size >= np.finfo(np.float64).tiny, size, 1.0)


def normalized(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the present normalized loss of each job: its remaining fall divided by `scale`.

    Parameters
    ----------
    forecast : Forecast
    normalizer : {"range", "largest-change"}
        See `scale`.

    Returns
    -------
    (n_jobs,) array
        Fraction in [0, 1]: 1 at the start, 0 when converged, 1 where unknown.
    """
    size = scale(forecast, normalizer)
    fraction = np.clip(forecast.remaining / size, 0.0, 1.0)
    diverged = (forecast.status == Status.DIVERGING) & (_fallen(forecast) == 0)
    unknown = diverged | (predicted_range(forecast) < np.finfo(np.float64).tiny)
    return np.where(unknown, 1.0, fraction)


def _fallen(forecast: Forecast) -> FloatArray:
    """Return the fall from the first report to the present level; 0 before the first report."""
    fallen = np.maximum(forecast.start - forecast.level, 0.0)
    return np.where(np.isnan(fallen), 0.0, fallen)
