"""Gain of each job as a function of its threads, and iterations left to its target."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from dask_slaq.core.forecast import USUAL, Forecast, Status, first_at, predicted_range
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.runtime import Speeds, among

#: Fractions of its predicted range: the fall that counts as the target of a job without one, and
#: the fall after which its loss hardly changes.
TARGET, END = 0.9, 0.99
#: Fraction of the remaining fall that counts as rounding.
ROUNDING = 1e-12
#: A grid of whole numbers up to this one is searched by a table lookup instead of bisection.
_DIRECT = 1_000_000


class Interpolation:
    """Piecewise linear functions on a common grid `x`, each evaluated at one point per call."""

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self._x, self._flat = x, np.ascontiguousarray(y).reshape(-1)
        self._first: IntArray = np.arange(len(y)) * len(x)
        self._inverse = 1.0 / np.diff(x)
        self._find = _finder(x)

    def __call__(self, at: FloatArray) -> FloatArray:
        """Return the value (n,) of each function at `at` (n,) >= 0; constant beyond the grid."""
        at = np.minimum(at, self._x[-1])
        left = self._find(at)
        cell = self._first + left
        # The indices are in bounds; clipping is only cheaper than the check that raises.
        low = self._flat.take(cell, mode="clip")
        cell += 1
        high = self._flat.take(cell, mode="clip")
        at -= self._x.take(left, mode="clip")
        at *= self._inverse.take(left, mode="clip")
        high -= low
        high *= at
        high += low
        return high

    def of(self, rows: IntArray) -> Interpolation:
        """Return the functions at `rows`, without copying their values."""
        some = copy(self)
        some._first = self._first[rows]
        return some


def _finder(x: FloatArray) -> Callable[[FloatArray], IntArray]:
    """Return a function that finds the intervals of a grid in which values lie."""
    if x[-1] > _DIRECT or (x != np.floor(x)).any():
        return lambda at: np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    table = _intervals(x.tobytes())
    return lambda at: table.take(at.astype(np.int64), mode="clip")


@lru_cache(maxsize=4)  # a predictor has one grid
def _intervals(grid: bytes) -> IntArray:
    """Return the interval in which each whole number lies, for a grid of whole numbers."""
    x = np.frombuffer(grid)
    whole = np.arange(x[-1] + 1.0)
    return np.minimum(np.searchsorted(x, whole, side="right") - 1, len(x) - 2)


@dataclass(frozen=True)
class Gains:
    """Predicted fall of the normalized loss by the next epoch, as a function of threads."""

    fall: Interpolation  # fall of the raw loss by iterations, of the jobs that report
    scale: FloatArray  # (n_reporting,) divisor of their losses
    reporting: IntArray  # (n_reporting,) their positions
    speeds: Speeds  # of all jobs
    held: FloatArray  # (n_jobs,) threads that each job holds now
    left: FloatArray  # (n_jobs,) core-seconds that jobs without a loss have left, counted by tasks
    per_second: FloatArray  # (n_jobs,) their fall per core-second, a straight line; 0 for others
    epoch: float  # seconds until the next reallocation
    pause: float  # seconds of it in which a newly granted thread does not compute

    def __call__(self, threads: FloatArray) -> FloatArray:
        """Return the gain (n_jobs,) on `threads` (n_jobs,): 0 at 0, nondecreasing, concave."""
        ahead = self.iterations(np.asarray(threads, dtype=float))
        if len(self.reporting) == len(ahead) and not self._counted:
            return self.fall(ahead) / self.scale
        gain = np.minimum(ahead * self.speeds.work, self.left) * self.per_second
        curved = self.per_second[self.reporting] == 0
        fall = self.fall(ahead[self.reporting]) / self.scale
        gain[self.reporting] = np.where(curved, fall, gain[self.reporting])
        return gain

    def of(self, rows: IntArray) -> Gains:
        """Return the same function restricted to the jobs at `rows`."""
        reporting, mine = among(self.reporting, rows, len(self.held))
        return replace(
            self,
            fall=self.fall.of(mine),
            scale=self.scale[mine],
            reporting=reporting,
            speeds=self.speeds.of(rows),
            held=self.held[rows],
            left=self.left[rows],
            per_second=self.per_second[rows],
        )

    def iterations(self, threads: FloatArray) -> FloatArray:
        """Return the iterations (n_jobs,) completed in an epoch.

        Further threads than a job holds compute after the pause: gains stay concave, and threads
        where they are unless another job gains clearly more by them.
        """
        speed = self.speeds(threads)
        if not self.pause:
            return speed * self.epoch
        kept = np.minimum(speed, self._speed_held)
        return kept * self.epoch + (speed - kept) * max(self.epoch - self.pause, 0.0)

    @cached_property
    def _counted(self) -> bool:
        return bool(self.per_second.any())

    @cached_property
    def _speed_held(self) -> FloatArray:
        return self.speeds(self.held)


def iterations_to_target(
    forecast: Forecast,
    targets: FloatArray,
    done: FloatArray,
    part: float = TARGET,
    most: FloatArray | float = np.inf,
) -> FloatArray:
    """Predict the iterations (n_jobs,) that each job still needs to reach its target quality.

    `targets` (n_jobs,) are raw losses, nan for `part` of the predicted range; `done` are iterations
    so far, estimated from core-seconds instead of reports, and `most` those to come, inf if
    unknown. The result is 0 if the target is reached, inf if the forecast does not reach it. A job
    with too few reports, no target and no known maximum has `done` plus the iterations in which a
    typical curve falls by half. Thus new jobs come early, and a job that never reports falls back.
    """
    to_part = forecast.remaining - (1.0 - part) * predicted_range(forecast)
    fall = np.where(np.isnan(targets), to_part, forecast.level - targets)
    ahead = first_at(fall, forecast.reduction, forecast.horizons)
    ahead = np.minimum(ahead, most)  # between two horizons
    in_sight = (fall <= forecast.reduction[:, -1]) & np.isfinite(fall)
    left = np.where(in_sight, np.where(fall > ROUNDING * forecast.remaining, ahead, 0.0), np.inf)
    few = (forecast.status == Status.TOO_FEW_REPORTS) & np.isnan(targets) & np.isinf(most)
    return np.where(few, USUAL + done, left)
