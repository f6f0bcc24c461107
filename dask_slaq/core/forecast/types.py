"""Forecasts of several jobs, and what is known of them beside the reports.

A curve of which nothing is known is taken to fall as curves usually do; none falls after its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.curve_forecast import HORIZONS

__all__ = ["Forecast", "Predictor", "Status", "as_usual", "ending", "hold_beyond", "unreported"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Iterations in which a curve usually falls by half of its range.
USUAL = 10.0


class Status(IntEnum):
    """What a forecast rests on."""

    TOO_FEW_REPORTS = 0
    OK = 1
    DIVERGING = 2


@dataclass(frozen=True)
class Forecast:
    """Forecasts of several jobs, as of the last fit; losses in the raw units of each job.

    Attributes
    ----------
    horizons : (n_horizons,) array
        Iterations ahead, increasing from 0.
    reduction : (n_jobs, n_horizons) array
        Predicted fall from `level`: 0 at 0, nondecreasing, concave, finite. Part of it is what
        the reports cannot rule out, more with their noise and less with their number: a noisy
        job is never said to gain nothing at all.
    start : (n_jobs,) array
        Loss at the first report, nan before it.
    level : (n_jobs,) array
        Present loss, smoothed as far as noise demands, nan before the first report.
    remaining : (n_jobs,) array
        Predicted total still to fall, at least the last reduction.
    largest_change : (n_jobs,) array
        Largest change between two successive reports so far.
    noise : (n_jobs,) array
        Standard deviation of the noise of one report.
    n_reports : (n_jobs,) array
    status : (n_jobs,) array of `Status` values
    """

    horizons: FloatArray
    reduction: FloatArray
    start: FloatArray
    level: FloatArray
    remaining: FloatArray
    largest_change: FloatArray
    noise: FloatArray
    n_reports: IntArray
    status: IntArray


class Predictor(Protocol):
    """What the engine asks of a loss predictor; see `LossPredictor`."""

    def add(self, job: str, *, target: float | None = None) -> None: ...
    def remove(self, job: str) -> None: ...
    def report(self, job: str, loss: float) -> None: ...
    def fit(self) -> int: ...
    def forecast(self, jobs: Sequence[str]) -> Forecast: ...


def as_usual(first: FloatArray, level: FloatArray, total: IntArray) -> FloatArray:
    """Falls (n_jobs, n_horizons) of jobs of whose curves nothing is known but how they began.

    Without a fall yet, the range is in arbitrary units, of which normalized losses are free.
    """
    done = total[:, None].astype(np.float64) - 1.0
    fallen = np.maximum(first - level, 0.0)[:, None]
    usual = np.where(np.abs(level) > 0, np.abs(level), 1.0)[:, None]
    rest = np.where(fallen > 0, fallen * USUAL / np.maximum(done, 1.0), usual)
    return rest * _usual_part(done)


def _usual_part(done: FloatArray, horizons: FloatArray = HORIZONS) -> FloatArray:
    """Part of what is left that a curve usually falls, `done` (n_jobs, 1) iterations after its
    start: by ``k / (k + USUAL)`` of its range in the first k."""
    part: FloatArray = horizons / (horizons + done + USUAL)
    return part


def unreported(forecast: Forecast, done: FloatArray) -> Forecast:
    """Forecasts in which jobs that have not reported fall as curves usually do.

    Parameters
    ----------
    forecast : Forecast
    done : (n_jobs,) array
        Iterations that jobs without reports may have done.

    Returns
    -------
    Forecast
        Their ranges are 1. A job that works on without a report is taken to converge, so that it
        does not go before those that report for ever.
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
    """Forecasts of jobs that run `ahead` (n_jobs,) more iterations at most: inf where unknown."""
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
    """Falls (n_jobs, n_horizons) held constant from a `horizon` (n_jobs,) of each job on."""
    right = np.clip(np.searchsorted(horizons, horizon), 1, len(horizons) - 1)
    left, row = right - 1, np.arange(len(fall))
    part = np.clip((horizon - horizons[left]) / (horizons[right] - horizons[left]), 0.0, 1.0)
    most: FloatArray = fall[row, left] * (1.0 - part) + fall[row, right] * part
    return np.minimum(fall, most[:, None])
