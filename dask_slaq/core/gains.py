"""Gains of jobs as functions of their threads, and the `Snapshot` that a policy sees."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast import (
    USUAL,
    Forecast,
    Status,
    corrections,
    diverging,
    ending,
    first_at,
    in_logs,
    predicted_range,
    unreported,
)
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.jobs.jobs import Jobs
from dask_slaq.core.jobs.promises import EXPLORED, still_new
from dask_slaq.core.policies import Snapshot
from dask_slaq.core.runtime import Progress, Speeds, among

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


#: Minimum threads of a job that has tasks, if jobs run only on the workers of their sets.
LEAST = 0.05

#: Exchange rate of the measure: core-seconds of a training that weigh as one of any other work.
#: docs/evaluation.md says how it was chosen.
EXCHANGE_RATE = 3.0
#: Least work left, in core-seconds.
INSTANT = 1e-6

#: Fraction of the predicted range up to which each field counts the work left.
PARTS = {"to_target": TARGET, "to_end": END}


class _Lines(NamedTuple):
    """Jobs without a loss so far, as straight lines: their loss is the share of work left."""

    new: BoolArray  # (n_jobs,) jobs that are to be explored
    counted: BoolArray  # (n_jobs,) jobs whose work left is counted, by their tasks or iterations
    left: FloatArray  # (n_jobs,) core-seconds of it; 0 for others
    rate: FloatArray  # (n_jobs,) core-seconds of a training that weigh as one of theirs
    per_second: FloatArray  # (n_jobs,) fall of their loss per core-second; 0 for others


def _straight_lines(
    jobs: Jobs, weight: FloatArray, capacity: int, epoch: float, age: FloatArray, work: FloatArray
) -> _Lines:
    """Return what is known of the jobs that have not reported a loss.

    Those that announced iterations are trainings before their first report. `work` (n_jobs,) is the
    core-seconds of one, 0 if unknown: then it takes as long as the first one, which may include
    start-up.
    """
    rows, column, seen = jobs.order().rows, jobs.table.column, jobs.runtimes.column
    attained, submitted = seen["attained"][rows], column["submitted"][rows]
    silent, staged = seen["reports"][rows] == 0, np.isfinite(column["after"][rows])
    new = silent & still_new(jobs, capacity, epoch)
    # Nothing is to be learned any more of a client of whose tasks none has ended for long.
    new &= column["reports"][rows] | ~np.isnan(submitted) | (age < EXPLORED * epoch)
    counted = silent & (staged | ~new) & (attained + age > 0)
    fair = capacity * weight / weight.sum()
    # One that has nothing to count goes on for as long as it has: it ran, or could have run.
    so_far = np.maximum(attained, fair * age)
    left = np.where(submitted > 0, submitted, so_far)
    more = np.isnan(column["left"][rows])
    left = left + np.where(more, np.maximum(attained - fair * age, 0.0), 0.0)
    training = jobs.before_report(rows) & ~staged
    one = np.where(work > 0, work, attained + left)
    left = np.where(training, left + (np.where(training, jobs.ahead(rows), 1.0) - 1.0) * one, left)
    rate = np.where(training, 1.0, EXCHANGE_RATE)
    left = np.where(counted, np.maximum(left, INSTANT), 0.0)
    per_second = np.divide(1.0, rate * (attained + left), out=np.zeros(len(rows)), where=counted)
    return _Lines(new, counted, left, rate, per_second)


def build_snapshot(
    jobs: Jobs,
    forecast: Forecast,
    speeds: Speeds,
    weight: FloatArray,
    room: FloatArray,
    capacity: int,
    now: float,
    *,
    normalizer: str,
    epoch: float,
    move_pause: float,
    strict: bool,
    needs: Collection[str],
) -> Snapshot:
    """Return a snapshot of the `jobs`, with the fields of `PARTS` in `needs`. See `Engine`."""
    order = jobs.order()
    column, seen, at = jobs.table.column, jobs.runtimes.column, order.reporting
    rows, n = order.rows, len(order.names)
    attained, held, age = seen["attained"][rows], seen["share"][rows], jobs.age(rows, now)
    lines = _straight_lines(jobs, weight, capacity, epoch, age, speeds.work)
    # Jobs with stages whose work left is known by these, whether or not they report.
    after, counted = column["after"][rows], column["left"][rows]
    staged = np.isfinite(after + counted) & column["reports"][rows]
    counted = np.where(lines.counted, lines.left, counted)
    staged |= lines.counted
    if (new := staged & (speeds.work == 0)).any():  # counted in core-seconds
        speeds = replace(speeds, work=np.where(new, 1.0, speeds.work))
    normalized = np.ones(n)
    done = np.divide(attained, speeds.work, out=np.zeros(n), where=speeds.work > 0)
    most = jobs.ahead(rows[at])
    forecast, target = in_logs(forecast, column["target"][rows][at])
    forecast = ending(unreported(forecast, done[at]), most)
    forecast = diverging(forecast, jobs.diverge(rows[at]))
    normalized[at] = corrections.normalized(forecast, normalizer)
    normalized = np.where(lines.counted, lines.left * lines.per_second, normalized)
    gain = Gains(
        Interpolation(forecast.horizons, forecast.reduction),
        corrections.scale(forecast, normalizer),
        at,
        speeds,
        held,
        np.maximum(lines.left, epoch),  # the last tasks gain no less per core-second than others
        lines.per_second,
        epoch,
        move_pause,
    )
    cap = np.minimum(np.minimum(room, column["most"][rows]), speeds.useful)
    cap[column["paused"][rows]] = 0.0
    floor = column["floor"][rows]
    if strict:
        floor = np.where(column["demand"][rows] > 0, np.maximum(floor, LEAST), floor)
    work = speeds.core_seconds(held)
    left = {}
    for name in needs:
        ahead, total = np.full((2, n), np.inf)
        ahead[at] = iterations_to_target(forecast, target, done[at], PARTS[name], most)
        total = np.multiply(work, ahead, out=total, where=work > 0)
        if name == "to_end":
            total = total + np.nan_to_num(after)
        else:
            # A training at its target, or whose target is not in sight, goes on to its end.
            rest = jobs.total(rows, work) - attained
            rest = np.where(np.isfinite(rest), rest, attained)
            reached = (total == 0) | ~np.isfinite(total)
            # Among trainings alone its gain tells more.
            reached &= (rest > 0) & (work > 0) & (lines.counted & (lines.rate > 1)).any()
            total = np.where(reached, rest, total)
        rate = lines.rate if name == "to_target" else 1.0
        left[name] = np.where(staged, rate * counted, total)
    return Snapshot(
        jobs=order.names,
        capacity=capacity,
        weight=weight,
        floor=np.minimum(floor, cap),
        cap=cap,
        known=(column["reports"][rows] | lines.counted) & (speeds.work > 0),
        normalized=normalized,
        gain=gain,
        speed=Progress(speeds, work),
        reporting=lines.new | staged | (seen["reports"][rows] > 0),
        age=age,
        attained=attained,
        efficient=speeds.efficient,
        **left,
    )
