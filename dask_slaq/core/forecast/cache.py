"""Cache of the forecasts of all jobs between fits, rolled forward to the newest report."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dask_slaq.core.forecast.corrections import as_usual, hold_beyond
from dask_slaq.core.forecast.experts.basis import product
from dask_slaq.core.forecast.history import MOST_SPANS, Histories, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, FitStatus, interpolation
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray, JobArrays

#: A job is due for a refit after one report, plus one more per 16 reports so far, at most after
#: this many.
MOST_UNFITTED_REPORTS = 6
#: (n_reports, n_horizons, n_horizons): matrix n - 1 interpolates the falls at each horizon plus n
#: iterations from the falls at the horizons.
LATER: FloatArray = np.stack(
    [interpolation(HORIZONS + n, HORIZONS) for n in range(1, MOST_UNFITTED_REPORTS + 1)]
)


class ForecastCache(JobArrays):
    """Latest forecasts, one row per job, in raw loss units. Young jobs are refitted most often."""

    def __init__(self) -> None:
        super().__init__(
            {
                "target": ((), np.float64, np.nan),
                "reduction": ((len(HORIZONS),), np.float64, 0.0),
                "level": ((), np.float64, np.nan),
                "remaining": ((), np.float64, 0.0),
                "noise": ((), np.float64, 0.0),
                "status": ((), np.int32, int(FitStatus.TOO_FEW_REPORTS)),
                "total": ((), np.int32, 0),  # reports up to which the forecast is valid
                "fitted": ((), np.int32, 0),  # reports at the last fit
                "reported": ((), np.bool_, False),
                "slot": ((), np.int64, -1),  # of a job of known kind; see `FromPastRuns`
            }
        )

    def expect(self, row: int, fall: FloatArray | None) -> None:
        """Store the `fall` (n_horizons,), in units of the range, to expect before any report."""
        column = self.column
        column["reduction"][row] = 0.0 if fall is None else fall
        column["remaining"][row] = 0.0 if fall is None else fall[-1]
        column["status"][row] = FitStatus.TOO_FEW_REPORTS if fall is None else FitStatus.OK

    def refit_priority(self, rows: IntArray, history: Histories) -> FloatArray:
        """Return priorities (n_jobs,) of refits: at least 1 if due, inf before the first fit."""
        column = self.column
        count, fitted = history.column["count"][rows], column["fitted"][rows]
        age = (count - fitted) / np.minimum(1 + fitted // 16, MOST_UNFITTED_REPORTS)
        since = np.minimum(count - column["total"][rows], MOST_UNFITTED_REPORTS)
        now = column["reduction"][rows, since]  # horizon n is in column n for n <= 6
        with np.errstate(invalid="ignore"):  # the level is nan before the first fit
            error = np.abs(history.newest(rows) - (column["level"][rows] - now))
        lowest = history.column["lowest"][rows]
        fallen = np.where(history.bounds(rows)[1], lowest, history.column["first"][rows] - lowest)
        # A report is a surprise if its error exceeds the sum of this many standard deviations of
        # the noise, this fraction of the fall forecast by then, and this fraction of the whole fall
        # so far.
        news_noise, news_fall, news_range = 2.0, 0.2, 1e-4
        expected = news_noise * column["noise"][rows] + news_fall * now + news_range * fallen
        # Maximum refit priority due to a surprise; a fit is due at 1.
        most_surprising = 16.0
        surprise = np.where(error > 0, most_surprising, 0.0)
        some = np.minimum(error, most_surprising * expected)
        np.divide(some, expected, out=surprise, where=expected > 0)
        refit_priority = np.maximum(age, surprise)
        refit_priority = np.where(
            column["status"][rows] == FitStatus.OK, refit_priority, np.maximum(refit_priority, 1.0)
        )
        return np.where(fitted > 0, refit_priority, np.inf)

    def roll_forward(self, rows: IntArray, history: Histories) -> None:
        """Roll forecasts forward to the newest reports in `history`, without a fit."""
        column = self.column
        since = history.column["count"][rows] - column["total"][rows]
        while len(rows):
            for n in np.unique(since).tolist():
                self._move(rows[since == n], min(n, MOST_UNFITTED_REPORTS))
            far = since > MOST_UNFITTED_REPORTS
            self._settle(rows[~far], history)
            rows, since = rows[far], since[far] - MOST_UNFITTED_REPORTS

    def _move(self, rows: IntArray, since: int) -> None:
        """Move forecasts ahead by `since` iterations in which losses fall as predicted."""
        column = self.column
        reduction = column["reduction"][rows]
        fallen = reduction[:, since]
        # Transposed to one row per horizon, since numpy is fast along rows only.
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
        """Correct levels by the part of the newest report's error that noise does not explain."""
        column = self.column
        level, newest = column["level"][rows], history.newest(rows)
        most = 3.0 * column["noise"][rows]
        settled = newest - np.clip(newest - level, -most, most)
        # What falls by powers of ten falls in proportion to its level, which stays above zero.
        logs = history.bounds(rows)[1] & (level > 0)
        # Least level of a loss that falls by powers of ten, as a part of its newest report.
        np.maximum(settled, 0.05 * newest, out=settled, where=logs)
        part = np.divide(settled, level, out=np.ones(len(rows)), where=logs)
        column["level"][rows] = settled
        column["reduction"][rows] *= part[:, None]
        column["remaining"][rows] *= part

    def store(
        self, rows: IntArray, view: NormalizedWindow, history: Histories, curves: FloatArray
    ) -> None:
        """Store new forecasts: levels and falls (n_jobs, 1 + n_horizons) in the units of `view`."""
        column = self.column
        zero = view.newest + view.unit * view.zero
        level = np.maximum(view.newest + view.unit * curves[:, 0], zero)
        # Iterations ahead beyond which a forecast is constant: a fixed number, plus some per
        # report.
        farthest, per_report = 60.0, 5.0
        reach = farthest + per_report * view.total.astype(np.float64)
        fall = view.unit[:, None] * hold_beyond(reach, curves[:, 1:])
        noise = view.unit * view.noise
        diverging = _diverging(view, history.column["first"][rows], noise)
        status = np.where(diverging, int(FitStatus.DIVERGING), int(FitStatus.OK))
        # Reports needed to extrapolate a curve.
        status[view.total < 4] = FitStatus.TOO_FEW_REPORTS
        fall[diverging] = 0.0
        span = np.where(diverging, 0.0, view.unit * np.ptp(view.losses, axis=1))
        fall += _exploration(view.total, noise, span, fall[:, -1])
        # Part of a fall that is kept of a flat run.
        fall[_is_flat(view)] *= 0.01
        np.minimum(fall, (level - zero)[:, None], out=fall)
        few = status == FitStatus.TOO_FEW_REPORTS
        if few.any():
            usual = as_usual(history.column["first"][rows[few]], level[few], view.total[few])
            left = np.where((view.zero > -MOST_SPANS) & (level > zero), level - zero, np.inf)
            fall[few] = np.minimum(usual, left[few, None])
        np.exp(level, out=level, where=view.in_logs)
        np.multiply(noise, level, out=noise, where=view.in_logs)
        fall = np.where(view.in_logs[:, None], level[:, None] * -np.expm1(-fall), fall)
        remaining = fall[:, -1].copy()
        hint = level - column["target"][rows]
        hinted = (status != FitStatus.OK) & (hint > 0)
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


