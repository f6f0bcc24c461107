"""Workers of a simulated cluster, the jobs that hold them, and where the data of jobs is.

Holdings are flat arrays with one element per pair of job and worker, so that a decision does not
loop over thousands of workers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.placement import Placement, Workers

#: Threads per worker, if nothing else is said.
GROUP = 16
#: Most workers: a pair of job and worker is stored as one number, ``job * _MOST + worker``.
_MOST = 1 << 32


class Cluster:
    """Workers with `cores` threads, and the worker sets that `n_jobs` jobs hold.

    The data of a job takes `move_pause` seconds to a worker that it gained. `moved` counts how
    often a job gained one.
    """

    def __init__(self, n_jobs: int, cores: int, move_pause: float) -> None:
        self._n_jobs, self._move_pause = n_jobs, move_pause
        self.cores, self.workers, self.moved = cores, workers(cores), 0
        # Per pair of job and worker: the pair as a number, threads, and when the data is there.
        self._pair: IntArray = np.zeros(0, np.int64)
        self._threads, self._ready = np.zeros((2, 0))

    def hold(self, sets: Placement, jobs: IntArray, now: float) -> None:
        """Replace what jobs hold by the worker `sets` of a decision, at `now` seconds.

        `jobs` (n_sets,) are the indices of the jobs that hold them.
        """
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
        """Return when data of an `active` job next arrives on a worker, after `now`, in seconds.

        Infinite if no data moves.
        """
        if not self._move_pause:
            return math.inf
        later = (self._ready > now) & np.isin(self._pair // _MOST, active)
        return float(self._ready[later].min(initial=math.inf))

    def arrived(self, active: IntArray, now: float) -> FloatArray:
        """Return which fraction (n_active,) of threads of `active` jobs have their data `now`.

        1 for a job without threads.
        """
        if not self._move_pause:
            return np.ones(len(active))
        there, held = self._sum(self._ready <= now)[active], self._sum()[active]
        return np.divide(there, held, out=np.ones(len(active)), where=held > 0)

    def _sum(self, some: npt.NDArray[np.bool_] | slice = slice(None)) -> FloatArray:
        """Return the threads (n_jobs,) that each job holds, of all pairs or of `some`."""
        job = self._pair[some] // _MOST
        return np.asarray(np.bincount(job, self._threads[some], self._n_jobs), np.float64)


def workers(cores: int, threads: int = GROUP) -> Workers:
    """Make workers of some `threads`; the last one has the rest.

    >>> dict(workers(40))
    {'worker-000000': 16, 'worker-000001': 16, 'worker-000002': 8}
    """
    starts = range(0, cores, threads)
    return Workers({f"worker-{s // threads:06d}": min(threads, cores - s) for s in starts})
