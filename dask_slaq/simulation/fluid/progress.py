"""Progress of simulated jobs: iterations done, and when each one ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dask_slaq.core.job_arrays import IntArray
from dask_slaq.simulation.workload import SimulatedJob

#: Tolerance in iterations: work this close to the end of an iteration has reached it.
EPSILON = 1e-7


class Iterations:
    """Iterations of all jobs, each job at its own rate. Arrays are (n_jobs,).

    The caller sets `rate`, iterations per second, and `compute`, core-seconds per second. `unsaid`
    are core-seconds not yet reported to the engine, `finished` the iterations that have ended, and
    `times` when each of them ended, in seconds after the start.
    """

    def __init__(self, jobs: Sequence[SimulatedJob]) -> None:
        n = len(jobs)
        self._done = np.zeros(n)  # iterations, possibly a fraction
        self._count = np.array([len(job.loss) for job in jobs])
        self.finished = np.zeros(n, dtype=np.int64)
        self.rate, self.compute, self.unsaid = np.zeros((3, n))
        self.times = [np.full(len(job.loss), np.nan) for job in jobs]

    def next_end(self, active: IntArray) -> float:
        """Return the seconds until the next active job ends."""
        going = active[self.rate[active] > 0]
        if not len(going):
            return math.inf
        return float(((self._count[going] - self._done[going]) / self.rate[going]).min())

    def advance(
        self, active: IntArray, start: float, now: float
    ) -> list[tuple[float, int, int, float]]:
        """Compute from `start` to `now`, in seconds, for the `active` jobs.

        Returns (seconds, job, iteration, core-seconds) of the iterations that ended, in order of
        time. Core-seconds are those computed since the job's last entry.
        """
        before = self._done[active]
        self._done[active] += self.rate[active] * (now - start)
        self.unsaid[active] += self.compute[active] * (now - start)
        ended: list[tuple[float, int, int, float]] = []
        for j in np.flatnonzero(self._done[active] >= self.finished[active] + 1 - EPSILON).tolist():
            ended += self._ended(int(active[j]), float(before[j]), start, now)
        ended.sort()
        return ended

    def _ended(
        self, i: int, before: float, start: float, now: float
    ) -> list[tuple[float, int, int, float]]:
        """Record and return the iterations of one job that ended, as `advance` does."""
        first = int(self.finished[i])
        stop = min(int(self._done[i] + EPSILON), int(self._count[i]))
        ends = np.arange(first + 1, stop + 1)
        times = np.clip(start + (ends - before) / self.rate[i], start, now)
        self.times[i][first:stop] = times
        self.finished[i] = stop
        took = np.diff(times, prepend=start) * self.compute[i]
        rest = (now - times[-1]) * self.compute[i]
        took[0] = self.unsaid[i] - took[1:].sum() - rest
        self.unsaid[i] = rest
        each = zip(times.tolist(), took.tolist(), strict=True)
        return [(time, i, first + k, seconds) for k, (time, seconds) in enumerate(each)]

    def through(self, active: IntArray) -> npt.NDArray[np.bool_]:
        """Return a mask (n_active,) of the active jobs that have ended."""
        through: npt.NDArray[np.bool_] = self.finished[active] == self._count[active]
        return through
