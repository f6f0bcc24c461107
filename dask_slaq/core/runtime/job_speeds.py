"""Speed of jobs as a function of their threads, by waves of tasks or by Ernest's law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.runtime import ernest as scaling


@dataclass(frozen=True)
class Speeds:
    """Speed of several jobs as a function of their threads."""

    work: FloatArray  # (n_jobs,) core-seconds of one iteration, 0 where unknown
    width: FloatArray  # (n_jobs,) parallel tasks of one iteration, at least 1
    useful: FloatArray  # (n_jobs,) threads beyond which none helps, at least 1; inf if unknown
    scaled: IntArray  # (n_scaled,) positions of jobs that follow Ernest's law, increasing
    law: FloatArray  # (n_scaled, 4) laws of these jobs

    def __call__(self, threads: FloatArray) -> FloatArray:
        """Return iterations per second (n_jobs,) on fractional `threads`: concave."""
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
        """Threads (n_jobs,), at most `useful`, beyond which a further one adds little speed."""
        most = self.useful.copy()
        if len(self.scaled):
            # Minimum speed that a further thread must add, as a fraction of the mean speed per
            # thread, to be granted while other jobs want it.
            well = np.maximum(np.floor(scaling.efficient(self.law, 0.25)), 1.0)
            most[self.scaled] = np.minimum(most[self.scaled], well)
        return most

    def of(self, rows: IntArray) -> Speeds:
        """Return the speeds of the jobs at positions `rows`."""
        scaled, mine = among(self.scaled, rows, len(self.work))
        return Speeds(self.work[rows], self.width[rows], self.useful[rows], scaled, self.law[mine])

    def linear(self) -> Speeds:
        """Return the same work, of which every thread does an equal part (§4.2.1 of the paper)."""
        useful = np.full(len(self.work), np.inf)
        return Speeds(self.work, self.width, useful, np.zeros(0, np.int64), self.law[:0])

    def fewest(self, threads: FloatArray) -> FloatArray:
        """Return the fewest threads with as many waves as `threads`; inf by Ernest's law."""
        least: FloatArray = np.ceil(self.width / waves(self.width, threads))
        least[self.scaled] = np.inf
        return least

    def core_seconds(self, threads: FloatArray) -> FloatArray:
        """Return the core-seconds of one iteration on `threads` (n_jobs,); 0 where unknown."""
        cost = self.work.copy()
        if len(self.scaled):
            n = np.clip(threads[self.scaled], 1.0, self.useful[self.scaled])
            cost[self.scaled] = n * scaling.fitted_seconds(self.law, n)
        return cost


@dataclass(frozen=True)
class Progress:
    """Core-seconds of work per second of several jobs as a function of their threads (n_jobs,)."""

    speeds: Speeds
    work: FloatArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        return self.speeds(threads) * self.work

    def of(self, rows: IntArray) -> Progress:
        """Return the rates of the jobs at positions `rows`."""
        return Progress(self.speeds.of(rows), self.work[rows])


def among(listed: IntArray, rows: IntArray, n_jobs: int) -> tuple[IntArray, IntArray]:
    """Return the positions in `rows` of the jobs that are `listed`, and their positions there."""
    if not len(listed):
        return listed, listed
    if len(listed) == n_jobs:
        return np.arange(len(rows)), rows
    at = np.full(n_jobs, -1)
    at[listed] = np.arange(len(listed))
    found = np.flatnonzero(at[rows] >= 0)
    return found, at[rows[found]]


def waves(width: ArrayLike, threads: ArrayLike) -> FloatArray:
    """Return the waves of iterations of `width` tasks on whole threads: ``ceil(P / N)``."""
    each = np.asarray(width, float) / np.maximum(np.asarray(threads, float), 1.0)
    # Tolerance in waves: averaged thread counts are whole numbers up to rounding errors.
    return np.ceil(each - 1e-9)
