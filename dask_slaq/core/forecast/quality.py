"""Normalized loss: losses of different jobs on one scale, so that they can be compared.

1 at the start of a job, 0 when it has converged. The divisor is the predicted whole range
(fallen so far + still to fall), or the paper's largest change so far (§4.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast.predictor import Forecast, Status

__all__ = ["NORMALIZERS", "normalized", "predicted_range", "scale"]

FloatArray = NDArray[np.float64]

#: Names of the divisors that can be chosen.
NORMALIZERS = ("range", "largest-change")
#: Smallest divisor, in standard deviations of the noise of one report.
NOISE_FLOOR = 2.0


def predicted_range(forecast: Forecast) -> FloatArray:
    """Predict the whole fall of each job: fallen so far and still to fall.

    Parameters
    ----------
    forecast : Forecast

    Returns
    -------
    (n_jobs,) array
        Raw loss units, finite, at least 0; 0 where nothing is known.
    """
    return _fallen(forecast) + forecast.remaining


def scale(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the divisor that turns raw reductions into normalized ones.

    Parameters
    ----------
    forecast : Forecast
    normalizer : {"range", "largest-change"}
        The predicted whole range, or the paper's largest change between two reports so far, which
        is the range until there is one.

    Returns
    -------
    (n_jobs,) array
        Raw loss units, positive and finite, at least twice the noise; 1 where nothing is known.
    """
    if normalizer not in NORMALIZERS:
        raise InvalidSetting(
            f"normalizer is {normalizer!r}; it must be one of {', '.join(NORMALIZERS)}"
        )
    size = predicted_range(forecast)
    if normalizer == "largest-change":
        # Until the loss has changed, what it is predicted to fall stands for the change to come.
        size = np.where(forecast.largest_change > 0, forecast.largest_change, size)
    # A fall smaller than the noise is no quality that could be seen. Without this, a job that
    # only fluctuates would be measured by its own fluctuation and always have much to gain.
    size = np.maximum(size, NOISE_FLOOR * forecast.noise)
    # Below the smallest normal number a division would overflow.
    return np.where(size >= np.finfo(np.float64).tiny, size, 1.0)


def normalized(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the loss still to fall over its scale.

    Parameters
    ----------
    forecast : Forecast
    normalizer : {"range", "largest-change"}

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
    """Fall from the first report to the present level, 0 before the first report."""
    fallen = np.maximum(forecast.start - forecast.level, 0.0)
    return np.where(np.isnan(fallen), 0.0, fallen)
