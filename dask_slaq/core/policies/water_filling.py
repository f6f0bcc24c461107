"""Exact water-rounds, used by all policies.

`hand_out` gives each thread to the job that values it most, as the paper's Algorithm 1 does, but
searches for the price of the last thread instead of going thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_slaq.core.jobs.arrays import EPSILON_THREADS, FloatArray, IntArray


def fair_fill(
    weight: FloatArray, floor: FloatArray, cap: FloatArray, capacity: float
) -> FloatArray:
    """Return weighted fair shares (n_jobs,) with floors and caps, fractional and exact.

    These are ``clip(level * weight, floor, cap)`` at the level where the sum is the capacity. Where
    floor and cap cross, the cap holds; floors above the capacity are scaled down.
    """
    cap = np.clip(cap, 0.0, capacity)
    floor = fit_floors(np.clip(floor, 0.0, cap), capacity)
    if floor.sum() >= capacity - EPSILON_THREADS:
        return floor
    if cap.sum() <= capacity:
        return cap
    # The sum is piecewise linear in the level. Each job adds its weight between floor and cap.
    bend = np.concatenate([floor / weight, cap / weight])
    order = np.argsort(bend)
    bend, change = bend[order], np.concatenate([weight, -weight])[order]
    slope = np.cumsum(change)[:-1]
    total = floor.sum() + np.concatenate([[0.0], np.cumsum(slope * np.diff(bend))])
    at = int(np.searchsorted(total, capacity, side="right")) - 1
    at = min(max(at, 0), len(slope) - 1)
    step = (capacity - total[at]) / slope[at] if slope[at] > 0 else 0.0
    level = min(bend[at] + step, bend[at + 1])
    return np.clip(level * weight, floor, cap)


def fit_floors(floor: FloatArray, capacity: float) -> FloatArray:
    """Return floors scaled down in proportion if they sum to more than the capacity."""
    total = floor.sum()
    return floor * (capacity / total) if total > capacity + EPSILON_THREADS else floor


def hand_out(
    value: MarginalValue,
    lower: FloatArray,
    upper: FloatArray,
    capacity: float,
    order: IntArray | None = None,
) -> FloatArray:
    """Give each thread to the job that values it most, until none is left or has a value.

    ``value(start, stop)`` is the value per thread (n_jobs,), which must not rise with `start`. Jobs
    start with `lower` threads, and get at most `upper`; ties are served in `order`. The result
    equals that of a heap of marginal values, in calls of `value` by the logarithm of the capacity.
    """
    units = Increments(value, lower, upper)
    order = np.arange(len(lower)) if order is None else order
    return _settle(units, np.zeros(len(lower)), units.most, capacity, order)


def _settle(
    units: Increments, low: FloatArray, high: FloatArray, capacity: float, order: IntArray
) -> FloatArray:
    """Return threads (n_jobs,), by trying prices that tighten the bounds on each job's units."""
    streak = 0
    # Candidate threads of all jobs (or the number of jobs, if larger) and of any one job at which
    # the search ends and the candidates are sorted.
    most_sorted, narrow = 4096, 32
    # Maximum number of prices tried. A run needs 10 to 25; the limit only matters if a value rises
    # where it should not.
    for _ in range(64):
        budget = capacity - units.share(low).sum()
        high = np.minimum(high, low + np.ceil(budget) + 1)
        width = high - low
        few = width.sum() <= max(most_sorted, len(low)) and width.max(initial=0.0) <= narrow
        if budget <= EPSILON_THREADS or few:
            return _hand_out_rest(units, low, high, capacity, order)
        # Fraction of the jobs: when at most this many have open bounds, the search goes on with
        # them only.
        if (width > 0).sum() <= 0.6 * len(low):
            return _settle_open(units, low, high, capacity, order)
        price, least, most = _probe(units, low, high, budget, streak)
        if price > 0:
            least, most = units.count(price, least, most, capacity)
            if units.share(least).sum() <= capacity:  # all units at this price fit
                low, streak = least, streak + 1
                continue
            if (most < high).any():  # units below this price do not fit
                high, streak = most, 0
                continue
        above, _ = units.count(max(price, 0.0), low, high, strict=True)
        if units.share(above).sum() > capacity:
            high, streak = above, 0
            continue
        low = units.count(price, above, high)[0] if price > 0 else above
        if price <= 0 or units.share(low).sum() >= capacity:  # price of the last thread
            return _hand_out_ties(units, above, low, capacity, order)
    return _hand_out_ties(units, low, high, capacity, order)


def _settle_open(
    units: Increments, low: FloatArray, high: FloatArray, capacity: float, order: IntArray
) -> FloatArray:
    """Go on with the jobs whose bounds are still open; the others keep their units."""
    rows = np.flatnonzero(high > low)
    share = units.share(low)
    left = capacity - share.sum() + share[rows].sum()
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order))
    share[rows] = _settle(units.of(rows), low[rows], high[rows], left, np.argsort(turn[rows]))
    return share


