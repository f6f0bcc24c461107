"""What most policies share: threads go one by one to the job to which the next is worth most."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dask_slaq.core.policies.hull import on_hull
from dask_slaq.core.policies.increments import BoolArray, FloatArray, Gain, IntArray, rows_of
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors, hand_out

__all__ = ["GreedyPolicy", "MarginalValues", "by_name", "first_value", "index_of", "with_forecasts"]


class GreedyPolicy:
    """Threads go one by one to the job to which the next one is worth most.

    Jobs without a forecast get their weighted fair share first. Threads worth nothing to anybody
    go out fairly, to the jobs with the smallest shares for their weight, so that none is idle
    because no forecast asked for it. The index is the worth of the first thread; a job yet to
    send its first reports has most to gain and comes first, one that never does last.
    """

    #: Whether stepped gains are replaced by their upper hull, for a worth that must fall.
    on_hull = False
    needs: frozenset[str] = frozenset()

    def worth(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Worth of a thread between these counts, (n_jobs,); must not rise with `start`."""
        raise NotImplementedError

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Threads (n_jobs,) that go out before all worths, on top of `lower`; none here."""
        return lower

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Order of dispatch (n_jobs,)."""
        first = first_value(self, snapshot)
        return index_of(first, has_forecast, snapshot, float(first[has_forecast].max(initial=0.0)))

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Share out by worth."""
        snapshot, has_forecast = with_forecasts(snapshot)
        if self.on_hull and not snapshot.concave and has_forecast.any():
            most = max(1.0, min(float(snapshot.cap.max()), snapshot.capacity))
            snapshot = replace(snapshot, gain=on_hull(snapshot.gain, len(snapshot.jobs), most))
        weight, capacity = snapshot.weight, snapshot.capacity
        cap = np.clip(snapshot.cap, 0.0, capacity)
        floor = fit_floors(np.minimum(snapshot.floor, cap), capacity)
        lower, upper = floor, cap
        if not has_forecast.all():
            fair = fair_fill(weight, floor, cap, capacity)
            lower, upper = np.where(has_forecast, floor, fair), np.where(has_forecast, cap, fair)
        lower = self.first(snapshot, has_forecast, lower, upper)
        worth = MarginalValues(self, snapshot)
        share = hand_out(worth, lower, upper, capacity, by_name(snapshot.jobs))
        share = fair_fill(weight, share, cap, capacity)
        return Allocation(share, self.index(snapshot, has_forecast))


@dataclass(frozen=True)
class MarginalValues:
    """What a policy finds that threads are worth to the jobs of a snapshot."""

    policy: GreedyPolicy
    snapshot: Snapshot

    def __call__(self, start: FloatArray, stop: FloatArray) -> FloatArray:
        return self.policy.worth(self.snapshot, start, stop)

    def of(self, rows: IntArray) -> MarginalValues:
        """For some of the jobs alone."""
        return MarginalValues(self.policy, self.snapshot.of(rows))


def with_forecasts(snapshot: Snapshot) -> tuple[Snapshot, BoolArray]:
    """Jobs (n_jobs,) to be judged by their gains, and a snapshot in which the others have none."""
    gain, one = snapshot.gain, np.ones(len(snapshot.jobs))
    finite = np.isfinite(gain(one)) & np.isfinite(gain(one * snapshot.capacity))
    has_forecast = snapshot.known & snapshot.reporting & finite & np.isfinite(snapshot.normalized)
    if has_forecast.all():
        return snapshot, has_forecast
    return replace(snapshot, gain=_Masked(gain, has_forecast)), has_forecast


@dataclass(frozen=True)
class _Masked:
    """A gain without that of some jobs."""

    gain: Gain
    kept: BoolArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        return np.where(self.kept, self.gain(threads), 0.0)

    def of(self, rows: IntArray) -> _Masked:
        """For some of the jobs alone."""
        return _Masked(rows_of(self.gain, rows, len(self.kept)), self.kept[rows])


def first_value(policy: GreedyPolicy, snapshot: Snapshot) -> FloatArray:
    none = np.zeros(len(snapshot.jobs))
    return policy.worth(snapshot, none, none + 1.0)


def index_of(
    known: FloatArray, has_forecast: BoolArray, snapshot: Snapshot, top: float
) -> FloatArray:
    """Order of dispatch: `known`, at most `top`, where it is judged; new jobs before all others."""
    new = snapshot.reporting & ~has_forecast
    return np.where(has_forecast, known, np.where(new, top + snapshot.weight, -1.0))


def by_name(jobs: tuple[str, ...]) -> IntArray:
    """The order of names, as which they mostly stand already."""
    if list(jobs) == sorted(jobs):
        return np.arange(len(jobs))
    return np.array(sorted(range(len(jobs)), key=jobs.__getitem__), dtype=np.int64)
