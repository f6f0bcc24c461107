"""Base class of policies that give each thread to the job to which it has the highest value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import Gain, fair_fill, fit_floors, hand_out, rows_of


class GreedyPolicy:
    """Base class of policies that give threads one by one to the job that values the next most.

    A subclass sets ``name`` and defines `marginal_value`; see `Policy` for what policies must keep.

    Jobs without a forecast get their weighted fair share first. Threads that are worth nothing to
    any job are given to the jobs with the smallest shares for their weight, so that no thread is
    idle for lack of a forecast. The index is the value of the first thread; new jobs come first.
    """

    def marginal_value(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Return the value of one thread to each job, in any unit.

        The value of a job must not rise with `start` and must not depend on the other jobs, as
        the method is also called with parts of a snapshot (`Snapshot.of`).

        Parameters
        ----------
        snapshot : Snapshot
            Jobs without a forecast have a gain of 0.
        start, stop : (n_jobs,) array
            Threads before and after; ``stop - start`` is positive and at most 1.

        Returns
        -------
        (n_jobs,) array
            Value per thread. Threads whose value is not positive and finite are not given out
            by value.
        """
        raise NotImplementedError

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Return the threads (n_jobs,) given out before by `marginal_value`; by default `lower`.

        Parameters
        ----------
        snapshot : Snapshot
        has_forecast : (n_jobs,) array of bool
            Jobs that compete by `marginal_value`.
        lower, upper : (n_jobs,) array
            Bounds on the result, in threads. They are equal for jobs without a forecast.
        """
        return lower

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Return the order of dispatch (n_jobs,), higher first.

        Parameters
        ----------
        snapshot : Snapshot
        has_forecast : (n_jobs,) array of bool
        """
        first = first_value(self, snapshot)
        return index_of(first, has_forecast, snapshot, float(first[has_forecast].max(initial=0.0)))

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return the allocation by marginal value. See `Policy`."""
        snapshot, has_forecast = with_forecasts(snapshot)
        weight, capacity = snapshot.weight, snapshot.capacity
        cap = np.clip(snapshot.cap, 0.0, capacity)
        floor = fit_floors(np.minimum(snapshot.floor, cap), capacity)
        lower, upper = floor, cap
        if not has_forecast.all():
            fair = fair_fill(weight, floor, cap, capacity)
            lower, upper = np.where(has_forecast, floor, fair), np.where(has_forecast, cap, fair)
        lower = self.first(snapshot, has_forecast, lower, upper)
        value = MarginalValues(self.marginal_value, snapshot)
        share = hand_out(value, lower, upper, capacity, by_name(snapshot.jobs))
        share = fair_fill(weight, share, cap, capacity)
        return Allocation(share, self.index(snapshot, has_forecast))


@dataclass(frozen=True)
class MarginalValues:
    """Value of threads in one snapshot, as `hand_out` takes it."""

    marginal_value: Callable[
        [Snapshot, FloatArray, FloatArray], FloatArray
    ]  # as `GreedyPolicy.marginal_value`
    snapshot: Snapshot

    def __call__(self, start: FloatArray, stop: FloatArray) -> FloatArray:
        return self.marginal_value(self.snapshot, start, stop)

    def of(self, rows: IntArray) -> MarginalValues:
        """Return the same function restricted to the jobs at `rows`."""
        return MarginalValues(self.marginal_value, self.snapshot.of(rows))


def with_forecasts(snapshot: Snapshot) -> tuple[Snapshot, BoolArray]:
    """Return a snapshot with gains of 0 for jobs without a forecast, and who has one."""
    gain, one = snapshot.gain, np.ones(len(snapshot.jobs))
    finite = np.isfinite(gain(one)) & np.isfinite(gain(one * snapshot.capacity))
    has_forecast = snapshot.known & snapshot.reporting & finite & np.isfinite(snapshot.normalized)
    if has_forecast.all():
        return snapshot, has_forecast
    return replace(snapshot, gain=_Masked(gain, has_forecast)), has_forecast


@dataclass(frozen=True)
class _Masked:
    """Gain that is 0 except for the jobs in `kept`."""

    gain: Gain
    kept: BoolArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        return np.where(self.kept, self.gain(threads), 0.0)

    def of(self, rows: IntArray) -> _Masked:
        """Return the same function restricted to the jobs at `rows`."""
        return _Masked(rows_of(self.gain, rows, len(self.kept)), self.kept[rows])


def first_value(policy: GreedyPolicy, snapshot: Snapshot) -> FloatArray:
    """Return the value (n_jobs,) of each job's first thread, by `policy` in `snapshot`."""
    none = np.zeros(len(snapshot.jobs))
    return policy.marginal_value(snapshot, none, none + 1.0)


def index_of(
    known: FloatArray, has_forecast: BoolArray, snapshot: Snapshot, top: float
) -> FloatArray:
    """Return the order of dispatch (n_jobs,): new jobs before `top`, known ones, and all others."""
    new = snapshot.reporting & ~has_forecast
    first = top * (1.0 + snapshot.weight) if top > 0 else snapshot.weight
    return np.where(has_forecast, known, np.where(new, first, -1.0))


def by_name(jobs: tuple[str, ...]) -> IntArray:
    """Return the positions of the jobs in the order of their names."""
    if list(jobs) == sorted(jobs):
        return np.arange(len(jobs))
    return np.array(sorted(range(len(jobs)), key=jobs.__getitem__), dtype=np.int64)
