"""Policies: from a snapshot of the jobs to their shares and their order of dispatch.

A policy is a callable class with a name; `policy` finds it. Most only say what the next thread is
worth to a job (`GreedyPolicy.worth`), the rest is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dask_slaq.core.errors import UnknownPolicy
from dask_slaq.core.policies.base import GreedyPolicy, by_name, first_value, index_of
from dask_slaq.core.policies.baselines import (
    FirstInFirstOut,
    LeastAttainedService,
    ShortestRemainingTime,
)
from dask_slaq.core.policies.increments import BoolArray, FloatArray, IntArray
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.themis import FinishTimeFair
from dask_slaq.core.policies.water_filling import fair_fill, hand_out

__all__ = ["POLICIES", "Allocation", "Policy", "Snapshot", "policy", "with_efficiency_cap"]

#: Part of the capacity that is rounding.
ROUNDING = 1e-9


class Policy(Protocol):
    """Shares and an order of dispatch for the jobs of a snapshot.

    A policy keeps no state between calls, does not depend on the order in which jobs are
    listed, gives every job at least its floor and at most its cap, and leaves no thread over
    while some job is below its cap. To add one, write one class and list it in ``_POLICIES``; the
    tests take it from there.
    """

    name: str
    #: Which of `Snapshot.to_target` and `to_end` it looks at: these are left out otherwise.
    needs: frozenset[str]

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Decide; never raises on a valid snapshot."""
        ...


class Nothing:
    """The off-switch and baseline: equal shares, and no order that anybody should keep."""

    name = "none"
    needs: frozenset[str] = frozenset()

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Equal shares within floors and caps; weights are ignored."""
        one = np.ones(len(snapshot.jobs))
        share = fair_fill(one, snapshot.floor, snapshot.cap, snapshot.capacity)
        return Allocation(share, 0.0 * one)


class Fair:
    """Weighted fair shares, blind to loss.

    Examples
    --------
    >>> two = np.ones(2)
    >>> jobs = Snapshot(("a", "b"), 6, np.array([1.0, 2.0]), 0 * two, 9 * two, two > 0, two)
    >>> Fair()(jobs).share
    array([2., 4.])
    """

    name = "fair"
    needs: frozenset[str] = frozenset()

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Shares in proportion to the weights within floors and caps, and equal indices."""
        share = fair_fill(snapshot.weight, snapshot.floor, snapshot.cap, snapshot.capacity)
        return Allocation(share, np.zeros(len(snapshot.jobs)))


