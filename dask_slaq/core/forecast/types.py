"""Interfaces of forecasts and of predictors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray


class FitStatus(IntEnum):
    """Basis of a forecast: a typical curve, the job's own curve, or none while the loss rises."""

    TOO_FEW_REPORTS = 0
    OK = 1
    DIVERGING = 2


@dataclass(frozen=True)
class Forecast:
    """Forecasts of several jobs as of the last fit, in the raw loss units of each job.

    Attributes
    ----------
    horizons : (n_horizons,) array
        Iterations ahead, increasing from 0. Beyond the last one, `reduction` is held constant.
    reduction : (n_jobs, n_horizons) array
        Predicted fall from `level`: 0 at horizon 0, nondecreasing, concave, finite. It includes
        a fall that the reports cannot rule out, larger with more noise and smaller with more
        reports, so a noisy job is never predicted to gain nothing at all.
    start : (n_jobs,) array
        Loss at the first report, nan before it.
    level : (n_jobs,) array
        Present loss, smoothed if reports are noisy, nan before the first report.
    remaining : (n_jobs,) array
        Predicted total fall still to come, at least the last column of `reduction`.
    largest_change : (n_jobs,) array
        Largest absolute change between two successive reports so far.
    noise : (n_jobs,) array
        Standard deviation of the noise of one report.
    n_reports : (n_jobs,) array of int
        Reports that the forecast is based on.
    status : (n_jobs,) array of int
        Values of `FitStatus`.
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
    """Interface of a loss predictor, as used by `Engine` and `SlaqPlugin`.

    The engine calls `add` when a job that reports losses arrives, `report` after each of its
    iterations and `remove` when it ends. Each decision calls `fit`, then `forecast`. On a cluster
    all calls run on the scheduler's event loop.

    Losses are floats in the raw units of their job, which may differ between jobs. The engine
    checks names before it calls a predictor; methods raise `UnknownJob` for a job that is not
    followed. It passes only finite losses on, up to 1e300; other reports only count as iterations.
    A curve that cannot be fitted is marked in `Forecast.status`: an exception in a decision makes
    the plugin fall back to plain Dask. `LossPredictor` is the default implementation; pass another
    one as ``SlaqPlugin(predictor=...)``. ``examples/plug_in`` has a short one.
    """

    def add(self, job: str, *, target: float | None = None) -> None:
        """Start to follow a job.

        Parameters
        ----------
        job : str
            Name of the job, not followed yet. It may be reused after `remove`.
        target : float, optional
            Loss that the job should reach. It may serve as the asymptote of its curve.
        kind : Kind, optional
            A predictor that remembers past runs may have this parameter, too. It is passed only to
            those that have it, and only if it is known.

        Raises
        ------
        DuplicateJob
            If `job` is followed already.
        """

    def remove(self, job: str) -> None:
        """Forget a job and everything that it reported."""

    def report(self, job: str, loss: float) -> None:
        """Store the loss after the next iteration of a job.

        This runs once per iteration of each job, so it must be O(1): leave the work to `fit`.

        Parameters
        ----------
        job : str
            A job that is followed.
        loss : float
            Its loss, in raw units, finite. Reports are at even distances, of one iteration or more.
        """

    def fit(self) -> int:
        """Update the forecasts of the jobs that reported since the last call.

        This runs once per decision, also when there are no jobs, and blocks the scheduler. Its
        time must be bounded, at a few milliseconds per thousand jobs. It returns the number of jobs
        that were refitted, which the engine ignores.
        """

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of some jobs as of the last fit.

        Parameters
        ----------
        jobs : sequence of str
            Jobs that are followed, in any order; may be empty. The engine passes the same tuple
            again until a job arrives or ends.

        Returns
        -------
        Forecast
            Row i of each array belongs to ``jobs[i]``; `Forecast` lists what must hold. Where
            `remaining` is 0 before the first report, the engine assumes a typical curve, see
            `unreported`. A job that is predicted not to fall gets only its floor and leftover
            threads. The predictor must not modify the arrays afterwards.
        """


#: Horizons of every forecast, in iterations ahead: dense near the present, then roughly geometric.
HORIZONS: FloatArray = np.array(
    [
        *(0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 47, 60, 78, 100, 150, 220, 330, 500),
        *(750, 1100, 1700, 2500, 3800, 5700, 8500, 13e3, 20e3, 30e3, 45e3, 67e3, 100e3),
    ]
)


def interpolation(at: FloatArray, grid: FloatArray) -> FloatArray:
    """Return the matrix (n_grid, n_at) that interpolates values on `grid` linearly at `at`."""
    return np.stack([np.interp(at, grid, unit) for unit in np.eye(len(grid))])


class CurveForecast(NamedTuple):
    """Forecasts of several jobs by one expert, in the units of a `NormalizedWindow`."""

    level: FloatArray  # (n_jobs,) present loss
    #: (n_jobs, n_horizons) fall from `level`: 0 at horizon 0, nondecreasing, concave up to rounding
    fall: FloatArray


def concave_hull(x: FloatArray, table: FloatArray) -> FloatArray:
    """Return the upper concave hull (n, n_points) of each row of `table` at rising `x`."""
    slope = np.diff(table, axis=1) / np.diff(x)
    bent = (np.diff(slope, axis=1) > 1e-15 * np.abs(slope[:, :-1])).any(axis=1)
    hull = table.copy()
    for i in np.flatnonzero(bent):
        corner = _corners(x.tolist(), table[i].tolist())
        hull[i] = np.interp(x, x[corner], table[i, corner])
    return hull


def _corners(x: list[float], y: list[float]) -> list[int]:
    """Return the corners of the upper hull of one row, by Andrew's monotone chain."""
    corner: list[int] = []
    for k in range(len(x)):
        while len(corner) > 1:
            i, j = corner[-2], corner[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) > (y[k] - y[j]) * (x[j] - x[i]):
                break
            corner.pop()
        corner.append(k)
    return corner
