"""Batched loss predictor: bounded memory a job, one fit for all jobs that reported.

Rule 1: forecasts change in `fit` only; a report is stored and nothing else.
Rule 2: a failed fit is a status, never a nan in disguise.
Rule 3: a factor on the losses of a job changes only units; so does a constant, but for losses that
were never negative, which are taken to be bounded by zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.forecast.backtest import Backtest
from dask_slaq.core.forecast.cache import ForecastCache
from dask_slaq.core.forecast.curve_forecast import HORIZONS, CurveForecast
from dask_slaq.core.forecast.experts import Ensemble
from dask_slaq.core.forecast.gating import GatingNetwork, blend
from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.forecast.intervals import AT, ON_TEST, Bands
from dask_slaq.core.forecast.smoothing import NormalizedWindow, normalize_window
from dask_slaq.core.forecast.types import Forecast, Status

__all__ = ["Forecast", "LossPredictor", "Status"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Larger losses are refused: differences of two must not overflow.
MAX_LOSS = 1e300
ALLOWED = f"it must be a finite number between -{MAX_LOSS:g} and {MAX_LOSS:g}"
#: Numbers that wait for the next fit, two a report; when there are more, they are taken in at once.
MOST_WAITING = 200_000
#: Jobs that are looked at together, which bounds what is held besides the tables.
BATCH = 4096
#: Jobs that are fitted at once: what fits in a processor's cache.
CHUNK = 512
#: Jobs that are fitted in one decision, or this part of all if that is more: the most urgent. The
#: others are moved along until it is their turn, so that a decision's time is bounded.
MOST_FITS, MOST_PART = 256, 16


def _batches(rows: IntArray, size: int) -> Iterator[IntArray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


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

    def __init__(self, *, window: int = 32) -> None:
        if window < 8:
            raise InvalidSetting(f"window is {window}; it must be at least 8 reports")
        self._row: dict[str, int] = {}
        self._asked: tuple[tuple[str, ...], IntArray] | None = None
        # Two numbers a report in one flat list, as that is cheapest to extend and to take in.
        self._new: list[float] = []
        self._history = Histories(window)
        self._panel = Ensemble(window, self._history.n_means)
        self._backtest = Backtest(self._panel.noise_cost)
        self._gate = GatingNetwork()
        self._cache = ForecastCache()
        self._bands = Bands()

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
        for table in (self._backtest, self._cache, self._bands):
            table.acquire()
        self._cache.column["target"][row] = np.nan if target is None else target
        self._row[job] = row
        self._asked = None

    def remove(self, job: str) -> None:
        """Forget `job`.

        Raises
        ------
        UnknownJob
            If `job` is not followed.
        """
        row = self._find(job)
        del self._row[job]
        self._asked = None
        self._take_in()
        self._cache.column["reported"][row] = False
        for table in (self._history, self._backtest, self._cache, self._bands):
            table.release(row)

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
        if not -MAX_LOSS <= value <= MAX_LOSS:
            raise NonFiniteLoss(f"job {job!r} reported the loss {loss!r}; {ALLOWED}")
        self._new += (row, value)
        if len(self._new) >= MOST_WAITING:
            self._take_in()

    def fit(self) -> int:
        """Take in what was reported since the last fit, and refit the jobs with most news.

        Returns
        -------
        int
            Jobs that were refitted.
        """
        self._take_in()
        rows = np.flatnonzero(self._cache.column["reported"])
        due = self._due(rows)
        for some in _batches(rows[~due], BATCH):
            self._cache.roll_forward(some, self._history)
        for some in _batches(rows[due], CHUNK):
            self._fit(some)
        now = self._cache.column
        for some in _batches(rows, BATCH):
            fall = now["reduction"][some[:, None], ON_TEST]
            self._bands.test(some, now["level"][some], fall, now["total"][some])
        now["reported"][rows] = False
        return int(due.sum())

    def _due(self, rows: IntArray) -> BoolArray:
        """Which of the jobs that reported are to be fitted now: the most urgent."""
        refit_priority = np.empty(len(rows))
        for some in _batches(np.arange(len(rows)), BATCH):
            self._bands.learn(rows[some], self._history)
            refit_priority[some] = self._cache.refit_priority(rows[some], self._history)
        due: BoolArray = refit_priority >= 1.0
        most = max(MOST_FITS, len(self._row) // MOST_PART)
        over = len(rows) - most
        if due.sum() > most:
            due[np.argpartition(refit_priority, over)[:over]] = False
            due[np.isinf(refit_priority)] = True
        return due

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
        rows = self._rows_of(jobs)
        history, cache = self._history.column, self._cache.column
        return Forecast(
            horizons=HORIZONS,
            reduction=cache["reduction"][rows],
            start=history["first"][rows],
            level=cache["level"][rows],
            remaining=cache["remaining"][rows],
            largest_change=history["largest"][rows],
            noise=cache["noise"][rows],
            n_reports=cache["total"][rows],
            status=cache["status"][rows],
        )

    def band(self, jobs: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """Return bounds of the losses that `jobs` will report, as of the last fit.

        Parameters
        ----------
        jobs : sequence of str

        Returns
        -------
        lower, upper : (n_jobs, n_horizons) array
            At the horizons of a `Forecast`: one report in ten is to fall below, one above.

        Raises
        ------
        UnknownJob
            If one of `jobs` is not followed.
        """
        rows = self._rows_of(jobs)
        cache = self._cache.column
        return self._bands.bounds(rows, cache["level"][rows], cache["reduction"][rows])

    def _take_in(self) -> None:
        """Move the reports that wait into the histories, all at once."""
        new = np.fromiter(self._new, np.float64, len(self._new))
        self._new.clear()
        rows, losses = new[::2].astype(np.int64), new[1::2]
        self._history.append(rows, losses)
        self._cache.column["reported"][rows] = True

    def _rows_of(self, jobs: Sequence[str]) -> IntArray:
        """Their rows; of a tuple these are remembered while the jobs stay the same."""
        if self._asked is not None and jobs is self._asked[0]:
            return self._asked[1]
        rows = np.array([self._find(job) for job in jobs], dtype=np.int64)
        if isinstance(jobs, tuple):
            self._asked = (jobs, rows)
        return rows

    def _find(self, job: str) -> int:
        try:
            return self._row[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not running") from None

    def _fit(self, rows: IntArray) -> None:
        view, beliefs = self._weigh(rows)
        self._backtest.remember(rows, view, beliefs)
        said = np.stack([np.column_stack([b.level, b.fall]) for b in beliefs])
        mix = self._gate.mix(view, said, self._backtest.log_weights(rows))
        belief = blend(said, mix, view.zero)
        self._cache.store(rows, view, self._history, belief)
        ahead = (said[:, :, 1 + AT] - said[:, :, :1]) - (belief[:, 1 + AT] - belief[:, :1])
        spread = np.sqrt((mix.weight.T[:, :, None] * ahead**2).sum(axis=0))
        raw = view.unit[:, None]
        self._bands.store(rows, view.unit * view.noise, raw * spread, raw * belief[:, 1 + AT])

    def _weigh(self, rows: IntArray) -> tuple[NormalizedWindow, list[CurveForecast]]:
        """Ask the experts, and score them: by a forecast in hindsight where there is none of late.

        The jobs and those in hindsight are asked together, which saves half of the calls.
        """
        back = self._backtest.behind(rows, self._history.column["count"][rows])
        some = np.flatnonzero(back)
        again = rows[some]
        now, then = slice(len(rows)), slice(len(rows), None)
        both = normalize_window(
            self._history,
            np.concatenate([rows, again]),
            np.concatenate([np.zeros_like(back), back[some]]),
        )
        beliefs, view = self._panel.ask(both), both.of(now)
        self._backtest.score(rows, view)
        if len(again):
            self._backtest.remember(again, both.of(then), [b.of(then) for b in beliefs])
            self._backtest.score(again, view.of(some))
        return view, [b.of(now) for b in beliefs]