class MaxTotal(GreedyPolicy):
    """The paper's objective: the greatest weighted sum of loss reductions by the next epoch.

    Jobs that others outbid get their floor only, possibly nothing; the index is the weighted
    gain of the first thread.

    Examples
    --------
    Gains of 0.4 and 0.1 for the first thread, halving with each further one:

    >>> gain = lambda n: np.array([0.8, 0.2]) * (1 - 0.5**n)
    >>> two = np.ones(2)
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 9 * two, two > 0, two, gain)
    >>> MaxTotal()(jobs)
    Allocation(share=array([4., 2.]), index=array([0.4, 0.1]))
    """

    name = "max-total"
    on_hull = True

    def worth(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Weighted gain per thread."""
        rise = snapshot.gain(stop) - snapshot.gain(start)
        value: FloatArray = snapshot.weight * rise / (stop - start)
        return value


class FirstToTarget(MaxTotal):
    """The least work left to its target first, as shortest remaining time; then by gain.

    Each thread goes where it adds most to the speed of a job in relation to the core-seconds left
    to its target over its weight. While jobs scale well, that is to the one with the least left,
    as much as it can use, and so on; where further threads add little, to several. Those that have
    reached it, or for which that cannot be told, share what is left as under `max-total`. Index:
    -1 for what never reports, below 1 beyond the target (rising with the gain of the first
    thread), 1 to 2 before it (falling with the work left), above 2 for new jobs.

    Examples
    --------
    With 30 core-seconds left to its target, the second job comes before the first with 40; the
    third has reached its own:

    >>> three, work = np.ones(3), np.array([40.0, 30.0, 0.0])
    >>> jobs = Snapshot(tuple("abc"), 6, three, 0 * three, 4 * three, three > 0, three,
    ...                 lambda n: 0.1 * n, to_target=work)
    >>> FirstToTarget()(jobs).share
    array([2., 4., 0.])
    """

    name = "first-to-target"
    needs = frozenset({"to_target"})

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Each thread where it shortens the time to a target by the largest part."""
        upper = np.where(has_forecast & np.isfinite(_work_left(snapshot)), upper, lower)
        worth = _Shortening(snapshot)
        return hand_out(worth, lower, upper, snapshot.capacity, by_name(snapshot.jobs))

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Order of dispatch: a job's index depends on nothing but the job."""
        left, first = _work_left(snapshot), np.maximum(first_value(self, snapshot), 0.0)
        value = np.where(np.isfinite(left), 1.0 + 1.0 / (1.0 + left), first / (1.0 + first))
        return index_of(value, has_forecast, snapshot, 2.0)


class MaxMin(GreedyPolicy):
    """The least quality as high as possible: threads go to the highest loss expected.

    Each job is brought down to the lowest common level of weighted normalized loss by the next
    epoch, or to its cap where it cannot reach that level: a job that more threads do not help
    must have a cap that says so, or it takes them all. The index is the weighted normalized
    loss.

    Examples
    --------
    Losses of 1.0 and 0.6, each thread worth a fall of 0.1:

    >>> two = np.ones(2)
    >>> loss = np.array([1.0, 0.6])
    >>> jobs = Snapshot(("a", "b"), 6, two, 0 * two, 9 * two, two > 0, loss, lambda n: 0.1 * n)
    >>> MaxMin()(jobs).share
    array([5., 1.])
    """

    name = "max-min"

    def worth(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Weighted normalized loss expected at `start`, while a further thread can lower it."""
        reached = snapshot.gain(start)
        most = np.clip(snapshot.cap, start, np.maximum(start, snapshot.capacity))
        left = snapshot.weight * np.maximum(snapshot.normalized - reached, 0.0)
        return np.where(snapshot.gain(most) > reached, left, 0.0)


@dataclass(frozen=True)
class _Shortening:
    """By which part of itself a thread shortens the time to a target."""

    snapshot: Snapshot

    def __call__(self, start: FloatArray, stop: FloatArray) -> FloatArray:
        speed = self.snapshot.speed
        return (speed(stop) - speed(start)) / ((stop - start) * _work_left(self.snapshot))

    def of(self, rows: IntArray) -> _Shortening:
        """For some of the jobs alone."""
        return _Shortening(self.snapshot.of(rows))


def _work_left(snapshot: Snapshot) -> FloatArray:
    """Core-seconds to the target over weight, (n_jobs,); inf where it is reached or unknown."""
    left = snapshot.to_target / snapshot.weight
    return np.where(left > 0, left, np.inf)


def with_efficiency_cap(policy: Policy, snapshot: Snapshot) -> Allocation:
    """What a policy decides where no job gets threads that make it little faster while another
    job can use them well: greedy gains do not see that the cluster does less work in all.
    """
    well = np.minimum(np.maximum(snapshot.efficient, snapshot.floor), snapshot.cap)
    if not (well < np.minimum(snapshot.cap, snapshot.capacity)).any():
        return policy(snapshot)
    first = policy(replace(snapshot, cap=well))
    if first.share.sum() >= snapshot.capacity * (1.0 - ROUNDING):
        return first
    rest = policy(replace(snapshot, floor=first.share))
    return Allocation(rest.share, first.index)


_POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind
    for kind in (
        *(Nothing, Fair, MaxTotal, MaxMin, FirstToTarget),
        *(FinishTimeFair, FirstInFirstOut, LeastAttainedService, ShortestRemainingTime),
    )
}
#: Names that `policy` knows.
POLICIES = tuple(_POLICIES)


def policy(name: str) -> Policy:
    """The policy of this name.

    Raises
    ------
    UnknownPolicy
        If there is none; the message lists those there are.

    Examples
    --------
    >>> policy("fair").name
    'fair'
    """
    if name not in _POLICIES:
        raise UnknownPolicy(f"no policy is called {name!r}; choose from {', '.join(POLICIES)}")
    return _POLICIES[name]()
