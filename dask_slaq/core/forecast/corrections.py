"""Corrections of forecasts by what is known besides the reports.

A job without a usable forecast is assumed to follow a typical curve, and no curve falls after its
last iteration.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.types import Forecast

__all__ = ["USUAL", "as_usual", "ending", "hold_beyond", "unreported"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Iterations in which a typical curve falls by half of its range.
USUAL = 10.0


def as_usual(first: FloatArray, level: FloatArray, total: IntArray) -> FloatArray:
    """Return the falls of typical curves through the first and the present loss of each job.

    Parameters
    ----------
    first, level : (n_jobs,) array
        Loss at the first report, and present loss.
    total : (n_jobs,) array of int
        Reports so far.

    Returns
    -------
    (n_jobs, n_horizons) array
        Falls at `HORIZONS`, in the units of `level`. Without a fall so far, the remaining fall is
        the absolute loss: an arbitrary choice, which cancels in normalized losses.
    """
    done = total[:, None].astype(np.float64) - 1.0
    fallen = np.maximum(first - level, 0.0)[:, None]
    usual = np.where(np.abs(level) > 0, np.abs(level), 1.0)[:, None]
    rest = np.where(fallen > 0, fallen * USUAL / np.maximum(done, 1.0), usual)
    return rest * _usual_part(done)


def _usual_part(done: FloatArray, horizons: FloatArray = HORIZONS) -> FloatArray:
    """Return the fraction of its remaining fall that a typical curve makes by each horizon.

    It falls by ``k / (k + USUAL)`` of its range in k iterations; `done` (n_jobs, 1) are over.
    """
    part: FloatArray = horizons / (horizons + done + USUAL)
    return part


def unreported(forecast: Forecast, done: FloatArray) -> Forecast:
    """Return forecasts in which jobs without reports follow a typical curve.

    Parameters
    ----------
    forecast : Forecast
    done : (n_jobs,) array
        Estimated iterations done so far; used for jobs without reports only.

    Returns
    -------
    Forecast
        Jobs without reports and without a forecast have a range of 1. They are assumed to converge
        while they work, so that a job that never reports does not stay ahead of the others.
    """
    silent = (forecast.n_reports == 0) & (forecast.remaining == 0)
    if not silent.any():
        return forecast
    rest = USUAL / (USUAL + done)
    fall = rest[:, None] * _usual_part(done[:, None], forecast.horizons)
    return replace(
        forecast,
        reduction=np.where(silent[:, None], fall, forecast.reduction),
        start=np.where(silent, 1.0, forecast.start),
        level=np.where(silent, rest, forecast.level),
        remaining=np.where(silent, rest, forecast.remaining),
    )


def ending(forecast: Forecast, ahead: FloatArray) -> Forecast:
    """Return forecasts that stay constant after the last iteration of each job.

    Parameters
    ----------
    forecast : Forecast
    ahead : (n_jobs,) array
        Maximum number of iterations to come, inf where unknown.

    Returns
    -------
    Forecast
    """
    some = np.flatnonzero(ahead <= forecast.horizons[-1])
    if not len(some):
        return forecast
    reduction, remaining = forecast.reduction.copy(), forecast.remaining.copy()
    reduction[some] = hold_beyond(ahead[some], reduction[some], forecast.horizons)
    remaining[some] = reduction[some, -1]
    return replace(forecast, reduction=reduction, remaining=remaining)


def hold_beyond(
    horizon: FloatArray, fall: FloatArray, horizons: FloatArray = HORIZONS
) -> FloatArray:
    """Return falls that stay constant beyond one horizon per job.

    Parameters
    ----------
    horizon : (n_jobs,) array
        Iterations ahead from which the fall of each job is constant.
    fall : (n_jobs, n_horizons) array
    horizons : (n_horizons,) array
        Iterations ahead of the columns of `fall`.

    Returns
    -------
    (n_jobs, n_horizons) array
    """
    right = np.clip(np.searchsorted(horizons, horizon), 1, len(horizons) - 1)
    left, row = right - 1, np.arange(len(fall))
    part = np.clip((horizon - horizons[left]) / (horizons[right] - horizons[left]), 0.0, 1.0)
    most: FloatArray = fall[row, left] * (1.0 - part) + fall[row, right] * part
    return np.minimum(fall, most[:, None])
