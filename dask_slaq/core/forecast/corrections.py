"""Corrections of forecasts by what is known besides the reports: typical curves, and ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.history import POWERS
from dask_slaq.core.forecast.hull import concave_hull
from dask_slaq.core.forecast.types import Forecast, Status
from dask_slaq.core.job_arrays import BoolArray, FloatArray, IntArray

#: Iterations in which a typical curve falls by half of its range.
USUAL = 10.0


def as_usual(
    first: FloatArray, level: FloatArray, total: IntArray, horizons: FloatArray = HORIZONS
) -> FloatArray:
    """Return falls (n_jobs, n_horizons) of typical curves through the first and the present loss.

    Without a fall so far, the remaining fall is the absolute loss: an arbitrary choice, which
    cancels in normalized losses.
    """
    done = total[:, None].astype(np.float64) - 1.0
    fallen = np.maximum(first - level, 0.0)[:, None]
    rest = np.where(fallen > 0, fallen * USUAL / np.maximum(done, 1.0), _size(level)[:, None])
    return rest * _usual_part(done, horizons)


def _size(level: FloatArray) -> FloatArray:
    """Return what stands for the ranges (n_jobs,) of losses that have not changed."""
    return np.where(np.abs(level) > 0, np.abs(level), 1.0)


def unchanged(level: FloatArray, total: IntArray) -> FloatArray:
    """Return by how much losses that were `total` times at `level` may differ at the horizons.

    A plateau may end at any time, and is as likely to last as long again.
    """
    part = np.minimum(HORIZONS / np.maximum(total, 1)[:, None], 1.0)
    width: FloatArray = _size(level)[:, None] * part
    return width


def _usual_part(done: FloatArray, horizons: FloatArray = HORIZONS) -> FloatArray:
    """Return the fraction of its remaining fall that a typical curve makes by each horizon.

    It falls by ``k / (k + USUAL)`` of its range in k iterations; `done` (n_jobs, 1) are over.
    """
    return horizons / (horizons + done + USUAL)


def unreported(forecast: Forecast, done: FloatArray) -> Forecast:
    """Return forecasts in which jobs without reports and forecasts follow a typical curve.

    It has a range of 1, and `done` (n_jobs,) estimated iterations are over: a job that never
    reports is assumed to converge while it works, so that it does not stay ahead of the others.
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
    """Return forecasts that are constant after the last iteration, `ahead` (n_jobs,) or inf."""
    some = np.flatnonzero(ahead <= forecast.horizons[-1])
    if not len(some):
        return forecast
    reduction, remaining = forecast.reduction.copy(), forecast.remaining.copy()
    reduction[some] = hold_beyond(ahead[some], reduction[some], forecast.horizons)
    remaining[some] = reduction[some, -1]
    return replace(forecast, reduction=reduction, remaining=remaining)


def in_logs(forecast: Forecast, target: FloatArray) -> tuple[Forecast, FloatArray]:
    """Return forecasts and targets (n_jobs,) in logs where a loss fell by powers of ten.

    Of a range from 1e26 nothing would be left at 1e8, also of a loss that ends at 1e-4. It falls by
    no more powers than on a typical curve: of a forecast of zero there are any number.
    """
    logs = (forecast.level > 0) & (forecast.start / POWERS > forecast.level)
    if not logs.any():
        return forecast, target
    size = np.where(logs, forecast.level, 1.0)
    start, level = (np.log(x, out=x.copy(), where=logs) for x in (forecast.start, forecast.level))
    with np.errstate(divide="ignore"):  # infinite at zero
        target = np.log(np.maximum(target, 0.0), out=target.copy(), where=logs)
        fall = -np.log1p(-np.minimum(forecast.reduction[logs] / size[logs, None], 1.0))
    usual = as_usual(start[logs], level[logs], forecast.n_reports[logs], forecast.horizons)
    reduction, remaining = forecast.reduction.copy(), forecast.remaining.copy()
    reduction[logs] = concave_hull(forecast.horizons, np.minimum(fall, usual))
    remaining[logs] = reduction[logs, -1]
    largest = np.where(logs, 0.0, forecast.largest_change)  # not known of logs
    values = start, reduction, level, remaining, largest, forecast.noise / size
    names = "start", "reduction", "level", "remaining", "largest_change", "noise"
    return replace(forecast, **dict(zip(names, values, strict=True))), target


def diverging(forecast: Forecast, where: BoolArray) -> Forecast:
    """Return forecasts without any fall `where` (n_jobs,) losses can no longer be used."""
    if not where.any():
        return forecast
    return replace(
        forecast,
        # Without a usable loss nothing has fallen.
        start=np.where(where & (forecast.n_reports == 0), np.nan, forecast.start),
        reduction=np.where(where[:, None], 0.0, forecast.reduction),
        remaining=np.where(where, 0.0, forecast.remaining),
        status=np.where(where, int(Status.DIVERGING), forecast.status),
    )


def hold_beyond(
    horizon: FloatArray, fall: FloatArray, horizons: FloatArray = HORIZONS
) -> FloatArray:
    """Return falls (n_jobs, n_horizons) that are constant beyond a `horizon` (n_jobs,)."""
    return np.minimum(fall, at_horizon(horizon, fall, horizons)[:, None])


def at_horizon(
    ahead: FloatArray, values: FloatArray, horizons: FloatArray = HORIZONS
) -> FloatArray:
    """Return the values (n_jobs,) at iterations `ahead` (n_jobs,), from those at the horizons."""
    right = np.clip(np.searchsorted(horizons, ahead), 1, len(horizons) - 1)
    left, row = right - 1, np.arange(len(values))
    part = np.clip((ahead - horizons[left]) / (horizons[right] - horizons[left]), 0.0, 1.0)
    return values[row, left] * (1.0 - part) + values[row, right] * part


def first_at(needed: FloatArray, rising: FloatArray, horizons: FloatArray) -> FloatArray:
    """Return the iterations (n_jobs,) after which `rising` (n_jobs, n_horizons) are as `needed`.

    They lie within `horizons`, also where less or more is needed than there is.
    """
    right = np.clip((rising < needed[:, None]).sum(axis=1), 1, len(horizons) - 1)
    row = np.arange(len(needed))
    low, high = rising[row, right - 1], rising[row, right]
    gone = np.clip(needed, low, high) - low
    part = np.divide(gone, high - low, out=np.zeros(len(needed)), where=high > low)
    ahead: FloatArray = horizons[right - 1] + part * (horizons[right] - horizons[right - 1])
    return ahead
