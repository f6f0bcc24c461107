"""Policies: from a snapshot of the jobs to their shares and their order of dispatch.

A policy is a callable class with a name; `policy` finds it. Most only say what the next thread
is worth to a job (`_Priced.worth`), and `hand_out` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from dask_slaq.core.allocation import (
    BoolArray,
    FloatArray,
    Gain,
    IntArray,
    fair_fill,
    fit_floors,
    hand_out,
)
from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.core.hull import on_hull


@dataclass(frozen=True)
class Snapshot:
    """What a policy sees. Arrays are (n_jobs,), in the order of `jobs`.

    Parameters
    ----------
    jobs : tuple of str
        Names; where jobs tie, they are served in the order of their names.
    capacity : int
        Threads to share out.
    weight : array
        Positive factors of importance.
    floor : array
        Threads a job gets at least; 0 for none. Floors that sum to more than the capacity are
        scaled down in proportion.
    cap : array
        Threads a job can use at most; may be fractional or infinite. It holds against the floor.
    known : array of bool
        True where the job has a usable forecast. The others get a fair share.
    normalized : array
        Present normalized loss, a fraction in [0, 1].
    gain : callable
        Threads (n_jobs,) to the reduction (n_jobs,) of normalized loss that is predicted by the
        next epoch; 0 at 0, nondecreasing, and concave unless `concave` is false. A job whose
        gain is not finite counts as not known.
    reporting : array of bool, optional
        False for what never reports: jobs without a loss, tasks of other clients. They get a fair
        share, and the lowest index where a new job's is the highest. All true by default.
    concave : bool
        False where gains have steps, as when iterations run in waves: policies that need
        concave gains then work on the upper hull.

    Raises
    ------
    InvalidSetting
        If an array has another length than `jobs`, a weight is not positive and finite, or a
        floor or cap is negative or nan.
    """

    jobs: tuple[str, ...]
    capacity: int
    weight: FloatArray
    floor: FloatArray
    cap: FloatArray
    known: BoolArray
    normalized: FloatArray
    gain: Gain = np.zeros_like
    reporting: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    concave: bool = True

    def __post_init__(self) -> None:
        if self.jobs and not len(self.reporting):
            object.__setattr__(self, "reporting", np.ones(len(self.jobs), dtype=bool))
        for name in ("weight", "floor", "cap", "known", "normalized", "reporting"):
            shape = np.shape(getattr(self, name))
            if shape != (len(self.jobs),):
                raise InvalidSetting(f"{name} has shape {shape} for {len(self.jobs)} jobs")
        if not (np.isfinite(self.weight).all() and (self.weight > 0).all()):
            raise InvalidSetting("every weight must be positive and finite")
        if not ((self.floor >= 0).all() and (self.cap >= 0).all()):
            raise InvalidSetting("floors and caps must not be negative")


@dataclass(frozen=True)
class Allocation:
    """What a policy decides. Arrays are (n_jobs,), in the order of the snapshot.

    Parameters
    ----------
    share : array
        Threads, at least 0, possibly fractional; their sum is at most the capacity (but for
        rounding below 1e-9 threads).
    index : array
        Order of dispatch, higher first. Jobs of equal index are served by attained
        core-seconds over share.
    """

    share: FloatArray
    index: FloatArray


class Policy(Protocol):
    """Shares and an order of dispatch for the jobs of a snapshot.

    A policy keeps no state between calls, does not depend on the order in which jobs are
    listed, gives every job at least its floor and at most its cap, and leaves no thread over
    while some job is below its cap. To add one, write one class in this file and list it in
    ``_POLICIES``; the tests take it from there.
    """

    name: str

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Decide; never raises on a valid snapshot."""
        ...


class Nothing:
    """The off-switch and baseline: equal shares, and no order that anybody should keep."""

    name = "none"

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

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Shares in proportion to the weights within floors and caps, and equal indices."""
        share = fair_fill(snapshot.weight, snapshot.floor, snapshot.cap, snapshot.capacity)
        return Allocation(share, np.zeros(len(snapshot.jobs)))


class _Priced:
    """Threads go one by one to the job to which the next one is worth most.

    Jobs without a forecast get their weighted fair share first. Threads worth nothing to anybody
    go out fairly, to the jobs with the smallest shares for their weight, so that none is idle
    because no forecast asked for it. The index is the worth of the first thread; a job yet to
    send its first reports has most to gain and comes first, one that never does last.
    """

    #: Whether stepped gains are replaced by their upper hull, for a worth that must fall.
    on_hull = False

    def worth(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Worth of a thread between these counts, (n_jobs,); must not rise with `start`."""
        raise NotImplementedError

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Share out by worth."""
        snapshot, judged = _judged(snapshot)
        if self.on_hull and not snapshot.concave and judged.any():
            snapshot = _on_hull(snapshot)
        weight, capacity = snapshot.weight, snapshot.capacity
        cap = np.clip(snapshot.cap, 0.0, capacity)
        floor = fit_floors(np.minimum(snapshot.floor, cap), capacity)
        fair = fair_fill(weight, floor, cap, capacity)
        share = hand_out(
            lambda start, stop: self.worth(snapshot, start, stop),
            np.where(judged, floor, fair),
            np.where(judged, cap, fair),
            capacity,
            _by_name(snapshot.jobs),
        )
        share = fair_fill(weight, share, cap, capacity)
        none = np.zeros(len(share))
        return Allocation(share, _index(self.worth(snapshot, none, none + 1.0), judged, snapshot))


class MaxTotal(_Priced):
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


class MaxMin(_Priced):
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


def _judged(snapshot: Snapshot) -> tuple[Snapshot, BoolArray]:
    """Jobs (n_jobs,) to be judged by their gains, and a snapshot in which the others have none."""
    gain, one = snapshot.gain, np.ones(len(snapshot.jobs))
    finite = np.isfinite(gain(one)) & np.isfinite(gain(one * snapshot.capacity))
    judged = snapshot.known & snapshot.reporting & finite & np.isfinite(snapshot.normalized)
    if judged.all():
        return snapshot, judged
    return replace(snapshot, gain=lambda threads: np.where(judged, gain(threads), 0.0)), judged


def _on_hull(snapshot: Snapshot) -> Snapshot:
    most = min(float(snapshot.cap.max()), snapshot.capacity)
    return replace(snapshot, gain=on_hull(snapshot.gain, len(snapshot.jobs), max(most, 1.0)))


def _index(first: FloatArray, judged: BoolArray, snapshot: Snapshot) -> FloatArray:
    """Order of dispatch by the worth of the first thread, new jobs before all others."""
    new = snapshot.reporting & ~judged
    top = float(first[judged].max(initial=0.0))
    index = np.where(judged, first, top + snapshot.weight)
    return np.where(judged | new, index, -1.0)


def _by_name(jobs: tuple[str, ...]) -> IntArray:
    return np.array(sorted(range(len(jobs)), key=jobs.__getitem__), dtype=np.int64)


_POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind for kind in (Nothing, Fair, MaxTotal, MaxMin)
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