def _probe(
    units: Increments, low: FloatArray, high: FloatArray, budget: float, streak: int
) -> tuple[float, FloatArray, FloatArray]:
    """Return a price near that of the last thread, and the bounds on units that it implies."""
    width = high - low
    part = min(0.5, budget / width.sum() * 4.0**streak)
    probe = low + np.clip(np.ceil(part * width), 1.0, np.maximum(width, 1.0))
    value = units.marginal_value(probe)
    wide = width > 0
    price = float(np.partition(value[wide], wide.sum() // 2)[wide.sum() // 2])
    good = value >= price
    return price, np.where(wide & good, probe, low), np.where(wide & ~good, probe - 1, high)


def _hand_out_ties(
    units: Increments, low: FloatArray, high: FloatArray, capacity: float, order: IntArray
) -> FloatArray:
    """Give out units of equal value job by job, as a heap that breaks ties by job does."""
    share = units.share(low)
    cost = (units.share(high) - share)[order]
    share[order] += while_it_lasts(cost, capacity - share.sum())
    return share


def _hand_out_rest(
    units: Increments, low: FloatArray, high: FloatArray, capacity: float, order: IntArray
) -> FloatArray:
    """Sort the few units that are still open by marginal value, and give out those that fit."""
    share = units.share(low)
    budget = capacity - share.sum()
    if budget <= EPSILON_THREADS:
        return share
    job, cost, value = _listed(units, low, high, order)
    wanted = np.flatnonzero((cost > 0) & (value > 0))
    wanted = wanted[np.argsort(-value[wanted], kind="stable")]
    given = while_it_lasts(cost[wanted], budget)
    np.add.at(share, job[wanted], given)
    return share


def _listed(
    units: Increments, low: FloatArray, high: FloatArray, order: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return job, threads and value of each unit between the bounds, by job in tie order."""
    width = (high - low)[order].astype(np.int64)
    job = np.repeat(order, width)
    number = low[job] + np.arange(1.0, len(job) + 1.0) - np.repeat(np.cumsum(width) - width, width)
    open_ = units.of(job)
    return job, open_.share(number) - open_.share(number - 1.0), open_.marginal_value(number)


def while_it_lasts(cost: FloatArray, budget: float) -> FloatArray:
    """Return what each `cost` (n,) gets of a `budget` in order; the last one may get a part."""
    return np.clip(budget - (np.cumsum(cost) - cost), 0.0, cost)


Gain = Callable[[FloatArray], FloatArray]
MarginalValue = Callable[[FloatArray, FloatArray], FloatArray]


def rows_of(function: Callable[..., Any], rows: IntArray, n_jobs: int) -> Callable[..., Any]:
    """Restrict a gain or value to the jobs at `rows`, by its method ``of`` if it has one."""
    if hasattr(function, "of"):
        return function.of(rows)

    def some(*threads: FloatArray) -> FloatArray:
        value = np.empty(len(rows))
        for turn in _distinct(rows):
            # The other jobs need some valid argument: from 0 threads to 1.
            whole = [np.full(n_jobs, float(k)) for k in range(len(threads))]
            for all_, mine in zip(whole, threads, strict=True):
                all_[rows[turn]] = mine[turn]
            value[turn] = function(*whole)[rows[turn]]
        return value

    return some


def _distinct(rows: IntArray) -> list[IntArray]:
    """Split the positions of `rows` into parts without repeated rows."""
    order = np.argsort(rows, kind="stable")
    new = np.append(True, np.diff(rows[order]) != 0)[: len(rows)]
    place = np.arange(len(rows))
    turn = place - np.maximum.accumulate(np.where(new, place, 0))
    return [order[turn == k] for k in range(int(turn.max(initial=-1)) + 1)]


class Increments:
    """Units of one thread that each job may get above its lower bound, numbered from 1."""

    def __init__(self, value: MarginalValue, lower: FloatArray, upper: FloatArray) -> None:
        self.lower = np.asarray(lower, dtype=float)
        self.base = np.floor(self.lower + EPSILON_THREADS)
        self.most = np.maximum(np.floor(upper + EPSILON_THREADS) - self.base, 0.0)
        self._value = value

    def of(self, rows: IntArray) -> Increments:
        """Return the increments of the jobs at `rows`, which may repeat."""
        value = rows_of(self._value, rows, len(self.lower))
        return Increments(value, self.lower[rows], self.base[rows] + self.most[rows])

    def share(self, count: FloatArray) -> FloatArray:
        """Return the threads (n_jobs,) of jobs that have `count` (n_jobs,) units."""
        return np.maximum(self.lower, self.base + count)

    def marginal_value(self, number: FloatArray) -> FloatArray:
        """Return the value (n_jobs,) of each job's unit with this `number` (n_jobs,)."""
        stop = self.base + np.maximum(number, 1.0)
        value = self._value(np.maximum(stop - 1.0, self.lower), stop)
        return np.where(np.isfinite(value), value, 0.0)

    def count(
        self,
        price: float,
        low: FloatArray,
        high: FloatArray,
        capacity: float | None = None,
        *,
        strict: bool = False,
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds on the units of each job that are worth the price, by bisection."""
        while (low < high).any():
            if capacity is not None and (
                self.share(low).sum() > capacity or self.share(high).sum() <= capacity
            ):
                break
            middle = np.ceil((low + high) / 2)
            value = self.marginal_value(middle)
            good = value > price if strict else value >= price
            good |= low == high
            low, high = np.where(good, middle, low), np.where(good, high, middle - 1)
        return low, high
