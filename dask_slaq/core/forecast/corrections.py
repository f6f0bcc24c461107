"""Corrections of forecasts by what is known besides the reports: typical curves, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dask_slaq.core.forecast.history import POWERS_FACTOR
from dask_slaq.core.forecast.types import HORIZONS, FitStatus, Forecast, Predictor, concave_hull
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray

#: Iterations in which a typical curve falls by half of its range.
USUAL_ITERATIONS = 10.0


def as_usual(
    first: FloatArray, level: FloatArray, total: IntArray, horizons: FloatArray = HORIZONS
) -> FloatArray:
    """Return falls (n_jobs, n_horizons) of typical curves through the first and present loss."""
    done = total[:, None].astype(np.float64) - 1.0
    fallen = np.maximum(first - level, 0.0)[:, None]
    rest = np.where(
        fallen > 0, fallen * USUAL_ITERATIONS / np.maximum(done, 1.0), _size(level)[:, None]
    )
    return rest * _usual_part(done, horizons)


def _size(level: FloatArray) -> FloatArray:
    """Return what stands for the ranges (n_jobs,) of losses that have not changed."""
    return np.where(np.abs(level) > 0, np.abs(level), 1.0)


def unchanged(level: FloatArray, total: IntArray) -> FloatArray:
    """Return by how much losses that were `total` times at `level` may differ at the horizons."""
    part = np.minimum(HORIZONS / np.maximum(total, 1)[:, None], 1.0)
    return _size(level)[:, None] * part


def _usual_part(done: FloatArray, horizons: FloatArray = HORIZONS) -> FloatArray:
    """Return the part of its remaining fall that a typical curve makes by each horizon."""
    return horizons / (horizons + done + USUAL_ITERATIONS)


def unreported(forecast: Forecast, done: FloatArray) -> Forecast:
    """Return forecasts in which jobs without reports and forecasts follow a typical curve."""
    silent = (forecast.n_reports == 0) & (forecast.remaining == 0)
    if not silent.any():
        return forecast
    rest = USUAL_ITERATIONS / (USUAL_ITERATIONS + done)
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

    Of a range from 1e26 nothing would be left at 1e8, also of a loss that ends at 1e-4.
    """
    logs = (forecast.level > 0) & (forecast.start / POWERS_FACTOR > forecast.level)
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
        status=np.where(where, int(FitStatus.DIVERGING), forecast.status),
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
    """Return the iterations (n_jobs,), within `horizons`, after which `rising` are as `needed`."""
    right = np.clip((rising < needed[:, None]).sum(axis=1), 1, len(horizons) - 1)
    row = np.arange(len(needed))
    low, high = rising[row, right - 1], rising[row, right]
    gone = np.clip(needed, low, high) - low
    part = np.divide(gone, high - low, out=np.zeros(len(needed)), where=high > low)
    return horizons[right - 1] + part * (horizons[right] - horizons[right - 1])


#: Smallest divisor, in standard deviations of the noise of one report.
NOISE_DEVIATIONS = 2.0


def predicted_range(forecast: Forecast) -> FloatArray:
    """Return the predicted whole fall (n_jobs,) in raw loss units: so far, and still to come."""
    return _fallen(forecast) + forecast.remaining


def scale(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the divisor (n_jobs,) of losses: finite, > 0, at least twice the noise."""
    size = predicted_range(forecast)
    if normalizer == "largest-change":
        size = np.where(forecast.largest_change > 0, forecast.largest_change, size)
    # A fall below the noise is not a visible gain. Without this floor, a job that only fluctuates
    # would be measured by its own fluctuations and always have much to gain.
    size = np.maximum(size, NOISE_DEVIATIONS * forecast.noise)
    # Division by a subnormal number would overflow.
    return np.where(size >= np.finfo(np.float64).tiny, size, 1.0)


def normalized(forecast: Forecast, normalizer: str = "range") -> FloatArray:
    """Return the remaining fall (n_jobs,) divided by `scale`: at least 0, 1 if unknown.

    It is at most 1 of the range; of the largest change it may be more, as gains are.
    """
    with np.errstate(over="ignore"):
        # Largest normalized loss, in largest changes: sums of jobs stay finite.
        fraction = np.clip(forecast.remaining / scale(forecast, normalizer), 0.0, 1e9)
    diverged = (forecast.status == FitStatus.DIVERGING) & (_fallen(forecast) == 0)
    unknown = diverged | (predicted_range(forecast) < np.finfo(np.float64).tiny)
    return np.where(unknown, 1.0, fraction)


def _fallen(forecast: Forecast) -> FloatArray:
    """Return the fall from the first report to the present level; 0 before the first report."""
    fallen = np.maximum(forecast.start - forecast.level, 0.0)
    return np.where(np.isnan(fallen), 0.0, fallen)


def iterations_to_losses(
    predictor: Predictor, jobs: Sequence[str], targets: FloatArray
) -> FloatArray:
    """Return iterations (n_jobs, 3) to a raw loss, low, expected and high; inf if never."""
    jobs = list(jobs)
    forecast = predictor.forecast(jobs)
    curve = forecast.level[:, None] - forecast.reduction
    low, high = curve, curve
    if (band := getattr(predictor, "band", None)) is not None and jobs:
        lower, upper = band(jobs)
        low, high = np.fmin(lower, curve), np.fmax(upper, curve)
    found = []
    for losses in (low, curve, high):
        fallen = -np.minimum.accumulate(losses, axis=1)
        ahead = first_at(-targets, fallen, forecast.horizons)
        found.append(np.where(fallen[:, -1] < -targets, np.inf, ahead))
    known = (forecast.status == FitStatus.OK) & np.isfinite(forecast.level)
    return np.where(known[:, None], np.array(found).T, np.nan)
