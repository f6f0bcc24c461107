"""Threads that jobs may get, one by one, and what each is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Gain = Callable[[FloatArray], FloatArray]
Worth = Callable[[FloatArray, FloatArray], FloatArray]

#: Threads; sums of shares differ by rounding below it.
EPSILON = 1e-9


def rows_of(function: Callable[..., Any], rows: IntArray, n_jobs: int) -> Callable[..., Any]:
    """A gain or worth for some of the jobs alone.

    Parameters
    ----------
    function : callable
        Of arrays (n_jobs,); if it has a method ``of(rows)`` that gives the same for these jobs
        alone, the others cost nothing.
    rows : (n_rows,) array of int
        Which of the jobs; one may come several times.
    n_jobs : int

    Returns
    -------
    callable
        Of arrays (n_rows,).
    """
    if hasattr(function, "of"):
        restricted: Callable[..., Any] = function.of(rows)
        return restricted

    def some(*threads: FloatArray) -> FloatArray:
        value = np.empty(len(rows))
        for turn in _distinct(rows):
            # The others go from no thread to one.
            whole = [np.full(n_jobs, float(k)) for k in range(len(threads))]
            for all_, mine in zip(whole, threads, strict=True):
                all_[rows[turn]] = mine[turn]
            value[turn] = function(*whole)[rows[turn]]
        return value

    return some


def _distinct(rows: IntArray) -> list[IntArray]:
    """Positions of all rows, parted so that none of them comes twice in a part."""
    order = np.argsort(rows, kind="stable")
    new = np.append(True, np.diff(rows[order]) != 0)[: len(rows)]
    place = np.arange(len(rows))
    turn = place - np.maximum.accumulate(np.where(new, place, 0))
    return [order[turn == k] for k in range(int(turn.max(initial=-1)) + 1)]


class Increments:
    """The threads each job may get above its lower bound, numbered from 1.

    Attributes
    ----------
    lower : (n_jobs,) array
    base : (n_jobs,) array
        Whole threads in it.
    most : (n_jobs,) array
        Units of each job.
    """

    def __init__(self, worth: Worth, lower: FloatArray, upper: FloatArray) -> None:
        self.lower = np.asarray(lower, dtype=float)
        self.base = np.floor(self.lower + EPSILON)
        self.most = np.maximum(np.floor(upper + EPSILON) - self.base, 0.0)
        self._worth = worth

    def of(self, rows: IntArray) -> Increments:
        """Those of some of the jobs, of one maybe several times."""
        worth = rows_of(self._worth, rows, len(self.lower))
        return Increments(worth, self.lower[rows], self.base[rows] + self.most[rows])

    def share(self, count: FloatArray) -> FloatArray:
        """Threads (n_jobs,) that jobs with so many units have."""
        share: FloatArray = np.maximum(self.lower, self.base + count)
        return share

    def worth(self, number: FloatArray) -> FloatArray:
        """Worth (n_jobs,) of the units of these numbers."""
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
        """Bounds (n_jobs,) of the number of units that are worth the price, or strictly more.

        They start at `low` and `high` and close; with a capacity, only until it is clear
        whether so many units exceed it.
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
