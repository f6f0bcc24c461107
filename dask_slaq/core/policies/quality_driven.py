"""Policy protocol, and the quality-driven policies.

Most subclass `GreedyPolicy` and define only the value of a job's next thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray
from dask_slaq.core.policies.base import (
    GreedyPolicy,
    MarginalValues,
    by_name,
    first_value,
    index_of,
)
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, hand_out

#: Exchange rate of the measure: core-seconds to the target of a training that weigh as one to the
#: end of work without a loss. docs/evaluation.md says how it was chosen.
EXCHANGE_RATE = 3.0
#: The same to the end of a training, which has had most of its value before. With 3, trainings of
#: `benchmarks.live` are at 90 % a quarter later.
EXCHANGE_RATE_AT_END = 10.0
#: Work left, as a part of what a job has had, at which it is nearly done and gets threads for that.
NEARLY_PART = 0.1


class Policy(Protocol):
    """Function from a snapshot of the jobs to their shares and their order of dispatch.

    The engine calls its policy once per epoch, or twice if `with_efficiency_cap` limits a job.

    `Snapshot` describes the input: arrays with one element per job, and the functions ``gain`` and
    ``speed``. The returned `Allocation` has two arrays (n_jobs,) in the order of ``snapshot.jobs``:

    - ``share``, in threads, possibly fractional: finite, at least the job's floor and at most its
      cap. Where the two cross, the cap holds. Floors that sum to more than the capacity are scaled
      down in proportion. Shares sum to the capacity, or to the caps where these sum to less: no
      thread is left over while some job is below its cap.
    - ``index``, a finite number: jobs with a higher index are dispatched first, and ratios count.
      New jobs, for which ``known`` is false but ``reporting`` is true, usually come first, so that
      they report soon.

    A policy keeps no state between calls and does not change the snapshot. The result for a job
    does not depend on the order of ``snapshot.jobs``, and a larger weight never lowers its share.
    A job without a finite gain is treated like a job whose ``known`` is false. Jobs of which
    neither is true get their weighted fair share.

    `dask_slaq.testing.check_policy` checks these rules; `GreedyPolicy` keeps them.

    Attributes
    ----------
    name : str
        Name in settings and on the command line.
    needs, follows_losses, by_service, holds_tasks, by_tokens, presets : optional
        See `Traits`. A policy that lacks one has its default.

    Examples
    --------
    Loss reductions that count more, the higher the loss still is:

    >>> class GainTimesLoss(GreedyPolicy):
    ...     name = "gain-times-loss"
    ...
    ...     def marginal_value(self, snapshot, start, stop):
    ...         rise = snapshot.gain(stop) - snapshot.gain(start)
    ...         return snapshot.weight * snapshot.normalized * rise / (stop - start)
    >>> two, loss = np.ones(2), np.array([1.0, 0.5])
    >>> gain = lambda threads: loss * (1 - 0.5**threads)
    >>> GainTimesLoss()(Snapshot(("a", "b"), 6, two, 0 * two, 9 * two, two > 0, loss, gain))
    Allocation(share=array([4., 2.]), index=array([0.5  , 0.125]))
    """

    name: str

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return the allocation for a snapshot. Must not raise if the snapshot is valid."""
        ...


class Traits(NamedTuple):
    """What a policy says of itself by attributes, each of which may be missing.

    Attributes
    ----------
    needs : frozenset of str
        Which of ``"to_target"`` and ``"to_end"`` it reads. The engine computes only these; the
        others stay inf.
    follows_losses : bool
        False if it goes by weights only. Such a policy keeps every promise by itself, and is not
        called with a cap at the efficient thread counts.
    by_service : bool
        Whether the scheduler keeps jobs at their shares by the core-seconds that they have used,
        and by guarantees only where a floor was set.
    holds_tasks : bool
        False to leave every task to Dask, except for limits and pauses.
    by_tokens : bool
        Whether shares are enforced: each job is credited with core-seconds at the rate of its
        share, its tasks use them up, and a job that has none left waits.
    presets : mapping
        Values of settings of `Engine` that this policy uses where they are left at their defaults.
    """

    needs: frozenset[str] = frozenset()
    follows_losses: bool = True
    by_service: bool = False
    holds_tasks: bool = True
    by_tokens: bool = False
    presets: Mapping[str, Any] = MappingProxyType({})


def traits_of(policy: Policy) -> Traits:
    """Return the traits of a policy, with defaults for those that it lacks."""
    given = {name: getattr(policy, name) for name in Traits._fields if hasattr(policy, name)}
    return Traits(**given)


class Nothing:
    """Equal shares and equal indices: the off-switch, and a baseline."""

    name = "none"
    follows_losses = holds_tasks = False

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return equal shares within floors and caps. Weights are ignored."""
        one = np.ones(len(snapshot.jobs))
        share = fair_fill(one, snapshot.floor, snapshot.cap, snapshot.capacity)
        return Allocation(share, 0.0 * one)


class Fair:
    """Weighted fair shares, regardless of loss."""

    name = "fair"
    follows_losses, by_service = False, True

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return shares in proportion to the weights, within floors and caps."""
        share = fair_fill(snapshot.weight, snapshot.floor, snapshot.cap, snapshot.capacity)
        return Allocation(share, np.zeros(len(snapshot.jobs)))


