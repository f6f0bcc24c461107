"""Forecasts from past runs of like kind, in units of their own range.

Each like run, also slowed down and sped up, is a hypothesis about the job. Scale and level are
fitted to the job's reports by least squares, and a hypothesis is weighted by how well it fits.
Before the first report, the weights are those of the kinds' distances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.cache import ForecastCache
from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.types import Status
from dask_slaq.core.memory import MOST_LIKE, N_BINS, Kind, PastRuns, Run, Traces, kernel, shape_of
from dask_slaq.core.memory import middles as bin_middles
from dask_slaq.core.rows import Rows

__all__ = ["FromMemory", "MemoryForecast", "concave"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Factors on the number of iterations of a like run, and the standard deviation of their logs.
STRETCHES: FloatArray = 2.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
STRETCH_SPREAD = 0.3
N_STRETCHES, AS_IS = len(STRETCHES), 2
N_HYPOTHESES = MOST_LIKE * N_STRETCHES
#: Error of a like run's curve relative to the job's fall so far, and reports beyond which further
#: ones are not counted as independent: curves differ by smooth errors, not by noise.
MODEL_ERROR, INDEPENDENT = 0.1, 4.0
#: Minimum standard deviation of the log of a job's range, as expected from like runs.
RANGE_SPREAD = 0.25
#: Widest standard deviation of that log: what is assumed when like runs tell nothing of it.
ANY_RANGE = 2.0
#: Minimum standard deviation of the log of a job's first loss as expected from like runs, and
#: maximum squared deviations by which a first loss counts as misfit.
FIRST_SPREAD, STRANGEST = 0.25, 4.0
#: Misfit at which memory and reports count alike, and trust below which memory is not asked.
DOUBTFUL, STEEP, LEAST_TRUST = 1.0, 4.0, 0.05
MIDDLES: FloatArray = bin_middles()


class MemoryForecast(NamedTuple):
    """Forecasts of several jobs from their like runs, in raw loss units."""

    fall: FloatArray  # (n_jobs, n_horizons) as in a `Forecast`
    remaining: FloatArray  # (n_jobs,)
    misfit: FloatArray  # (n_jobs,) mean squared error of the best hypothesis over what is expected


class FromMemory:
    """Hypotheses about jobs of known kind, one row per job. See `LossPredictor`.

    Parameters
    ----------
    memory : PastRuns
    """

    def __init__(self, memory: PastRuns) -> None:
        self._memory = memory
        self._slot: dict[int, int] = {}
        self._slot_of = np.full(0, -1, dtype=np.int64)
        self.traces = Traces()
        self._table = Rows(
            {
                "n_like": ((), np.int64, 0),
                # Fraction of its range by which each hypothesis has fallen in each bin.
                "fallen": ((N_HYPOTHESES, N_BINS), np.float32, 0.0),
                "log_prior": ((N_HYPOTHESES,), np.float64, -np.inf),
                # Expected log of the range, relative to the first loss or absolute.
                "log_range": ((N_HYPOTHESES,), np.float64, 0.0),
                "relative": ((), np.bool_, False),
                # Expected log of the first loss if it is > 0, and its standard deviation.
                "log_first": ((), np.float64, 0.0),
                "first_spread": ((), np.float64, np.inf),
                "range_spread": ((), np.float64, ANY_RANGE),
            }
        )

    def add(self, row: int, kind: Kind) -> FloatArray | None:
        """Add the job in a row of the predictor.

        Parameters
        ----------
        row : int
        kind : Kind

        Returns
        -------
        (n_horizons,) array or None
            Falls from before the first report, in units of the job's range; None if no run is
            like it.
        """
        slot = self.traces.acquire()
        self._table.acquire()  # both tables acquire and release together, so rows agree
        self._slot[row] = slot
        if row >= len(self._slot_of):
            grown = np.full(max(16, 2 * row), -1, dtype=np.int64)
            grown[: len(self._slot_of)] = self._slot_of
            self._slot_of = grown
        self._slot_of[row] = slot
        shaped = []
        for run, apart in self._memory.like(kind, most=MOST_LIKE):
            shape = shape_of(run) if run.outcome == "done" else None
            if shape is not None:
                shaped.append((run, apart, *shape))
        if not shaped:
            return None
        weight = kernel([apart for _, apart, _, _ in shaped])
        column = self._table.column
        column["n_like"][slot] = len(shaped)
        spread = np.log(STRETCHES) / STRETCH_SPREAD
        prior = np.log(weight)[:, None] - 0.5 * spread**2
        n = prior.size
        column["log_prior"][slot, :n] = prior.ravel()
        for i, (_, _, iteration, fallen) in enumerate(shaped):
            at = 1.0 + (MIDDLES - 1.0) / STRETCHES[:, None]
            column["fallen"][slot, i * N_STRETCHES : (i + 1) * N_STRETCHES] = np.interp(
                at, iteration, fallen
            )
        self._expect_range(slot, [run for run, *_ in shaped], weight)
        by_run = column["fallen"][slot, AS_IS:n:N_STRETCHES].astype(np.float64)
        return concave(weight @ by_run @ _interpolation(HORIZONS).T)

    def _expect_range(self, slot: int, runs: list[Run], weight: FloatArray) -> None:
        """Store what ranges the like runs let expect, relative to the first loss if it is > 0."""
        first = np.array([run.loss[0] for run in runs], dtype=np.float64)
        lowest = np.array([np.min(run.loss) for run in runs], dtype=np.float64)
        relative = bool((lowest >= 0).all() and (first > 0).all())
        log_range = np.log(first - lowest) - (np.log(first) if relative else 0.0)
        mean = float(weight @ log_range)
        n = len(runs) * N_STRETCHES
        column = self._table.column
        column["log_range"][slot, :n] = np.repeat(log_range, N_STRETCHES)
        column["relative"][slot] = relative
        column["first_spread"][slot] = np.inf
        if relative:
            logs = np.log(first)
            column["log_first"][slot] = level = weight @ logs
            spread = weight @ (logs - level) ** 2 + FIRST_SPREAD**2
            column["first_spread"][slot] = np.sqrt(spread)
        # One run tells its range, but not how much the ranges of such runs differ.
        spread = np.sqrt(float(weight @ (log_range - mean) ** 2) + RANGE_SPREAD**2 / len(runs))
        column["range_spread"][slot] = np.clip(spread, RANGE_SPREAD, ANY_RANGE)

    def remove(self, row: int) -> None:
        """Forget the job in a row."""
        slot = self._slot.pop(row, None)
        if slot is not None:
            self._slot_of[row] = -1
            self.traces.release(slot)
            self._table.release(slot)

    def append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append reports; those of jobs without a kind are ignored. See `Histories.append`."""
        if not self._slot:
            return
        slots = self._slots(rows)
        some = slots >= 0
        if some.any():
            self.traces.append(slots[some], losses[some])

    def likeness(self, row: int) -> int:
        """Return the number of runs like the job in a row."""
        slot = self._slot.get(row)
        return 0 if slot is None else self._table.column["n_like"].item(slot)

    def curve(self, row: int) -> tuple[IntArray, FloatArray] | None:
        """Return the loss curve of the job in a row, thinned; None if its kind is not known."""
        slot = self._slot.get(row)
        return None if slot is None else self.traces.curve(slot)

    def known(self, rows: IntArray) -> IntArray:
        """Return the positions in `rows` of the jobs that have like runs."""
        slots = self._slots(rows)
        like = self._table.column["n_like"]
        return np.flatnonzero((slots >= 0) & (like[slots] > 0)) if len(like) else slots[:0]

    def _slots(self, rows: IntArray) -> IntArray:
        slots = np.full(len(rows), -1, dtype=np.int64)
        inside = rows < len(self._slot_of)
        slots[inside] = self._slot_of[rows[inside]]
        return slots

    def mix(self, rows: IntArray, cache: ForecastCache) -> None:
        """Mix forecasts from memory into those that the reports alone give.

        Parameters
        ----------
        rows : (n_jobs,) array of int
            Jobs with reports, whose forecasts are up to date.
        cache : ForecastCache
        """
        column = cache.column
        rows = rows[self.known(rows)]
        rows = rows[column["status"][rows] != Status.DIVERGING]
        if not len(rows):
            return
        found = self.forecast(rows, column["noise"][rows])
        trust = 1.0 / (1.0 + (found.misfit / DOUBTFUL) ** STEEP)
        trust[trust < LEAST_TRUST] = 0.0
        column["reduction"][rows] += trust[:, None] * (found.fall - column["reduction"][rows])
        column["remaining"][rows] += trust * (found.remaining - column["remaining"][rows])
        column["status"][rows] = Status.OK

    def forecast(self, rows: IntArray, noise: FloatArray) -> MemoryForecast:
        """Return forecasts from like runs.

        Parameters
        ----------
        rows : (n_jobs,) array of int
            Jobs that have like runs and reports.
        noise : (n_jobs,) array
            Standard deviation of the noise of one report.
        """
        slots = self._slots(rows)
        column = self._table.column
        n_used = N_STRETCHES * int(column["n_like"][slots].max(initial=1))
        iteration, loss, count = self.traces.means(slots)
        total = self.traces.column["count"][slots].astype(np.float64)
        fallen = column["fallen"][slots, :n_used].astype(np.float64)
        s = fallen[:, :, : loss.shape[1]].copy()
        last = np.maximum((count > 0).sum(axis=1) - 1, 0)
        row = np.arange(len(rows))
        s[row, :, last] = _at(fallen, iteration[row, last])
        # Least squares of loss = level - range * fallen, in units of the first loss's distance.
        some = count > 0
        first = loss[:, 0]
        y = np.where(some, first[:, None] - loss, 0.0)
        span = np.maximum(y.max(axis=1), -y.min(axis=1))
        log_range = (
            column["log_range"][slots, :n_used]
            + np.where(column["relative"][slots], np.log(np.maximum(np.abs(first), 1e-300)), 0.0)[
                :, None
            ]
        )
        expected = np.exp(np.clip(log_range, -690.0, 690.0))
        spread = column["range_spread"][slots][:, None]
        unit = np.maximum(span, np.maximum(1e-6 * expected.max(axis=1), 1e-300))
        y = y / unit[:, None]
        noise = noise / unit
        expected = np.clip(expected / unit[:, None], 1e-9, 1e9)
        variance = MODEL_ERROR**2 + noise[:, None] ** 2 / np.maximum(count, 1.0)
        w = np.where(some, 1.0 / variance, 0.0)
        n = some.sum(axis=1)
        w *= np.minimum(1.0, INDEPENDENT / n)[:, None]
        sw = w.sum(axis=1)
        mean_y = (w * y).sum(axis=1) / sw
        ws = np.matmul(s, w[:, :, None])[:, :, 0]
        mean_s = ws / sw[:, None]
        sxx = np.einsum("jhb,jb->jh", s * s, w) - ws * mean_s
        sxy = np.matmul(s, (w * y)[:, :, None])[:, :, 0] - ws * mean_y[:, None]
        syy = ((w * y * y).sum(axis=1) - sw * mean_y**2)[:, None]
        # The range is lognormal before the reports; one Gauss-Newton step from the least squares.
        pull = 1.0 / (spread * expected) ** 2
        size = np.maximum((sxy + pull * expected) / (np.maximum(sxx, 0.0) + pull), 1e-9)
        error = np.maximum(syy - 2.0 * size * sxy + size**2 * sxx, 0.0)
        off = np.log(size / expected) / spread
        log_weight = column["log_prior"][slots, :n_used] - 0.5 * (error + np.minimum(off**2, 50.0))
        log_weight -= log_weight.max(axis=1, keepdims=True)
        weight = np.exp(log_weight)
        weight /= weight.sum(axis=1, keepdims=True)
        misfit = (weight * (error + off**2)).sum(axis=1) / np.minimum(n, INDEPENDENT)
        # Another first loss may be due to other data. What it tells fades with the reports.
        log_first = np.log(np.maximum(first, 1e-300))
        strange = (log_first - column["log_first"][slots]) / column["first_spread"][slots]
        misfit += np.minimum(strange**2, STRANGEST) / total
        scaled = weight * size * unit[:, None]
        mixed = np.einsum("jh,jhb->jb", scaled, fallen)
        ahead = total[:, None] + HORIZONS
        to_come = _interpolate(mixed, ahead)
        fall = concave(to_come - to_come[:, :1])
        return MemoryForecast(fall, fall[:, -1].copy(), misfit)


