"""Threads that jobs may get one by one, and the worth of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_slaq.core.job_arrays import FloatArray, IntArray

Gain = Callable[[FloatArray], FloatArray]
Worth = Callable[[FloatArray, FloatArray], FloatArray]

#: Threads. Smaller differences between sums of shares are rounding.
EPSILON = 1e-9


def rows_of(function: Callable[..., Any], rows: IntArray, n_jobs: int) -> Callable[..., Any]:
    """Restrict a gain or worth of arrays (n_jobs,) to the jobs at `rows`, which may repeat.

    If the function has a method ``of(rows)`` that restricts it, the other jobs are not computed.
    """
    if hasattr(function, "of"):
        restricted: Callable[..., Any] = function.of(rows)
        return restricted

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
    """Units of one thread that each job may get above its lower bound, numbered from 1.

    ``base`` (n_jobs,) is the whole threads in `lower`, and ``most`` (n_jobs,) the number of units.
    """

    def __init__(self, worth: Worth, lower: FloatArray, upper: FloatArray) -> None:
        self.lower = np.asarray(lower, dtype=float)
        self.base = np.floor(self.lower + EPSILON)
        self.most = np.maximum(np.floor(upper + EPSILON) - self.base, 0.0)
        self._worth = worth

    def of(self, rows: IntArray) -> Increments:
        """Return the increments of the jobs at `rows`, which may repeat."""
        worth = rows_of(self._worth, rows, len(self.lower))
        return Increments(worth, self.lower[rows], self.base[rows] + self.most[rows])

    def share(self, count: FloatArray) -> FloatArray:
        """Return the threads (n_jobs,) of jobs that have `count` (n_jobs,) units."""
        share: FloatArray = np.maximum(self.lower, self.base + count)
        return share

    def worth(self, number: FloatArray) -> FloatArray:
        """Return the worth (n_jobs,) of each job's unit with this `number` (n_jobs,)."""
        stop = self.base + np.maximum(number, 1.0)
        value = self._worth(np.maximum(stop - 1.0, self.lower), stop)
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
        """Count the units of each job that are worth at least the price, by bisection.

        Returns bounds (n_jobs,) on the counts, within `low` and `high`. They are equal unless it is
        clear earlier whether the units exceed the `capacity`. With `strict`, only units worth more
        than the price count.
        """
        while (low < high).any():
            if capacity is not None and (
                self.share(low).sum() > capacity or self.share(high).sum() <= capacity
            ):
                break
            middle = np.ceil((low + high) / 2)
            value = self.worth(middle)
            good = value > price if strict else value >= price
            good |= low == high
            low, high = np.where(good, middle, low), np.where(good, high, middle - 1)
        return low, high
