"""Batched loss predictor: bounded memory a job, one fit for all jobs that reported.

Rule 1: forecasts change in `fit` only; a report is stored and nothing else.
Rule 2: a failed fit is a status, never a nan in disguise.
Rule 3: a constant added to a job's losses, or one they are multiplied by, changes only units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import nan

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.backtest import Backtest
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.experts import HORIZONS, Panel
from dask_slaq.core.history import Histories, Rows
from dask_slaq.core.view import MOST, View, look

__all__ = ["Forecast", "LossPredictor", "Status"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Reports before a curve is extrapolated.
MIN_REPORTS = 4
#: Larger losses are refused: differences of two must not overflow.
MAX_LOSS = 1e300
ALLOWED = f"it must be a finite number between -{MAX_LOSS:g} and {MAX_LOSS:g}"
#: A forecast carries this many iterations, and so many more for each report.
REACH, REACH_PER_REPORT = 60.0, 5.0
#: Share of the window's span that no job is denied, but one that diverges.
DOUBT = 1e-3
#: Jobs that are fitted at once: what fits in a processor's cache.
CHUNK = 256


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


class LossPredictor:
    """Predicts how far the loss of each job falls in the iterations to come.

    Parameters
    ----------
    window : int
        Reports kept of each job, at least 8.

    Notes
    -----
    Several experts forecast each curve, weighted by how their earlier forecasts held. Memory
    is bounded: beside the window, a run's start, extremes and coarse means are kept.
    """

    def __init__(self, *, window: int = 64) -> None:
        if window < 8:
            raise InvalidSetting(f"window is {window}; it must be at least 8 reports")
        self._row: dict[str, int] = {}
        self._dirty: set[int] = set()
        self._history = Histories(window)
        self._panel = Panel(window, self._history.n_means)
        self._backtest = Backtest(self._panel.noise_cost)
        self._fits = Rows(
            {
                "target": ((), np.float64, np.nan),
                "reduction": ((len(HORIZONS),), np.float64, 0.0),
                "level": ((), np.float64, np.nan),
                "remaining": ((), np.float64, 0.0),
                "noise": ((), np.float64, 0.0),
                "status": ((), np.int64, int(Status.TOO_FEW_REPORTS)),
                "total": ((), np.int64, 0),
            }
        )

    def add(self, job: str, *, target: float | None = None) -> None:
        """Start to follow `job`.

        Parameters
        ----------
        job : str
        target : float, optional
            Loss the job should reach: the asymptote of its range until it can be extrapolated.

        Raises
        ------
        DuplicateJob
            If `job` is followed already.
        NonFiniteLoss
            If `target` is not a finite number of at most 1e300 in magnitude.
        """
        if job in self._row:
            raise DuplicateJob(f"job {job!r} is running already; each job needs its own name")
        if target is not None and not abs(target) <= MAX_LOSS:
            raise NonFiniteLoss(f"the target of job {job!r} is {target!r}; {ALLOWED}")
        row = self._history.acquire()
        # The tables take and free rows together, so they agree on the number.
        self._backtest.acquire()
        self._fits.acquire()
        self._fits.column["target"][row] = np.nan if target is None else target
        self._row[job] = row

    def remove(self, job: str) -> None:
        """Forget `job`.

        Raises
        ------
        UnknownJob
            If `job` is not followed.
        """
        row = self._find(job)
        del self._row[job]
        self._dirty.discard(row)
        self._history.release(row)
        self._backtest.release(row)
        self._fits.release(row)

    def report(self, job: str, loss: float) -> None:
        """Store the loss of the next iteration of `job`; it counts from the next fit on.

        Parameters
        ----------
        job : str
        loss : float

        Raises
        ------
        UnknownJob
            If `job` is not followed.
        NonFiniteLoss
            If `loss` is not a finite number of at most 1e300 in magnitude.
        """
        row = self._find(job)
        try:
            value = float(loss)
        except (TypeError, ValueError, OverflowError):
            value = nan
        if not abs(value) <= MAX_LOSS:
            raise NonFiniteLoss(f"job {job!r} reported the loss {loss!r}; {ALLOWED}")
        self._history.append(row, value)
        self._dirty.add(row)

    def fit(self) -> int:
        """Refit the jobs that reported since the last fit.

        Returns
        -------
        int
        """
        rows = np.array(sorted(self._dirty), dtype=np.int64)
        self._dirty.clear()
        for start in range(0, len(rows), CHUNK):
            self._fit(rows[start : start + CHUNK])
        return len(rows)

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of `jobs`, in that order, as of the last fit.

        Parameters
        ----------
        jobs : sequence of str

        Returns
        -------
        Forecast

        Raises
        ------
        UnknownJob
            If one of `jobs` is not followed.
        """
        rows = np.array([self._find(job) for job in jobs], dtype=np.int64)
        history, fits = self._history.column, self._fits.column
        return Forecast(
            horizons=HORIZONS,
            reduction=fits["reduction"][rows],
            start=history["first"][rows],
            level=fits["level"][rows],
            remaining=fits["remaining"][rows],
            largest_change=history["largest"][rows],
            noise=fits["noise"][rows],
            n_reports=fits["total"][rows],
            status=fits["status"][rows],
        )

    def _find(self, job: str) -> int:
        try:
            return self._row[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not running") from None

    def _fit(self, rows: IntArray) -> None:
        view = look(self._history, rows, np.zeros(len(rows), dtype=np.int64))
        self._weigh(rows, view)
        beliefs = self._panel.ask(view)
        self._backtest.remember(rows, view, beliefs)
        weight = self._backtest.weights(rows).T
        level = sum(w * b.level for w, b in zip(weight, beliefs, strict=True))
        fall = sum(w[:, None] * b.fall for w, b in zip(weight, beliefs, strict=True))
        fall = _hold_beyond_reach(np.minimum(fall, MOST), view.total)
        self._store(rows, view, view.newest + view.unit * level, view.unit[:, None] * fall)

    def _weigh(self, rows: IntArray, view: View) -> None:
        """Score the experts, by a forecast in hindsight where there is none of late."""
        self._backtest.score(rows, view)
        back = self._backtest.behind(rows, view.total)
        some = back > 0
        if some.any():
            past = look(self._history, rows[some], back[some])
            self._backtest.remember(rows[some], past, self._panel.ask(past))
            self._backtest.score(rows[some], view.of(some))

    def _store(self, rows: IntArray, view: View, level: FloatArray, fall: FloatArray) -> None:
        """Judge the forecasts, level and fall in raw units, and keep them."""
        fits, history = self._fits.column, self._history.column
        first, lowest = history["first"][rows], history["lowest"][rows]
        noise = view.unit * view.noise
        latest = view.newest + view.unit * view.losses[:, :3].min(axis=1)
        diverging = latest - lowest > 0.5 * (first - lowest) + 3.0 * noise
        status = np.where(diverging, int(Status.DIVERGING), int(Status.OK))
        status[view.total < MIN_REPORTS] = Status.TOO_FEW_REPORTS
        fall[diverging] = 0.0
        span = np.where(diverging, 0.0, view.unit * np.ptp(view.losses, axis=1))
        fall += _exploration(view.total, noise, span)
        remaining = fall[:, -1].copy()
        hint = level - fits["target"][rows]
        hinted = (status != Status.OK) & (hint > 0)
        patience = np.maximum(view.total[hinted, None], 10.0)
        fall[hinted] = hint[hinted, None] * (HORIZONS / (HORIZONS + patience))
        remaining[hinted] = hint[hinted]
        fits["reduction"][rows] = np.maximum.accumulate(fall, axis=1)
        fits["remaining"][rows] = np.maximum(remaining, fits["reduction"][rows, -1])
        fits["level"][rows] = level
        fits["noise"][rows] = noise
        fits["status"][rows] = status
        fits["total"][rows] = view.total


def _exploration(total: IntArray, noise: FloatArray, span: FloatArray) -> FloatArray:
    """Fall that the reports cannot rule out, added so that no job is given up.

    n noisy reports show a slope to noise * sqrt(12 / n^3): a fall of noise * sqrt(12 / n)
    over as many iterations again would go unseen.
    """
    unseen = noise * np.sqrt(12.0 / total) + DOUBT * span
    return unseen[:, None] * (HORIZONS / (HORIZONS + total[:, None]))


def _hold_beyond_reach(fall: FloatArray, total: IntArray) -> FloatArray:
    """Hold forecasts constant from where the history no longer carries them."""
    reach = REACH + REACH_PER_REPORT * total
    right = np.clip(np.searchsorted(HORIZONS, reach), 1, len(HORIZONS) - 1)
    left, row = right - 1, np.arange(len(fall))
    part = np.clip((reach - HORIZONS[left]) / (HORIZONS[right] - HORIZONS[left]), 0.0, 1.0)
    most: FloatArray = fall[row, left] * (1.0 - part) + fall[row, right] * part
    return np.minimum(fall, most[:, None])