def _place(iteration: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the bin left of each iteration, and the part of the way to the next one."""
    left = np.clip(np.searchsorted(MIDDLES, iteration, side="right") - 1, 0, N_BINS - 2)
    part = (iteration - MIDDLES[left]) / (MIDDLES[left + 1] - MIDDLES[left])
    return left, np.clip(part, 0.0, 1.0)


def _interpolate(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return curves (n, n_bins) at iterations (n, m)."""
    left, part = _place(iteration)
    row = np.arange(len(curves))[:, None]
    low = curves[row, left]
    value: FloatArray = low + part * (curves[row, left + 1] - low)
    return value


def _at(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return curves (n, m, n_bins) at one iteration (n,) per job."""
    left, part = _place(iteration)
    row = np.arange(len(curves))
    low = curves[row, :, left]
    value: FloatArray = low + part[:, None] * (curves[row, :, left + 1] - low)
    return value


def _interpolation(iteration: FloatArray) -> FloatArray:
    """Return the matrix (m, n_bins) that interpolates curves at iterations (m,)."""
    left, part = _place(iteration)
    matrix = np.zeros((len(iteration), N_BINS))
    row = np.arange(len(iteration))
    matrix[row, left] = 1.0 - part
    matrix[row, left + 1] += part
    return matrix


#: (n_horizons, n_horizons) triples of the grid are too many to try at once for long grids, so the
#: hull is found by sweeps: each point is raised to the chord of its neighbours until none is below.
def concave(fall: FloatArray) -> FloatArray:
    """Return the least concave falls at `HORIZONS` that are not below `fall`.

    Parameters
    ----------
    fall : (..., n_horizons) array
        Nondecreasing from 0.
    """
    table = np.atleast_2d(fall)
    slope = np.diff(table, axis=1) / np.diff(HORIZONS)
    bent = (np.diff(slope, axis=1) > 1e-15 * np.abs(slope[:, :-1])).any(axis=1)
    if bent.any():
        table = table.copy()
        for i in np.flatnonzero(bent):
            table[i] = _hull(table[i])
    return table.reshape(fall.shape)


def _hull(fall: FloatArray) -> FloatArray:
    """Return the upper hull of one fall, by Andrew's monotone chain."""
    x, y = HORIZONS.tolist(), fall.tolist()
    corner: list[int] = []
    for k in range(len(x)):
        while len(corner) > 1:
            i, j = corner[-2], corner[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) > (y[k] - y[j]) * (x[j] - x[i]):
                break
            corner.pop()
        corner.append(k)
    hull: FloatArray = np.interp(HORIZONS, HORIZONS[corner], fall[corner])
    return hull
