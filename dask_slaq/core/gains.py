"""From forecasts and speeds to what a policy weighs: gain by threads, and work to the target."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import USUAL, Forecast, Status, predicted_range
from dask_slaq.core.runtime import Speeds, among

__all__ = ["END", "Gains", "Interpolation", "iterations_to_target"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Part of its predicted range that a job without a target of its own is to fall, and part of it
#: after which it falls no more to speak of.
TARGET, END = 0.9, 0.99
#: Part of what remains that is rounding.
ROUNDING = 1e-12
#: Grids of whole numbers up to this are looked up directly, and not searched.
_DIRECT = 1_000_000


class Interpolation:
    """Lines between the points of many tables over one grid, one point a row and call.

    Parameters
    ----------
    x : (n_x,) array
        Increasing, from 0.
    y : (n, n_x) array

    Examples
    --------
    >>> between = Interpolation(np.array([0.0, 2.0]), np.array([[0.0, 4.0], [1.0, 3.0]]))
    >>> between(np.array([0.5, 9.0])).tolist()
    [1.0, 3.0]
    """

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self._x, self._flat = x, np.ascontiguousarray(y).reshape(-1)
        self._first: IntArray = np.arange(len(y)) * len(x)
        self._inverse = 1.0 / np.diff(x)
        self._find = _finder(x)

    def __call__(self, at: FloatArray) -> FloatArray:
        """The values (n,) at `at` (n,), at least 0; beyond the grid those of its last point."""
        at = np.minimum(at, self._x[-1])
        left = self._find(at)
        cell = self._first + left
        # Clipping skips a check of bounds that hold.
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
        """For some of the tables alone, which are not copied."""
        some = copy(self)
        some._first = self._first[rows]
        return some


def _finder(x: FloatArray) -> Callable[[FloatArray], IntArray]:
    """How to find the interval of the grid in which a value lies."""
    if x[-1] > _DIRECT or (x != np.floor(x)).any():
        return lambda at: np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    table = _intervals(x.tobytes())
    return lambda at: table.take(at.astype(np.int64), mode="clip")


@lru_cache(maxsize=4)  # a predictor has one grid
def _intervals(grid: bytes) -> IntArray:
    """The interval of a grid of whole numbers that starts at each whole number, or before."""
    x = np.frombuffer(grid)
    whole = np.arange(x[-1] + 1.0)
    return np.minimum(np.searchsorted(x, whole, side="right") - 1, len(x) - 2)


@dataclass(frozen=True)
class Gains:
    """What threads buy: the fall of the normalized loss by the next epoch.

    Parameters
    ----------
    fall : Interpolation
        Raw fall by iterations, of the jobs that report.
    scale : (n_reporting,) array
        Divisor of their losses.
    reporting : (n_reporting,) array of int
        Which of the jobs they are.
    speeds : Speeds
        Of all jobs.
    held : (n_jobs,) array
        Threads that they hold now.
    epoch, pause : float
        Seconds until the next reallocation, and seconds of these in which a thread that is newly
        granted does not compute.
    """

    fall: Interpolation
    scale: FloatArray
    reporting: IntArray
    speeds: Speeds
    held: FloatArray
    epoch: float
    pause: float

    def __call__(self, threads: FloatArray) -> FloatArray:
        """Gain (n_jobs,) on `threads` (n_jobs,): 0 at 0, nondecreasing and concave."""
        ahead = self.iterations(np.asarray(threads, dtype=float))
        if len(self.reporting) == len(ahead):
            return self.fall(ahead) / self.scale
        gain = np.zeros(len(ahead))
        gain[self.reporting] = self.fall(ahead[self.reporting]) / self.scale
        return gain

    def of(self, rows: IntArray) -> Gains:
        """Of some of the jobs alone."""
        reporting, mine = among(self.reporting, rows, len(self.held))
        return replace(
            self,
            fall=self.fall.of(mine),
            scale=self.scale[mine],
            reporting=reporting,
            speeds=self.speeds.of(rows),
            held=self.held[rows],
        )

    def iterations(self, threads: FloatArray) -> FloatArray:
        """Iterations (n_jobs,) completed in an epoch.

        Threads held already compute all the time, further ones after the pause. So gains stay
        concave, and threads where they are unless others value them clearly more.
        """
        speed = self.speeds(threads)
        if not self.pause:
            return speed * self.epoch
        kept = np.minimum(speed, self._speed_held)
        return kept * self.epoch + (speed - kept) * max(self.epoch - self.pause, 0.0)

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
    """Predict the iterations that each job still needs to reach its target quality.

    Parameters
    ----------
    forecast : Forecast
    targets : (n_jobs,) array
        Loss to reach, nan for `part` of the predicted range.
    done : (n_jobs,) array
        Iterations so far, as far as they are known without reports.
    part : float
        Fraction in (0, 1).
    most : (n_jobs,) array, or float
        Iterations still to come at most, as far as the jobs said.

    Returns
    -------
    (n_jobs,) array
        0 once the target is reached, inf where it is not in sight. Of a curve that cannot be
        extrapolated yet, and of whose length nothing is known, it is as many as take half of a
        usual one, and as many as are done: new jobs come early, and one that never reports falls
        back.
    """
    to_part = forecast.remaining - (1.0 - part) * predicted_range(forecast)
    fall = np.where(np.isnan(targets), to_part, forecast.level - targets)
    x, y = forecast.horizons, forecast.reduction
    right = np.clip((y < fall[:, None]).sum(axis=1), 1, len(x) - 1)
    row = np.arange(len(fall))
    low, high = y[row, right - 1], y[row, right]
    gone = np.clip(fall, low, high) - low
    step = np.divide(gone, high - low, out=np.zeros_like(fall), where=high > low)
    ahead = x[right - 1] + step * (x[right] - x[right - 1])
    ahead = np.minimum(ahead, most)  # between two horizons
    in_sight = (fall <= y[:, -1]) & np.isfinite(fall)
    left = np.where(in_sight, np.where(fall > ROUNDING * forecast.remaining, ahead, 0.0), np.inf)
    few = (forecast.status == Status.TOO_FEW_REPORTS) & np.isnan(targets) & np.isinf(most)
    return np.where(few, USUAL + done, left)
