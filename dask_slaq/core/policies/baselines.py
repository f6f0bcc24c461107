"""Policies of the field that serve jobs one after another, each with all that it can use.

They are rivals for comparison, and for who prefers them: none knows how far a loss would fall.
"""

from __future__ import annotations

import numpy as np

from dask_slaq.core.policies.base import with_forecasts
from dask_slaq.core.policies.increments import FloatArray
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors

__all__ = ["FirstInFirstOut", "LeastAttainedService", "ShortestRemainingTime"]

#: A queue of `LeastAttainedService` ends where so many times the service of the one before does.
RATIO = 4.0


class _InTurn:
    """Jobs in turn, by a key that a subclass gives; the next one gets what is left.

    Floors are kept, and what never reports gets its fair share. Equal keys are served in order of
    arrival, then by weight, then by name. Index: the number of jobs that come after.
    """

    needs: frozenset[str] = frozenset()

    def key(self, snapshot: Snapshot) -> FloatArray:
        """What jobs are sorted by, (n_jobs,), lowest first; never nan."""
        raise NotImplementedError

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Fill up job by job."""
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
        # What is left when all jobs have what they can use goes to those that never report.
        share = fair_fill(weight, share, cap, capacity)
        index = np.full(len(share), -1.0)
        index[order] = np.arange(len(order) - 1, -1, -1)
        return Allocation(share, index)


class FirstInFirstOut(_InTurn):
    """The job that came first.

    Examples
    --------
    >>> two = np.ones(2)
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 4 * two, two > 0, two, age=np.array([1., 9.]))
    >>> FirstInFirstOut()(jobs).share
    array([2., 4.])
    """

    name = "fifo"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Seconds since arrival, negative."""
        return -snapshot.age


class LeastAttainedService(_InTurn):
    """The job that was served least, by core-seconds over weight (Tiresias, NSDI 2019).

    Service is told apart by queues only, or jobs alike would take turns at every decision: the
    first queue ends at the service of all threads in a second, each other one four times later.
    Within a queue jobs are served in order of arrival.

    Examples
    --------
    >>> two, attained = np.ones(2), np.array([50.0, 5.0])
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 4 * two, two > 0, two, attained=attained)
    >>> LeastAttainedService()(jobs).share
    array([2., 4.])
    """

    name = "las"

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Number of the queue."""
        served = snapshot.attained / snapshot.weight / max(snapshot.capacity, 1)
        queue: FloatArray = np.ceil(np.log(np.maximum(served, 1e-9)) / np.log(RATIO))
        return np.maximum(queue, 0.0)


class ShortestRemainingTime(_InTurn):
    """The job with the least predicted work left to its end, over its weight.

    A job of which that is not known comes first: its reports will tell.

    Examples
    --------
    >>> two, left = np.ones(2), np.array([50.0, 5.0])
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 4 * two, two > 0, two, to_end=left)
    >>> ShortestRemainingTime()(jobs).share
    array([2., 4.])
    """

    name = "srtf"
    needs = frozenset({"to_end"})

    def key(self, snapshot: Snapshot) -> FloatArray:
        """Core-seconds over weight; what is not in sight is last."""
        left = np.where(np.isnan(snapshot.to_end), np.inf, snapshot.to_end) / snapshot.weight
        return np.where(with_forecasts(snapshot)[1], left, -1.0)
