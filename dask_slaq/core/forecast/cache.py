"""What is predicted of each job, kept from one fit to the next.

A job is due for a fit when its reports say something new: each time while it is young, else when
a report was not as predicted or some have come. Until it is fitted its forecast is moved along.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.basis import product
from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow
from dask_slaq.core.forecast.types import Status, as_usual, hold_beyond
from dask_slaq.core.rows import Rows

__all__ = ["ForecastCache"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Reports before a curve is extrapolated.
MIN_REPORTS = 4
#: A forecast carries this many iterations, and so many more for each report.
REACH, REACH_PER_REPORT = 60.0, 5.0
#: Share of the window's span that no job is denied, but one that diverges.
DOUBT = 1e-3
#: A job is fitted again after one report, and one more for each `MATURITY` reports that it had,
#: but `MOST_UNFITTED` at most.
MATURITY, MOST_UNFITTED = 16, 6
#: A report is news if it is off by more than so many standard deviations of the noise, and so
#: much of the fall that was forecast by then, and so much of all that the loss fell.
NEWS_NOISE, NEWS_FALL, NEWS_RANGE = 2.0, 0.2, 1e-4
#: A surprise counts for at most so many times the age at which a fit is due.
MOST_SURPRISING = 16.0
#: (MOST_UNFITTED, n_horizons, n_horizons): from the fall at each horizon to the fall until so
#: many iterations after it.
LATER: FloatArray = np.stack(
    [
        np.stack([np.interp(HORIZONS + n, HORIZONS, unit) for unit in np.eye(len(HORIZONS))])
        for n in range(1, MOST_UNFITTED + 1)
    ]
)


class ForecastCache(Rows):
    """The forecasts of the jobs, one a row; losses in raw units."""

    def __init__(self) -> None:
        super().__init__(
            {
                "target": ((), np.float64, np.nan),
                "reduction": ((len(HORIZONS),), np.float64, 0.0),
                "level": ((), np.float64, np.nan),
                "remaining": ((), np.float64, 0.0),
                "noise": ((), np.float64, 0.0),
                "status": ((), np.int32, int(Status.TOO_FEW_REPORTS)),
                "total": ((), np.int32, 0),  # reports that it rests on
                "fitted": ((), np.int32, 0),  # reports at the last fit
                "reported": ((), np.bool_, False),
            }
        )

    def refit_priority(self, rows: IntArray, history: Histories) -> FloatArray:
        """How much jobs that reported need a new fit.

        Parameters
        ----------
        rows : (n_jobs,) array
        history : Histories
            With the new reports.

        Returns
        -------
        (n_jobs,) array
            From 1 on it is due, by age or by surprise; infinite without any forecast so far.
        """
        column = self.column
        count, fitted = history.column["count"][rows], column["fitted"][rows]
        age = (count - fitted) / np.minimum(1 + fitted // MATURITY, MOST_UNFITTED)
        since = np.minimum(count - column["total"][rows], MOST_UNFITTED)
        now = column["reduction"][rows, since]  # the first horizons are 0, 1, 2, …
        with np.errstate(invalid="ignore"):  # without a forecast there is no level
            error = np.abs(history.newest(rows) - (column["level"][rows] - now))
        fallen = history.column["first"][rows] - history.column["lowest"][rows]
        expected = NEWS_NOISE * column["noise"][rows] + NEWS_FALL * now + NEWS_RANGE * fallen
        surprise = np.where(error > 0, MOST_SURPRISING, 0.0)
        some = np.minimum(error, MOST_SURPRISING * expected)
        np.divide(some, expected, out=surprise, where=expected > 0)
        refit_priority = np.maximum(age, surprise)
        refit_priority = np.where(
            column["status"][rows] == Status.OK, refit_priority, np.maximum(refit_priority, 1.0)
        )
        return np.where(fitted > 0, refit_priority, np.inf)

    def roll_forward(self, rows: IntArray, history: Histories) -> None:
        """Move the forecasts of some jobs to their newest reports.

        Parameters
        ----------
        rows : (n_jobs,) array
        history : Histories
            With the new reports.
        """
        column = self.column
        since = history.column["count"][rows] - column["total"][rows]
        while len(rows):
            for n in np.unique(since).tolist():
                self._move(rows[since == n], min(n, MOST_UNFITTED))
            far = since > MOST_UNFITTED
            self._settle(rows[~far], history)
            rows, since = rows[far], since[far] - MOST_UNFITTED

    def _move(self, rows: IntArray, since: int) -> None:
        """Move forecasts by some iterations in which losses fall as predicted."""
        column = self.column
        reduction = column["reduction"][rows]
        fallen = reduction[:, since]
        # A row is a horizon here, for numpy is quick along rows only.
        later = np.ascontiguousarray(product(reduction, LATER[since - 1]).T)
        later -= fallen
        np.maximum(later[0], 0.0, out=later[0])
        for nearer, farther in pairwise(later):
            np.maximum(nearer, farther, out=farther)
        column["reduction"][rows] = later.T
        column["level"][rows] -= fallen
        remaining = column["remaining"][rows] - fallen
        column["remaining"][rows] = np.maximum(remaining, column["reduction"][rows, -1])
        column["total"][rows] += since

    def _settle(self, rows: IntArray, history: Histories) -> None:
        """Correct levels by what noise does not explain of the newest reports."""
        column = self.column
        error = history.newest(rows) - column["level"][rows]
        most = 3.0 * column["noise"][rows]
        column["level"][rows] += error - np.clip(error, -most, most)

    def store(
        self, rows: IntArray, view: NormalizedWindow, history: Histories, belief: FloatArray
    ) -> None:
        """Judge new forecasts and keep them.

        Parameters
        ----------
        rows : (n_jobs,) array
        view : View
        history : Histories
        belief : (n_jobs, 1 + n_horizons) array
            Level, and fall at each horizon, in the units of the view.
        """
        column = self.column
        level = view.newest + view.unit * belief[:, 0]
        reach = REACH + REACH_PER_REPORT * view.total.astype(np.float64)
        fall = view.unit[:, None] * hold_beyond(reach, belief[:, 1:])
        noise = view.unit * view.noise
        diverging = self._diverging(rows, view, history, noise)
        status = np.where(diverging, int(Status.DIVERGING), int(Status.OK))
        status[view.total < MIN_REPORTS] = Status.TOO_FEW_REPORTS
        fall[diverging] = 0.0
        span = np.where(diverging, 0.0, view.unit * np.ptp(view.losses, axis=1))
        fall += _exploration(view.total, noise, span, fall[:, -1])
        zero = view.newest + view.unit * view.zero
        np.minimum(fall, np.maximum(level - zero, 0.0)[:, None], out=fall)
        few = status == Status.TOO_FEW_REPORTS
        if few.any():
            usual = as_usual(history.column["first"][rows[few]], level[few], view.total[few])
            bounded = (view.zero > -MOST) & (level > zero)
            left = np.where(bounded, level - zero, np.inf)
            fall[few] = np.minimum(usual, left[few, None])
        remaining = fall[:, -1].copy()
        hint = level - column["target"][rows]
        hinted = (status != Status.OK) & (hint > 0)
        if hinted.any():
            patience = np.maximum(view.total[hinted, None], 10.0)
            fall[hinted] = hint[hinted, None] * (HORIZONS / (HORIZONS + patience))
            remaining[hinted] = hint[hinted]
        column["reduction"][rows] = np.maximum.accumulate(fall, axis=1)
        column["remaining"][rows] = np.maximum(remaining, column["reduction"][rows, -1])
        column["level"][rows] = level
        column["noise"][rows] = noise
        column["status"][rows] = status
        column["total"][rows] = column["fitted"][rows] = view.total

    def _diverging(
        self, rows: IntArray, view: NormalizedWindow, history: Histories, noise: FloatArray
    ) -> BoolArray:
        """Where the loss rises, by half of what it fell by now, and noise does not explain it."""
        first, lowest = history.column["first"][rows], history.column["lowest"][rows]
        latest = view.newest + view.unit * view.losses[:, :3].min(axis=1)
        risen: BoolArray = latest - lowest > 0.5 * (first - lowest) + 3.0 * noise
        # The lowest may be a glitch or a start from below: what falls now is not given up.
        known = np.arange(view.losses.shape[1]) < view.known[:, None]
        mean = np.where(known, view.losses, 0.0).sum(axis=1) / view.known
        rising: BoolArray = risen & (view.losses[:, :3].min(axis=1) > mean)
        return rising


def _exploration(
    total: IntArray, noise: FloatArray, span: FloatArray, forecast: FloatArray
) -> FloatArray:
    """Fall that the reports cannot rule out, as far as it is not `forecast`: no job is given up.

    n noisy reports show a slope to noise * sqrt(12 / n^3): a fall of noise * sqrt(12 / n)
    over as many iterations again would go unseen.
    """
    unseen = noise * np.sqrt(12.0 / total) + DOUBT * span
    # All of it where no fall is forecast, half where as much is, little where more is.
    lacking = unseen * np.divide(unseen, unseen + forecast, out=0.0 * unseen, where=unseen > 0)
    return lacking[:, None] * (HORIZONS / (HORIZONS + total[:, None]))
