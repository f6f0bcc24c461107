"""Batched loss predictor: bounded memory a job, one fit for all jobs that reported.

Rule 1: forecasts change in `fit` only; a report is stored and nothing else.
Rule 2: a failed fit is a status, never a nan in disguise.
Rule 3: a constant added to a job's losses, or one they are multiplied by, changes only units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core import experts
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.experts import HORIZONS, Belief, View
from dask_slaq.core.history import Histories, Rows

__all__ = ["Forecast", "LossPredictor", "Status"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Reports before a curve is extrapolated.
MIN_REPORTS = 4
#: Larger losses are refused: differences of two must not overflow.
MAX_LOSS = 1e300
#: A forecast reaches this many times the length of the history, and holds from there on.
REACH = 10.0
N_EXPERTS = 5
#: Horizons at which earlier forecasts are scored.
SCORED = 9
CHUNK = 2048


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
        Predicted fall from `level`: 0 at 0, nondecreasing, concave, finite.
    start : (n_jobs,) array
        Loss at the first report, nan before it.
    level : (n_jobs,) array
        Present loss, smoothed as far as noise demands, nan before the first report.
    remaining : (n_jobs,) array
        Predicted total still to fall.
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
    """

    def __init__(self, *, window: int = 64) -> None:
        if window < 8:
            raise InvalidSetting(f"window is {window}; it must be at least 8 reports")
        n = len(HORIZONS)
        self._row: dict[str, int] = {}
        self._dirty: set[int] = set()
        self._history = Histories(window)
        self._fits = Rows(
            {
                "target": ((), np.float64, np.nan),
                "reduction": ((n,), np.float64, 0.0),
                "level": ((), np.float64, np.nan),
                "remaining": ((), np.float64, 0.0),
                "noise": ((), np.float64, 0.0),
                "status": ((), np.int64, int(Status.TOO_FEW_REPORTS)),
                "count": ((), np.int64, 0),
                "said": ((N_EXPERTS, SCORED), np.float64, 0.0),
                "said_at": ((), np.int64, 0),
                "seen_at": ((), np.int64, 0),
                "score": ((N_EXPERTS,), np.float64, 1.0),
            }
        )
        self._near = experts.Atoms(window, 0.85)
        self._long = experts.Atoms(window, 0.95)

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
        """
        if job in self._row:
            raise DuplicateJob(f"job {job!r} is running already; each job needs its own name")
        if target is not None and not (isfinite(target) and abs(target) <= MAX_LOSS):
            raise NonFiniteLoss(f"target of job {job!r} is {target!r}; it must be a finite number")
        row = self._history.acquire()
        # Both tables take and free rows together, so they agree on the number.
        assert self._fits.acquire() == row
        self._fits.column["target"][row] = np.nan if target is None else target
        self._row[job] = row

    def remove(self, job: str) -> None:
        """Forget `job`; raises `UnknownJob`."""
        row = self._find(job)
        del self._row[job]
        self._dirty.discard(row)
        self._history.release(row)
        self._fits.release(row)

    def report(self, job: str, loss: float) -> None:
        """Store the loss of the next iteration of `job`.

        Raises
        ------
        UnknownJob
            If `job` is not followed.
        NonFiniteLoss
            If `loss` is not a finite number of at most 1e300 in magnitude.
        """
        row = self._find(job)
        loss = float(loss)
        if not abs(loss) <= MAX_LOSS:
            raise NonFiniteLoss(
                f"job {job!r} reported the loss {loss!r}; it must be finite and within ±1e300"
            )
        self._history.append(row, loss)
        self._dirty.add(row)

    def fit(self) -> int:
        """Refit the jobs that reported since the last fit; return how many."""
        rows = np.array(sorted(self._dirty), dtype=np.int64)
        self._dirty.clear()
        for start in range(0, len(rows), CHUNK):
            self._fit(rows[start : start + CHUNK])
        return len(rows)

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of `jobs`, in that order, as of the last fit.

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
            n_reports=history["count"][rows],
            status=fits["status"][rows],
        )

    def _find(self, job: str) -> int:
        try:
            return self._row[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not running") from None

    def _fit(self, rows: IntArray) -> None:
        losses, known = self._history.recent(rows)
        count = self._history.column["count"][rows]
        newest = losses[:, 0].copy()
        span = losses.max(axis=1) - losses.min(axis=1)
        unit = np.where(span > 0, span, 1.0)
        view = View((losses - newest[:, None]) / unit[:, None], known, count)
        self._score(rows, losses, known, count, unit)
        beliefs = self._ask(view)
        weight = self._fits.column["score"][rows] ** -4
        weight /= weight.sum(axis=1, keepdims=True)
        level = sum(w * b.level for w, b in zip(weight.T, beliefs, strict=True))
        fall = sum(w[:, None] * b.fall for w, b in zip(weight.T, beliefs, strict=True))
        self._remember(rows, beliefs, newest, unit, count)
        noise = _noise(view)
        fall = _limit(fall, count)
        self._store(rows, newest + unit * level, unit[:, None] * fall, unit * noise, count)

    def _ask(self, view: View) -> list[Belief]:
        return [
            experts.hold(view),
            experts.geometric(view),
            experts.power(view),
            experts.varpro(view, self._near, anchored=True),
            experts.varpro(view, self._long, anchored=False),
        ]

    def _remember(
        self,
        rows: IntArray,
        beliefs: list[Belief],
        newest: FloatArray,
        unit: FloatArray,
        count: IntArray,
    ) -> None:
        """Keep the forecasts of the experts until they have been scored over a few reports."""
        fits = self._fits.column
        due = (fits["said_at"][rows] == 0) | (count - fits["said_at"][rows] >= SCORED - 1)
        said = np.stack([b.level[:, None] - b.fall[:, :SCORED] for b in beliefs], axis=1)
        said = newest[:, None, None] + unit[:, None, None] * said
        fits["said"][rows[due]] = said[due]
        fits["said_at"][rows[due]] = count[due]
        fits["seen_at"][rows] = count

    def _score(
        self, rows: IntArray, losses: FloatArray, known: IntArray, count: IntArray, unit: FloatArray
    ) -> None:
        """Compare what the experts said with the reports that came since."""
        fits = self._fits.column
        said_at, seen_at = fits["said_at"][rows], fits["seen_at"][rows]
        lead = (count - said_at)[:, None] - np.arange(losses.shape[1])  # of each report
        fresh = (np.arange(losses.shape[1]) < (count - seen_at)[:, None]) & (lead > 0)
        fresh &= (np.arange(losses.shape[1]) < known[:, None]) & (said_at > 0)[:, None]
        told = _at(fits["said"][rows], np.where(fresh, lead, 0))
        error = np.abs(told - losses[:, None, :]) / unit[:, None, None]
        n = fresh.sum(axis=1)
        error = np.where(fresh[:, None, :], error, 0.0).sum(axis=2) / np.maximum(n, 1)[:, None]
        error = error / (error.mean(axis=1, keepdims=True) + 1e-12) + 1e-3
        keep = 0.9 ** n[:, None]
        fits["score"][rows] = keep * fits["score"][rows] + (1 - keep) * error

    def _store(
        self,
        rows: IntArray,
        level: FloatArray,
        fall: FloatArray,
        noise: FloatArray,
        count: IntArray,
    ) -> None:
        fits, history = self._fits.column, self._history.column
        first, lowest = history["first"][rows], history["lowest"][rows]
        status = np.full(len(rows), int(Status.OK))
        status[level - lowest > 0.5 * (first - lowest) + 3 * noise] = Status.DIVERGING
        status[count < MIN_REPORTS] = Status.TOO_FEW_REPORTS
        fall = np.where((status == Status.DIVERGING)[:, None], 0.0, fall)
        age = HORIZONS / (HORIZONS + count[:, None])
        fallen = np.maximum(first - level, 0.0)
        fall = fall + (0.5 * noise + 1e-3 * fallen)[:, None] * age
        hint = level - fits["target"][rows]
        hinted = (status != Status.OK) & (hint > 0)
        fall = np.where(hinted[:, None], hint[:, None] * age, fall)
        fits["reduction"][rows] = fall
        fits["level"][rows] = level
        fits["remaining"][rows] = np.where(hinted, hint, fall[:, -1])
        fits["noise"][rows] = noise
        fits["status"][rows] = status
        fits["count"][rows] = count


def _at(tables: FloatArray, lead: IntArray) -> FloatArray:
    """Values of (n_jobs, n_experts, n) tables at `lead` iterations ahead, (n_jobs, ..., window)."""
    index = np.minimum(np.searchsorted(HORIZONS[:SCORED], lead), SCORED - 1)
    return np.take_along_axis(tables, index[:, None, :], axis=2)


def _noise(view: View) -> FloatArray:
    """Standard deviation of the reports about a smooth curve, from third differences."""
    third = np.diff(view.losses, n=3, axis=1)[:, :24]
    usable = np.arange(third.shape[1]) < (view.known - 3)[:, None]
    size = np.where(usable, np.abs(third), np.nan)
    some = usable.any(axis=1)
    median = np.zeros(len(view.known))
    if some.any():
        median[some] = np.nanmedian(size[some], axis=1)
    return median / (0.6745 * np.sqrt(20.0))


def _limit(fall: FloatArray, count: IntArray) -> FloatArray:
    """Hold forecasts beyond `REACH` times the history."""
    reach = REACH * count
    right = np.clip(np.searchsorted(HORIZONS, reach), 1, len(HORIZONS) - 1)
    row = np.arange(len(fall))
    left_h, right_h = HORIZONS[right - 1], HORIZONS[right]
    part = np.clip((reach - left_h) / (right_h - left_h), 0.0, 1.0)
    most = fall[row, right - 1] * (1 - part) + fall[row, right] * part
    return np.minimum(fall, most[:, None])
