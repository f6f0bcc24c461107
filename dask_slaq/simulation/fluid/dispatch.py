"""Division of threads between two decisions: a fluid version of the live dispatcher's rules.

Jobs that are behind their floor are served first: their tokens are spread over the epoch. Then all
jobs are served by one of two rules. Threads that a job cannot use go to the others.
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

#: `shares`: every job gets its share; threads that some jobs cannot use go to the others in
#: proportion to their shares, and threads that the engine grants to no job stay idle. `index`: jobs
#: are served in order of their indices, each with as many threads as it can use up to `Grant.most`,
#: as on a cluster where every job always has ready tasks.
DISPATCH = ("shares", "index")
#: Weight, in threads, of a job without a share when threads that no other job can use are lent.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Shares:
    """Grants of several jobs as arrays (n_jobs,), see `Grant`."""

    share: FloatArray
    tokens: FloatArray
    rate: FloatArray
    index: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, decision: Decision | None, place: IntArray) -> Shares:
        """Read the shares of some jobs from a `decision`.

        `place` (n_jobs,) is the position of each job in it; -1 for jobs without a grant, which get
        zeros.
        """
        if decision is None:
            return cls(*np.zeros((5, len(place))))
        names = ("share", "tokens", "rate", "index", "most")
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
    """Divide the threads among the active jobs until the next event.

    `jobs` (n_active,) are their rows in the `law` of true running times, `shares` their grants, and
    `cap` (n_active,) the most threads that each can use of all `cores`. Tokens are spread over an
    `epoch`, in seconds; `dispatch` is one of `DISPATCH`. Returns threads (n_active,), possibly
    fractional.
    """
    share, index, most = shares.share, shares.index, shares.most
    cap = np.minimum(cap, cores)
    floor = fit_floors(np.minimum(shares.tokens / epoch + shares.rate, cap), cores)
    share = np.maximum(share, NEGLIGIBLE)
    if dispatch == "index":
        most = np.maximum(np.minimum(cap, most), floor)
        threads = by_index(share, index, floor, most, cores)
    else:
        threads = fair_fill(share, floor, cap, min(cores, max(share.sum(), floor.sum())))
    useful = law.useful(jobs, threads)
    spare = cores - useful.sum() > NEGLIGIBLE
    threads = lend(law, jobs, useful, cap, cores, index) if spare else threads
    return threads * min(1.0, cores / max(threads.sum(), NEGLIGIBLE))  # despite rounding


def by_index(
    share: FloatArray, index: FloatArray, floor: FloatArray, cap: FloatArray, cores: float
) -> FloatArray:
    """Fill jobs in order of `index`, highest first; if it is equal, in proportion to `share`.

    Each gets from `floor` to `cap` threads of all `cores`. Returns the threads (n_jobs,).

    Examples
    --------
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
    """Lend threads that are left of `cores`, highest `index` first, while they save a job a wave.

    `jobs` (n_active,) are rows in the `law`; they have `threads`, and can use `cap` at most.
    Returns the threads (n_active,).
    """
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
