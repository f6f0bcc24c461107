"""Classic policies that serve jobs one after another, each with all threads that it can use.

They serve as baselines and as alternatives. Only `ShortestRemainingTime` uses forecasts: of ends,
not of losses.
"""

from __future__ import annotations

import math

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray
from dask_slaq.core.policies.base import (
    GreedyPolicy,
    MarginalValues,
    by_name,
    index_of,
    with_forecasts,
)
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors, hand_out


class _OneAfterAnother:
    """Base class of policies that fill jobs in order of a key, then of arrival, weight and name.

    Floors are kept. Jobs that are not `reporting` get a fair share, and the index -1.
    """

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return the sort key of the jobs (n_jobs,), lowest first. It must not contain nan."""
        raise NotImplementedError

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return the allocation that fills job after job. See `Policy`."""
        weight, capacity, has_forecast = snapshot.weight, snapshot.capacity, snapshot.reporting
        cap = np.clip(snapshot.cap, 0.0, capacity)
        floor = fit_floors(np.minimum(snapshot.floor, cap), capacity)
        share = np.where(has_forecast, floor, fair_fill(weight, floor, cap, capacity))
        names = np.argsort(np.argsort(np.array(snapshot.jobs, dtype=object), kind="stable"))
        order = np.lexsort((names, -weight, -snapshot.age, self.key(snapshot)))
        order = order[has_forecast[order]]
        room = (cap - share)[order]
        before = np.cumsum(room) - room
        share[order] += np.clip(capacity - share.sum() - before, 0.0, room)
        # Threads that no reporting job can use go to jobs that never report.
        share = fair_fill(weight, share, cap, capacity)
        index = np.full(len(share), -1.0)
        index[order] = np.arange(len(order) - 1, -1, -1)
        return Allocation(share, index)


class FirstInFirstOut(_OneAfterAnother):
    """Order of arrival."""

    name = "fifo"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return the negative age in seconds."""
        return -snapshot.age


class LeastAttainedService(_OneAfterAnother):
    """Least attained service first: core-seconds over weight (Tiresias, NSDI 2019).

    Jobs are sorted into queues by service, each to four times the limit before: with exact service
    similar jobs would take turns at every decision.
    """

    name = "las"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return the number of the queue."""
        served = snapshot.attained / snapshot.weight / max(snapshot.capacity, 1)
        # Ratio between the service limits of successive queues of `LeastAttainedService`.
        queue: FloatArray = np.ceil(np.log(np.maximum(served, 1e-9)) / np.log(4.0))
        return np.maximum(queue, 0.0)


class ShortestRemainingTime(_OneAfterAnother):
    """Least predicted work left to the end first, over weight.

    Jobs without a forecast come first, so that they report.
    """

    name = "srtf"
    needs = frozenset({"to_end"})

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return core-seconds over weight: inf if the end is unknown, -1 without a forecast."""
        left = np.where(np.isnan(snapshot.to_end), np.inf, snapshot.to_end) / snapshot.weight
        return np.where(with_forecasts(snapshot)[1], left, -1.0)


#: Lower bound on a job's speed, so that the end of a job without threads is far away but finite.
LEAST_SPEED = 1e-3


def finish_time_ratio(snapshot: Snapshot, threads: FloatArray) -> FloatArray:
    """Return time from arrival to predicted end, over that on a constant fair share."""
    fair = snapshot.capacity * snapshot.weight / max(snapshot.weight.sum(), 1e-300)
    work, sure = snapshot.attained + _left(snapshot), _in_sight(snapshot)
    alone = np.where(sure, work / np.maximum(snapshot.speed(fair), LEAST_SPEED), 1.0)
    return np.where(sure, _shared(snapshot, threads) / alone, 1.0)


def _left(snapshot: Snapshot) -> FloatArray:
    """Return the core-seconds to the end (n_jobs,), 0 where the end is unknown."""
    return np.where(np.isfinite(snapshot.to_end), snapshot.to_end, 0.0)


def _in_sight(snapshot: Snapshot) -> BoolArray:
    """Return which jobs (n_jobs,) have a known end and some work, done or left."""
    return np.isfinite(snapshot.to_end) & (snapshot.attained + _left(snapshot) > 0)


def _shared(snapshot: Snapshot, threads: FloatArray) -> FloatArray:
    """Return the seconds (n_jobs,) from arrival to the end with `threads` from now on."""
    rest = _left(snapshot) / np.maximum(snapshot.speed(threads), LEAST_SPEED)
    return np.maximum(snapshot.age + rest, 1e-3)  # whose logarithm is taken


class FinishTimeFair(GreedyPolicy):
    """Finish-time fairness by a partial auction (Themis, NSDI 2020).

    Threads are offered first to the fifth of the jobs with the highest `finish_time_ratio`; each
    goes where it lowers the logarithm of the ratio most. The others get what is left.
    """

    name = "finish-time-fair"
    needs = frozenset({"to_end"})

    def marginal_value(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Return the weighted fall of the logarithm of the ratio, per thread."""
        before, after = (_shared(snapshot, threads) for threads in (start, stop))
        fall = np.where(_in_sight(snapshot), np.log(before / after), 0.0)
        return snapshot.weight * fall / (stop - start)

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Return the threads of the jobs that are offered threads first."""
        ratio = np.where(has_forecast, finish_time_ratio(snapshot, lower), -1.0)
        # Fraction of the jobs that are offered threads only after the others have all they can use.
        offered = math.ceil((1.0 - 0.8) * has_forecast.sum())
        worst = np.lexsort((by_name(snapshot.jobs).argsort(), -ratio))[:offered]
        most = lower.copy()
        most[worst] = upper[worst]
        value = MarginalValues(self.marginal_value, snapshot)
        return hand_out(value, lower, most, snapshot.capacity, by_name(snapshot.jobs))

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Return the ratio on a fair share from now on."""
        fair = snapshot.capacity * snapshot.weight / max(snapshot.weight.sum(), 1e-300)
        ratio = finish_time_ratio(snapshot, fair)
        return index_of(ratio, has_forecast, snapshot, float(ratio[has_forecast].max(initial=0.0)))