class MaxTotal(GreedyPolicy):
    """Largest weighted sum of loss reductions by the next epoch: the paper's objective.

    Jobs outbid by others get only their floor, which may be 0. The index is the weighted gain of
    the first thread.
    """

    name = "max-total"

    def marginal_value(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Return the weighted gain per thread."""
        rise = snapshot.gain(stop) - snapshot.gain(start)
        return snapshot.weight * rise / (stop - start)


class FirstToTarget(MaxTotal):
    """Least work left to the next milestone first (shortest remaining time), then by gain.

    The milestones of a job are its target and its end (see `EXCHANGE_RATE_AT_END`). Without the
    second one, a job that is wrongly taken to be at its target would be last, and what is nearly
    done would wait.

    Each thread goes to the job for which it raises speed most, relative to the core-seconds left to
    its target, or to its end if it is nearly done, divided by its weight. While jobs scale well,
    the job with the least work left gets as many threads as it can use, then the next job. Where
    further threads add little, several jobs share them. Jobs without such a milestone share the
    remaining threads as under `max-total`: which of those at their targets still learns is better
    known than which is done.

    The index is the weight over the core-seconds left to the nearer milestone: the part of its way
    that a job goes in a core-second, 1/core-seconds. That of jobs without a milestone is below all
    others and rises with the gain of their first thread.
    """

    name = "first-to-target"
    needs = frozenset({"to_target", "to_end"})

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Return threads given where each shortens the time most. See `GreedyPolicy.first`."""

        def shortening(part: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
            faster = part.speed(stop) - part.speed(start)
            nearly_done = part.to_end <= NEARLY_PART * part.attained
            end = np.where(nearly_done, _to_end(part), np.inf)
            return part.weight * faster / ((stop - start) * np.minimum(_to_target(part), end))

        value = MarginalValues(shortening, snapshot)
        return hand_out(value, lower, upper, snapshot.capacity, by_name(snapshot.jobs))

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Return the order of dispatch, job by job. See `GreedyPolicy.index`."""
        left = np.minimum(_to_target(snapshot), _to_end(snapshot)) / snapshot.weight
        gain = np.maximum(first_value(self, snapshot), 0.0)
        # Core-seconds; less is left to a job that is all but there, whose index stays finite.
        value = 1.0 / np.maximum(left, 1e-6)
        known = has_forecast & (value > 0)
        least = float(value[known].min()) if known.any() else 1.0
        value = np.where(np.isfinite(left), value, least * gain / (1.0 + gain))
        return index_of(value, has_forecast, snapshot, float(value[has_forecast].max(initial=0.0)))


class MaxMin(GreedyPolicy):
    """Lowest possible maximum of the weighted normalized loss by the next epoch.

    Threads go to the job with the highest predicted loss, until all jobs are at the lowest common
    level. A job that cannot reach this level gets its cap, and takes nearly all threads if further
    threads help it little and its cap does not limit it. The index is the weighted normalized loss.
    """

    name = "max-min"

    def marginal_value(self, snapshot: Snapshot, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Return the weighted loss predicted at `start`, or 0 if more threads do not lower it."""
        reached = snapshot.gain(start)
        most = np.clip(snapshot.cap, start, np.maximum(start, snapshot.capacity))
        left = snapshot.weight * np.maximum(snapshot.normalized - reached, 0.0)
        return np.where(snapshot.gain(most) > reached, left, 0.0)


def _to_target(snapshot: Snapshot) -> FloatArray:
    """Return core-seconds to the target (n_jobs,), inf where reached or unknown."""
    return np.where(snapshot.to_target > 0, snapshot.to_target, np.inf)


def _to_end(snapshot: Snapshot) -> FloatArray:
    """Return core-seconds to the end (n_jobs,) times the rate, inf where reached or unknown."""
    return np.where(snapshot.to_end > 0, EXCHANGE_RATE_AT_END * snapshot.to_end, np.inf)


def with_efficiency_cap(policy: Policy, snapshot: Snapshot) -> Allocation:
    """Apply a policy; threads beyond a job's efficient count only if they are left over.

    Else one job may get threads that make it little faster, while another could use them well.
    """
    well = np.minimum(np.maximum(snapshot.efficient, snapshot.floor), snapshot.cap)
    if not (well < np.minimum(snapshot.cap, snapshot.capacity)).any():
        return policy(snapshot)
    first = policy(replace(snapshot, cap=well))
    # Fraction of the capacity that counts as rounding.
    if first.share.sum() >= snapshot.capacity * (1.0 - 1e-9):
        return first
    rest = policy(replace(snapshot, floor=first.share))
    return Allocation(rest.share, first.index)
