"""How fast jobs iterate on N threads, by waves of tasks or by Ernest's law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_slaq.core.runtime import ernest as scaling

__all__ = ["Progress", "Speeds", "among", "waves"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Waves; a thread count that is an average is whole but for rounding.
ROUNDING = 1e-9
#: A thread is worth having, while others want it, if it adds this part of what the mean one gives.
WORTHWHILE = 0.25


@dataclass(frozen=True)
class Speeds:
    """How fast jobs iterate on threads. Arrays are (n_jobs,).

    Attributes
    ----------
    work : array
        Core-seconds of one iteration, 0 where not yet known.
    width : array
        Parallel tasks of one iteration, at least 1.
    useful : array
        Threads beyond which a job is not said to be faster, at least 1; inf where nothing is known.
    scaled : (n_scaled,) array of int
        Jobs for which Ernest's law holds.
    law : (n_scaled, 4) array
        Their laws.
    """

    work: FloatArray
    width: FloatArray
    useful: FloatArray
    scaled: IntArray
    law: FloatArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        """Iterations a second on `threads` (n_jobs,), possibly fractional (time-shared).

        Nondecreasing and concave; 0 where the work is not known. Slots are filled task by task
        and lent at barriers, so a fraction of a wave is not lost: the upper hull of the wave
        counts, which is the straight line up to `width`.
        """
        threads = np.minimum(threads, self.useful)
        if self._all_known:
            speed = threads / self.work
        else:
            speed = np.divide(threads, self.work, out=np.zeros_like(threads), where=self.work > 0)
        if len(self.scaled):
            some = threads[self.scaled]
            seconds = scaling.fitted_seconds(self.law, np.maximum(some, 1.0))
            speed[self.scaled] = np.minimum(some, 1.0) / seconds
        return speed

    @cached_property
    def _all_known(self) -> bool:
        return bool((self.work > 0).all())

    @property
    def efficient(self) -> FloatArray:
        """Threads (n_jobs,), at most `useful`, beyond which a further one adds little."""
        most = self.useful.copy()
        if len(self.scaled):
            well = np.maximum(np.floor(scaling.efficient(self.law, WORTHWHILE)), 1.0)
            most[self.scaled] = np.minimum(most[self.scaled], well)
        return most

    def of(self, rows: IntArray) -> Speeds:
        """Of some of the jobs alone."""
        scaled, mine = among(self.scaled, rows, len(self.work))
        return Speeds(self.work[rows], self.width[rows], self.useful[rows], scaled, self.law[mine])

    def fewest(self, threads: FloatArray) -> FloatArray:
        """The fewest threads (n_jobs,) on which an iteration takes as many waves as on `threads`;
        inf where no waves were seen."""
        least: FloatArray = np.ceil(self.width / waves(self.width, threads))
        least[self.scaled] = np.inf
        return least

    def core_seconds(self, threads: FloatArray) -> FloatArray:
        """Core-seconds of one iteration on `threads` (n_jobs,); 0 where not known."""
        cost = self.work.copy()
        if len(self.scaled):
            n = np.clip(threads[self.scaled], 1.0, self.useful[self.scaled])
            cost[self.scaled] = n * scaling.fitted_seconds(self.law, n)
        return cost


@dataclass(frozen=True)
class Progress:
    """Core-seconds of work that jobs do in a second, on threads (n_jobs,).

    Attributes
    ----------
    speeds : Speeds
    work : (n_jobs,) array
        Core-seconds that an iteration counts for.
    """

    speeds: Speeds
    work: FloatArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        return self.speeds(threads) * self.work

    def of(self, rows: IntArray) -> Progress:
        """Of some of the jobs alone."""
        return Progress(self.speeds.of(rows), self.work[rows])


def among(listed: IntArray, rows: IntArray, n_jobs: int) -> tuple[IntArray, IntArray]:
    """Which of `rows` are `listed`, in increasing order, and where; both by their places.

    Examples
    --------
    >>> [places.tolist() for places in among(np.array([1, 3]), np.array([3, 2]), 4)]
    [[0], [1]]
    """
    if not len(listed):
        return listed, listed
    if len(listed) == n_jobs:
        return np.arange(len(rows)), rows
    at = np.full(n_jobs, -1)
    at[listed] = np.arange(len(listed))
    found = np.flatnonzero(at[rows] >= 0)
    return found, at[rows[found]]


def waves(width: ArrayLike, threads: ArrayLike) -> FloatArray:
    """Waves in which one iteration runs on whole threads: ``ceil(P / N)``.

    Examples
    --------
    >>> waves([8, 8, 8], [8, 7, 3]).tolist()
    [1.0, 2.0, 3.0]
    """
    each = np.asarray(width, float) / np.maximum(np.asarray(threads, float), 1.0)
    value: FloatArray = np.ceil(each - ROUNDING)
    return value
