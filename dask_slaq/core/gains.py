"""Gains of jobs as functions of their threads, and the `Snapshot` that a policy sees."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from dask_slaq.core.forecast import Forecast, corrections, diverging
from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.jobs.jobs import Epoch, JobTable
from dask_slaq.core.milestones import JobCurves, milestones, straight_lines
from dask_slaq.core.policies import Snapshot, Traits
from dask_slaq.core.runtime import Progress, Speeds, among


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
    # A grid of whole numbers that is not too long for a table is not bisected.
    if x[-1] > 1_000_000 or (x != np.floor(x)).any():
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
        """Return iterations (n_jobs,) in an epoch; threads not yet held pause first."""
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


def build_snapshot(
    jobs: JobTable,
    epoch: Epoch,
    forecast: Forecast,
    speeds: Speeds,
    weight: FloatArray,
    room: FloatArray,
    *,
    normalizer: str,
    move_pause: float,
    traits: Traits,
) -> Snapshot:
    """Return a snapshot of the `jobs`, with the work left if the policy needs it."""
    order = jobs.order()
    column, seen, rows = jobs.table.column, jobs.runtimes.column, order.rows
    attained, held, age = seen["attained"][rows], seen["share"][rows], jobs.age(rows, epoch.now)
    lines = straight_lines(jobs, epoch, weight, age, speeds.work)
    if (new := lines.counted & (speeds.work == 0)).any():  # counted in core-seconds
        speeds = replace(speeds, work=np.where(new, 1.0, speeds.work))
    # The largest change of a loss is not known in logs.
    curves = JobCurves.of(jobs, forecast, speeds.work, raw=normalizer == "largest-change")
    forecast = diverging(curves.forecast, jobs.diverge(rows[order.reporting]))
    gain = Gains(
        Interpolation(forecast.horizons, forecast.reduction),
        corrections.scale(forecast, normalizer),
        order.reporting,
        speeds,
        held,
        # The last tasks gain no less per core-second than others.
        np.maximum(lines.left, epoch.seconds),
        lines.per_second(attained),
        epoch.seconds,
        move_pause,
    )
    normalized = np.ones(len(rows))
    normalized[order.reporting] = corrections.normalized(forecast, normalizer)
    cap = np.minimum(np.minimum(room, column["most"][rows]), speeds.useful)
    cap[column["paused"][rows]] = 0.0
    floor = column["floor"][rows]
    if traits.by_tokens:  # shares are limits, and a job that has tasks gets on
        floor = np.where(column["demand"][rows] > 0, np.maximum(floor, 0.05), floor)
    work, left = speeds.core_seconds(held), {}
    if traits.needs:
        found = milestones(jobs, replace(curves, forecast=forecast), work, lines)
        left = dict(zip(("to_target", "to_end"), found, strict=True))
    return Snapshot(
        jobs=order.names,
        capacity=epoch.capacity,
        weight=weight,
        floor=np.minimum(floor, cap),
        cap=cap,
        known=(column["reports"][rows] | lines.counted) & (speeds.work > 0),
        normalized=np.where(lines.counted, lines.left * gain.per_second, normalized),
        gain=gain,
        speed=Progress(speeds, work),
        reporting=lines.new | lines.counted | (seen["reports"][rows] > 0),
        age=age,
        attained=attained,
        efficient=speeds.efficient,
        **left,
    )