def _diverging(view: NormalizedWindow, first: FloatArray, noise: FloatArray) -> BoolArray:
    """Return where the loss is above its first one, by more than noise, and still rises."""
    latest = view.losses[:, :3].min(axis=1)
    first = np.log(first, out=first.copy(), where=view.in_logs)
    above = view.newest + view.unit * latest - first > 3.0 * noise
    known = np.arange(view.losses.shape[1]) < view.known[:, None]
    return above & (latest > _mean(view.losses, known))


def _exploration(
    total: IntArray, noise: FloatArray, span: FloatArray, forecast: FloatArray
) -> FloatArray:
    """Return the fall to add at each horizon so that no job that might still improve is given up.

    The standard error of a slope from n noisy reports is noise * sqrt(12 / n^3).
    """
    # Fraction of the window's span that every job is assumed to be able to fall, unless it
    # diverges.
    unseen = noise * np.sqrt(12.0 / total) + 1e-3 * span
    # All of `unseen` if no fall is forecast, half if an equal fall is, little if a larger one is.
    lacking = unseen * np.divide(unseen, unseen + forecast, out=0.0 * unseen, where=unseen > 0)
    return lacking[:, None] * (HORIZONS / (HORIZONS + total[:, None]))


def _is_flat(view: NormalizedWindow) -> BoolArray:
    """Return which runs (n_jobs,) show nothing but noise, from their first report to the newest."""
    half = view.means_known // 2
    column = np.arange(view.means.shape[1])
    newer = column < half[:, None]
    known = column < view.means_known[:, None]
    older = known & (column >= (view.means_known - half)[:, None])
    fallen = _mean(view.means, older) - _mean(view.means, newer)
    middle = _mean(view.means, known)
    # The noise of 27 reports is uncertain, so what the means of the whole run say counts, too.
    spread = _mean((view.means - middle[:, None]) ** 2, known) * view.stride
    noise = np.clip(np.sqrt(spread), view.noise, 2.0 * view.noise)
    error = noise * np.sqrt(2.0 / (np.maximum(half, 1) * view.stride))
    # Number of newest reports by which a run is no longer flat.
    n_newest = 8
    newest = middle - view.losses[:, :n_newest].mean(axis=1)
    # A run is flat from this many reports on if its later half is not lower than the first by this
    # many standard errors, nor its newest reports by that many.
    flat_reports, flat_halves, flat_newest = 32, 1.5, 2.0
    return (
        (view.total >= flat_reports)
        & (view.noise > 0)
        & (fallen < flat_halves * error)
        & (newest < flat_newest * noise / np.sqrt(n_newest))
    )


def _mean(values: FloatArray, where: BoolArray) -> FloatArray:
    """Return the mean (n_rows,) of some values of each row."""
    return np.where(where, values, 0.0).sum(axis=1) / np.maximum(where.sum(axis=1), 1)
