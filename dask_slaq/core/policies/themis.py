"""Finish-time fairness: no job should end much later than on a share of its own (Themis)."""

from __future__ import annotations

import math

import numpy as np

from dask_slaq.core.policies.base import GreedyPolicy, MarginalValues, by_name, index_of
from dask_slaq.core.policies.increments import BoolArray, FloatArray
from dask_slaq.core.policies.snapshot import Snapshot
from dask_slaq.core.policies.water_filling import hand_out

__all__ = ["FinishTimeFair", "finish_time_ratio"]

#: Part of the jobs that is not offered any thread before the others have what they can use.
HIDDEN = 0.8
#: Threads of a job that holds none: its end is far away then, but not infinitely. And the seconds
#: from arrival to end of a job that ends as it comes: these are compared by their logarithms.
HARDLY = 1e-3


def finish_time_ratio(snapshot: Snapshot, threads: FloatArray) -> FloatArray:
    """Time from arrival to the predicted end, over that on a fair share all the time (Themis §3).

    Parameters
    ----------
    snapshot : Snapshot
    threads : (n_jobs,) array
        What each job holds from now on.

    Returns
    -------
    (n_jobs,) array
        Positive; above 1 for a job that loses by sharing, 1 where its end is not in sight.
    """
    fair = snapshot.capacity * snapshot.weight / max(snapshot.weight.sum(), 1e-300)
    work, sure = snapshot.attained + _left(snapshot), _in_sight(snapshot)
    alone = np.where(sure, work / np.maximum(snapshot.speed(fair), HARDLY), 1.0)
    return np.where(sure, _shared(snapshot, threads) / alone, 1.0)


def _left(snapshot: Snapshot) -> FloatArray:
    """Core-seconds to the end, (n_jobs,); 0 where that is not in sight."""
    return np.where(np.isfinite(snapshot.to_end), snapshot.to_end, 0.0)


def _in_sight(snapshot: Snapshot) -> BoolArray:
    """Jobs (n_jobs,) with an end and work to compare it by."""
    return np.isfinite(snapshot.to_end) & (snapshot.attained + _left(snapshot) > 0)


def _shared(snapshot: Snapshot, threads: FloatArray) -> FloatArray:
    """Seconds (n_jobs,) from arrival to the end with so many threads from now on."""
    rest = _left(snapshot) / np.maximum(snapshot.speed(threads), HARDLY)
    return np.maximum(snapshot.age + rest, HARDLY)


class FinishTimeFair(GreedyPolicy):
    """Finish-time fairness by a partial auction (Themis, NSDI 2020).

    Threads are offered to the fifth of the jobs that lose most by sharing, by
    `finish_time_ratio`, and go one by one where they lower its logarithm most, so that the
    product of the ratios falls; what these cannot use goes to all others in the same way. Index:
    the ratio on a fair share from now on.

    Examples
    --------
    Both have 60 core-seconds left; the second came long ago and got little:

    >>> two = np.ones(2)
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 4 * two, two > 0, two,
    ...                 age=np.array([10.0, 90.0]), attained=30 * two, to_end=60 * two)
    >>> FinishTimeFair()(jobs).share
    array([2., 4.])
    """

    name = "finish-time-fair"
    needs = frozenset({"to_end"})

    def worth(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Weighted fall of the logarithm of the ratio, per thread.

        That is the fall of the shared time's: a job's fair share depends on who else is asked for.
        """
        before, after = (_shared(snapshot, threads) for threads in (start, stop))
        fall = np.where(_in_sight(snapshot), np.log(before / after), 0.0)
        value: FloatArray = snapshot.weight * fall / (stop - start)
        return value

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """The threads of those that are offered any first."""
        ratio = np.where(has_forecast, finish_time_ratio(snapshot, lower), -1.0)
        offered = math.ceil((1.0 - HIDDEN) * has_forecast.sum())
        worst = np.lexsort((by_name(snapshot.jobs).argsort(), -ratio))[:offered]
        most = lower.copy()
        most[worst] = upper[worst]
        worth = MarginalValues(self, snapshot)
        return hand_out(worth, lower, most, snapshot.capacity, by_name(snapshot.jobs))

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """The ratio on a fair share from now on."""
        fair = snapshot.capacity * snapshot.weight / max(snapshot.weight.sum(), 1e-300)
        ratio = finish_time_ratio(snapshot, fair)
        return index_of(ratio, has_forecast, snapshot, float(ratio[has_forecast].max(initial=0.0)))
