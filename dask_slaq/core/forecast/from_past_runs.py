"""Hypotheses: forecasts from past runs of like kind, in units of their own range.

Each like run, also slowed down and sped up, is a hypothesis about the job. Scale and level are
fitted to the job's reports by least squares, and a hypothesis is weighted by how well it fits.
Before the first report, the weights are those of the kinds' distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.cache import ForecastCache
from dask_slaq.core.forecast.types import HORIZONS, FitStatus, concave_hull
from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays
from dask_slaq.core.run_history import (
    MIDDLES,
    MOST_LIKE_RUNS,
    N_BINS,
    Kind,
    PastRun,
    PastRuns,
    Traces,
    kernel,
    shape_of,
)

#: Factors on the number of iterations of a like run.
STRETCHES: FloatArray = 2.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
N_STRETCHES, AS_IS = len(STRETCHES), STRETCHES.tolist().index(1.0)
N_HYPOTHESES = MOST_LIKE_RUNS * N_STRETCHES
#: Widest standard deviation of that log: what is assumed when like runs tell nothing of it.
ANY_DEVIATION = 2.0


@lru_cache(1000)  # runs
def _hypotheses(run: PastRun) -> NDArray[np.float32] | None:
    """Return the curves (n_stretches, n_bins) of a run; None if it tells nothing."""
    shape = shape_of(run) if run.outcome == "done" else None
    if shape is None:
        return None
    at = 1.0 + (MIDDLES - 1.0) / STRETCHES[:, None]
    return np.interp(at, *shape).astype(np.float32)


class Hypotheses:
    """Hypotheses about jobs of known kind, in the rows of their `traces`. See `FromPastRuns`."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._table = JobArrays(
            {
                "n_like": ((), np.int64, 0),
                "trust": ((), np.float64, 1.0),  # in the forecast from past runs, from 0 to 1
                # Fraction of its range by which each hypothesis has fallen in each bin.
                "fallen": ((N_HYPOTHESES, N_BINS), np.float32, 0.0),
                "log_prior": ((N_HYPOTHESES,), np.float64, -np.inf),
                # Expected log of the range, relative to the first loss or absolute.
                "log_range": ((N_HYPOTHESES,), np.float64, 0.0),
                "relative": ((), np.bool_, False),
                # Expected log of the first loss if it is > 0, and its standard deviation.
                "log_first": ((), np.float64, 0.0),
                "first_spread": ((), np.float64, np.inf),
                "range_spread": ((), np.float64, ANY_DEVIATION),
            }
        )
        self._table.reset(len(traces.column["count"]) - 1)  # jobs may have begun before

    def expect(self, slot: int, like: Sequence[tuple[PastRun, float]]) -> FloatArray | None:
        """Return the falls (n_horizons,) of a new job in ranges; None without like runs."""
        self._table.reset(slot)
        found = [(run, apart, _hypotheses(run)) for run, apart in like]
        shaped = [(run, apart, table) for run, apart, table in found if table is not None]
        if not shaped:
            return None
        weight = kernel([apart for _, apart, _ in shaped])
        column = self._table.column
        column["n_like"][slot] = len(shaped)
        spread = np.log(STRETCHES) / 0.3  # in standard deviations
        prior = np.log(weight)[:, None] - 0.5 * spread**2
        n = prior.size
        column["log_prior"][slot, :n] = prior.ravel()
        column["fallen"][slot, :n] = np.concatenate([table for *_, table in shaped])
        self._expect_range(slot, [run for run, *_ in shaped], weight)
        by_run = column["fallen"][slot, AS_IS:n:N_STRETCHES].astype(np.float64)
        return concave_hull(HORIZONS, (weight @ by_run @ BETWEEN)[None, :])[0]

    def _expect_range(self, slot: int, runs: list[PastRun], weight: FloatArray) -> None:
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
            # Minimum standard deviation of the log of a job's first loss as expected from like
            # runs.
            spread = weight @ (logs - level) ** 2 + 0.25**2
            column["first_spread"][slot] = np.sqrt(spread)
        # Minimum standard deviation of the log of a job's range, as expected from like runs.
        range_spread = 0.25
        # One run tells its range, but not how much the ranges of such runs differ.
        spread = np.sqrt(float(weight @ (log_range - mean) ** 2) + range_spread**2 / len(runs))
        column["range_spread"][slot] = np.clip(spread, range_spread, ANY_DEVIATION)

    def likeness(self, slot: int) -> int:
        """Return the number of runs on which the forecast of a job rests."""
        if not self._table.column["trust"][slot] > 0:
            return 0
        return int(self._table.column["n_like"][slot])

    def mix(self, rows: IntArray, slots: IntArray, cache: ForecastCache) -> None:
        """Mix forecasts from past runs into those in `rows` of the cache, in these `slots`."""
        column = cache.column
        known = np.flatnonzero((slots >= 0) & (self._table.column["n_like"][slots] > 0))
        rows, slots = rows[known], slots[known]
        diverging = column["status"][rows] == FitStatus.DIVERGING
        self._table.column["trust"][slots[diverging]] = 0.0
        rows, slots = rows[~diverging], slots[~diverging]
        if not len(rows):
            return
        falls, misfit = self._forecast(slots, column["noise"][rows])
        # Misfit at which past runs and reports count alike, and trust below which past runs are not
        # asked.
        doubtful, steep, least_trust = 1.0, 4.0, 0.05
        trust = 1.0 / (1.0 + (misfit / doubtful) ** steep)
        trust[trust < least_trust] = 0.0
        self._table.column["trust"][slots] = trust
        some = trust > 0  # the others keep their forecasts to the last bit
        rows, trust, falls = rows[some], trust[some], falls[some]
        fall, rest = column["reduction"][rows], column["remaining"][rows]
        fall = np.maximum.accumulate(fall + trust[:, None] * (falls - fall), axis=1)
        column["reduction"][rows] = fall
        column["remaining"][rows] = np.maximum(rest + trust * (falls[:, -1] - rest), fall[:, -1])
        column["status"][rows] = FitStatus.OK

    def _forecast(self, slots: IntArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return falls (n_jobs, n_horizons) by like runs and reports, and misfits."""
        column = self._table.column
        n_used = N_STRETCHES * int(column["n_like"][slots].max(initial=1))
        iteration, loss, count = self._traces.means(slots)
        total = self._traces.column["count"][slots].astype(np.float64)
        fallen = column["fallen"][slots, :n_used].astype(np.float64)
        s = fallen[:, :, : loss.shape[1]].copy()
        last = np.maximum((count > 0).sum(axis=1) - 1, 0)
        row = np.arange(len(slots))
        s[row, :, last] = at_iteration(fallen, iteration[row, last])
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
        # Error of a like run's curve relative to the job's fall so far, and reports beyond which
        # further ones are not counted as independent: curves differ by smooth errors, not by noise.
        model_error, independent = 0.1, 4.0
        variance = model_error**2 + noise[:, None] ** 2 / np.maximum(count, 1.0)
        w = np.where(some, 1.0 / variance, 0.0)
        n = some.sum(axis=1)
        w *= np.minimum(1.0, independent / n)[:, None]
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
        misfit = (weight * (error + off**2)).sum(axis=1) / np.minimum(n, independent)
        # Another first loss may be due to other data. What it tells fades with the reports.
        log_first = np.log(np.maximum(first, 1e-300))
        strange = (log_first - column["log_first"][slots]) / column["first_spread"][slots]
        # Maximum squared deviations by which a first loss counts as misfit.
        misfit += np.minimum(strange**2, 4.0) / total
        scaled = weight * size * unit[:, None]
        mixed = np.einsum("jh,jhb->jb", scaled, fallen)
        ahead = total[:, None] + HORIZONS
        to_come = interpolate(mixed, ahead)
        return concave_hull(HORIZONS, to_come - to_come[:, :1]), misfit


def _place(iteration: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the bin left of each iteration, and the part of the way to the next one."""
    left = np.clip(np.searchsorted(MIDDLES, iteration, side="right") - 1, 0, N_BINS - 2)
    part = (iteration - MIDDLES[left]) / (MIDDLES[left + 1] - MIDDLES[left])
    return left, np.clip(part, 0.0, 1.0)


def interpolate(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return curves (n, n_bins) at iterations: (n, m), or (m,) for all curves."""
    left, part = _place(iteration)
    row = np.arange(len(curves))[:, None]
    low = curves[row, left]
    return low + part * (curves[row, left + 1] - low)


def at_iteration(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return the values (n, m) of m curves per job (n, m, n_bins) at its iteration (n,)."""
    left, part = _place(iteration)
    row = np.arange(len(curves))
    low = curves[row, :, left]
    return low + part[:, None] * (curves[row, :, left + 1] - low)


#: (n_bins, n_horizons): interpolation of curves at the iterations of the horizons.
BETWEEN: FloatArray = interpolate(np.eye(N_BINS), HORIZONS)


class FromPastRuns:
    """What past runs tell of jobs of known kind. See `LossPredictor`."""

    def __init__(self, past_runs: PastRuns, cache: ForecastCache) -> None:
        self._past_runs, self._cache = past_runs, cache
        self._traces = Traces()
        self._hypotheses: Hypotheses | None = None  # until a job has a like run

    def add(self, row: int, kind: Kind) -> FloatArray | None:
        """Add a job. Returns its falls before the first report; None without a like run."""
        slot = self._cache.column["slot"][row] = self._traces.acquire()
        like = self._past_runs.like(kind)
        if self._hypotheses is None:
            if not any(run.outcome == "done" for run, _ in like):
                return None
            self._hypotheses = Hypotheses(self._traces)
        return self._hypotheses.expect(slot, like)

    def remove(self, row: int) -> None:
        """Forget the job in a row."""
        if (slot := self._slot(row)) >= 0:
            self._cache.column["slot"][row] = -1
            self._traces.release(slot)

    def append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append reports; those of jobs without a kind are ignored. See `Histories.append`."""
        slots = self._cache.column["slot"][rows]
        some = slots >= 0
        if some.any():
            self._traces.append(slots[some], losses[some])

    def cut(self, row: int, most: float) -> None:
        """Cut the reports of the job in a row down to `most`, as `Histories` did."""
        if (slot := self._slot(row)) >= 0:
            self._traces.cut(slot, most)

    def likeness(self, row: int) -> int:
        """Return the number of runs on which the forecast of the job in a row rests."""
        slot = self._slot(row)
        return 0 if slot < 0 or self._hypotheses is None else self._hypotheses.likeness(slot)

    def curve(self, row: int) -> tuple[IntArray, FloatArray] | None:
        """Return the loss curve of the job in a row, thinned; None if its kind is not known."""
        slot = self._slot(row)
        return None if slot < 0 else self._traces.curve(slot)

    def _slot(self, row: int) -> int:
        return self._cache.column["slot"].item(row)

    def mix(self, rows: IntArray) -> None:
        """Mix forecasts from past runs into those that the reports of these jobs alone gave."""
        if self._hypotheses is not None:
            self._hypotheses.mix(rows, self._cache.column["slot"][rows], self._cache)
