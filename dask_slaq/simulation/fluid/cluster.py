"""The workers of a simulated cluster: how many there are, who holds them, and where data is.

What jobs hold is flat arrays, one element each a pair of job and worker, so that a decision costs
no walk over thousands of workers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.placement import Placement, Workers

__all__ = ["GROUP", "Cluster", "workers"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Threads of a worker.
GROUP = 16
#: Workers that there can be at most: one number stands for a job and a worker.
_MOST = 1 << 32


class Cluster:
    """Workers that come and go, and the sets of them that jobs hold.

    Parameters
    ----------
    n_jobs, cores : int
    capacity : sequence of (seconds, cores)
        Changes of the number of cores.
    move_pause : float
        Seconds that the data of a job needs to a worker that it gained.

    Attributes
    ----------
    workers : Workers
    cores : int
        Threads of them all.
    moved : int
        Workers that jobs gained.
    """

    def __init__(
        self, n_jobs: int, cores: int, capacity: Sequence[tuple[float, int]], move_pause: float
    ) -> None:
        self._n_jobs, self._changes, self._move_pause = n_jobs, deque(capacity), move_pause
        self.moved = 0
        # What is held, by job and worker: both numbers in one, threads, and when data is there.
        self._pair: IntArray = np.zeros(0, np.int64)
        self._threads, self._ready = np.zeros((2, 0))
        self._set(cores)

    def _set(self, cores: int) -> None:
        self.cores, self.workers = cores, workers(cores)
        if not (self.workers or self._changes):
            raise InvalidSetting("jobs are left over, but there are no cores for them, ever")

    @property
    def next_change(self) -> float:
        """When workers leave or join."""
        return self._changes[0][0] if self._changes else math.inf

    def resize(self) -> tuple[FloatArray, FloatArray]:
        """Make the next change: workers leave, or join, at the end of the list.

        Returns
        -------
        lost, held : (n_jobs,) array
            Threads that each job lost, and threads that it had.

        Raises
        ------
        InvalidSetting
            No core is left, and none will come.
        """
        before = len(self.workers)
        self._set(self._changes.popleft()[1])
        worker = self._pair % _MOST
        lost = (worker >= len(self.workers)) & (worker < before)
        return self._sum(lost), self._sum()

    def hold(self, sets: Placement, jobs: IntArray, now: float) -> None:
        """Jobs hold these sets from now on; `jobs` (n_sets,) are their numbers."""
        entries = sets.entries
        pair = jobs[entries.job] * _MOST + entries.worker
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        at = np.minimum(np.searchsorted(self._pair, pair), max(len(self._pair) - 1, 0))
        known = self._pair[at] == pair if len(self._pair) else np.zeros(len(pair), bool)
        self.moved += int(len(pair) - known.sum())
        ready = np.full(len(pair), now + self._move_pause)
        ready[known] = self._ready[at[known]]
        self._pair, self._threads, self._ready = pair, entries.amount[order], ready

    def next_arrival(self, active: IntArray, now: float) -> float:
        """When the data of one of these jobs is next on a worker that it gained."""
        if not self._move_pause:
            return math.inf
        later = (self._ready > now) & np.isin(self._pair // _MOST, active)
        return float(self._ready[later].min(initial=math.inf))

    def arrived(self, active: IntArray, now: float) -> FloatArray:
        """Part (n_active,) of their threads that have these jobs' data."""
        if not self._move_pause:
            return np.ones(len(active))
        there, held = self._sum(self._ready <= now)[active], self._sum()[active]
        return np.divide(there, held, out=np.ones(len(active)), where=held > 0)

    def _sum(self, some: npt.NDArray[np.bool_] | slice = slice(None)) -> FloatArray:
        """Threads (n_jobs,) that each job holds, or holds of these."""
        job = self._pair[some] // _MOST
        return np.asarray(np.bincount(job, self._threads[some], self._n_jobs), np.float64)


def workers(cores: int) -> Workers:
    """Workers of `GROUP` threads, the last one of what is left.

    >>> dict(workers(40))
    {'worker-000000': 16, 'worker-000001': 16, 'worker-000002': 8}
    """
    return Workers(
        {
            f"worker-{start // GROUP:06d}": min(GROUP, cores - start)
            for start in range(0, cores, GROUP)
        }
    )
