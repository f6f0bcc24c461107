"""Who has the threads between two decisions: the live dispatcher's rules, slot by slot, as a fluid.

Jobs that are behind on the tokens of their floor come first, spread over the epoch; then all jobs,
by one of two rules. What a job cannot use goes to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_slaq.core.grants import Decision
from dask_slaq.core.policies import fair_fill, fit_floors
from dask_slaq.simulation.workload import Law

__all__ = ["DISPATCH", "Shares", "by_index", "divide", "lend"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: `shares`: every job its share, and of what some cannot use, the others in proportion to theirs;
#: threads that the engine grants to nobody, as no use to anybody, stay idle. `index`: job by job
#: in the order of their indices, each as many as it can use, but for `Grant.most`, as on a cluster
#: whose jobs always have tasks that are ready.
DISPATCH = ("shares", "index")
#: Weight, in threads, by which jobs with no share at all are lent what nobody else can use.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Shares:
    """What jobs are granted, see `Grant`. Arrays are (n_jobs,)."""

    share: FloatArray
    tokens: FloatArray
    index: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, decision: Decision | None, place: IntArray) -> Shares:
        """Those of the jobs that stand there in the decision; nothing for -1."""
        if decision is None:
            return cls(*np.zeros((4, len(place))))
        names = ("share", "tokens", "index", "most")
        return cls(*(np.where(place < 0, 0.0, getattr(decision, n)[place]) for n in names))


def divide(
    shares: Shares,
    law: Law,
    jobs: IntArray,
    cap: FloatArray,
    cores: int,
    epoch: float,
    dispatch: str = "shares",
) -> FloatArray:
    """Threads of each job until something changes.

    Parameters
    ----------
    shares : Shares
        Of the active jobs.
    law : Law
    jobs : (n_active,) array of int
        Their rows in the law.
    cap : (n_active,) array
        Threads that each can use.
    cores : int
    epoch : float
        Seconds over which tokens are served.
    dispatch : str
        One of `DISPATCH`.

    Returns
    -------
    (n_active,) array
    """
    share, index, most = shares.share, shares.index, shares.most
    cap = np.minimum(cap, cores)
    floor = fit_floors(np.minimum(shares.tokens / epoch, cap), cores)
    share = np.maximum(share, NEGLIGIBLE)
    if dispatch == "index":
        most = np.maximum(np.minimum(cap, most), floor)
        threads = by_index(share, index, floor, most, cores)
    else:
        threads = fair_fill(share, floor, cap, min(cores, max(share.sum(), floor.sum())))
    useful = law.useful(jobs, threads)
    spare = cores - useful.sum() > NEGLIGIBLE
    threads = lend(law, jobs, useful, cap, cores, index) if spare else threads
    return threads * min(1.0, cores / max(threads.sum(), NEGLIGIBLE))  # not a rounding more


def by_index(
    share: FloatArray, index: FloatArray, floor: FloatArray, cap: FloatArray, cores: float
) -> FloatArray:
    """Threads (n_jobs,) job by job, the highest index first; jobs of equal index in proportion
    to their shares.

    >>> two, none = np.ones(2), np.zeros(2)
    >>> by_index(two, np.array([1.0, 2.0]), np.array([1.0, 0.0]), 6 * two, 8.0)
    array([2., 6.])
    >>> by_index(np.array([1.0, 3.0]), none, none, 8 * two, 8.0)
    array([2., 6.])
    """
    threads = floor.copy()
    for value in np.unique(index)[::-1]:
        left = cores - threads.sum()
        if left <= 0:
            break
        level = index == value
        room = left + floor[level].sum()
        threads[level] = fair_fill(share[level], floor[level], cap[level], room)
    return threads


def lend(
    law: Law, jobs: IntArray, threads: FloatArray, cap: FloatArray, cores: int, index: FloatArray
) -> FloatArray:
    """Spare threads to the jobs that they save a wave, by index, until they save none."""
    threads, left = threads.copy(), cores - threads.sum()
    order = np.argsort(-index, kind="stable")
    lent = True
    while lent:
        lent = False
        cost = law.step(jobs, threads) - threads
        for j in order:
            if cost[j] <= left and threads[j] + cost[j] <= cap[j]:
                threads[j] += cost[j]
                left -= cost[j]
                lent = True
    return threads
