"""Classic policies that serve jobs one after another, each with all threads that it can use.

They serve as baselines and as alternatives. Only `ShortestRemainingTime` uses forecasts: of ends,
not of losses.
"""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.core.policies.base import with_forecasts
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors

#: Ratio between the service limits of successive queues of `LeastAttainedService`.
RATIO = 4.0


class _InTurn:
    """Base class of policies that fill jobs in order of a key.

    Floors are kept, and jobs that are not `reporting` get a fair share. Equal keys are served in
    order of arrival, then by weight, then by name. The index is the number of jobs that come
    later, and -1 for jobs that are not `reporting`.
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


class FirstInFirstOut(_InTurn):
    """Order of arrival."""

    name = "fifo"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return the negative age in seconds."""
        return -snapshot.age


class LeastAttainedService(_InTurn):
    """Least attained service first: core-seconds over weight (Tiresias, NSDI 2019).

    Jobs are sorted into queues by service, because with exact service similar jobs would take turns
    at every decision. The first queue ends at the service of all threads in one second, and each
    later one at four times the limit before. Jobs in a queue are served in order of arrival.
    """

    name = "las"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return the number of the queue."""
        served = snapshot.attained / snapshot.weight / max(snapshot.capacity, 1)
        queue: FloatArray = np.ceil(np.log(np.maximum(served, 1e-9)) / np.log(RATIO))
        return np.maximum(queue, 0.0)


class ShortestRemainingTime(_InTurn):
    """Least predicted work left to the end first, over weight.

    Jobs without a forecast come first, so that they report.
    """

    name = "srtf"
    needs = frozenset({"to_end"})

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Return core-seconds over weight: inf if the end is unknown, -1 without a forecast."""
        left = np.where(np.isnan(snapshot.to_end), np.inf, snapshot.to_end) / snapshot.weight
        return np.where(with_forecasts(snapshot)[1], left, -1.0)
