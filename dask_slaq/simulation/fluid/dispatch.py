"""Division of threads between two decisions: a fluid version of the live dispatcher's rules.

Jobs that are behind their floor are served first, then all jobs by one of two rules. Threads that a
job cannot use go to the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dask_slaq.core.grants import Decision
from dask_slaq.core.policies import fair_fill, fit_floors
from dask_slaq.simulation.workload import Law

__all__ = ["DISPATCH", "by_index", "divide"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: `shares`: every job gets its share; threads that some jobs cannot use go to the others in
#: proportion to their shares, and threads that the engine grants to no job stay idle. `index`: jobs
#: are served in order of their indices, each with as many threads as it can use up to `Grant.most`,
#: as on a cluster where every job always has ready tasks.
DISPATCH = ("shares", "index")
#: Weight, in threads, of a job without a share when threads that no other job can use are lent.
NEGLIGIBLE = 1e-9


def divide(
    decision: Decision | None,
    place: IntArray,
    law: Law,
    jobs: IntArray,
    cap: FloatArray,
    cores: int,
    epoch: float,
    dispatch: str,
) -> FloatArray:
    """Divide the threads among the active jobs until the next event.

    `place` (n_active,) is the position of each job in the `decision`, -1 for jobs without a grant;
    `jobs` (n_active,) are their rows in the `law`, and `cap` (n_active,) the most threads that each
    can use of all `cores`. Tokens are spread over an `epoch`, in seconds. Returns threads
    (n_active,), possibly fractional.
    """

    def granted(name: str) -> FloatArray:
        every = np.zeros(1) if decision is None else getattr(decision, name)
        return np.where(place < 0, 0.0, every[place])

    cap = np.minimum(cap, cores)
    wanted = granted("tokens") / epoch + granted("rate")
    floor = fit_floors(np.minimum(wanted, cap), cores)
    share, index = np.maximum(granted("share"), NEGLIGIBLE), granted("index")
    if dispatch == "index":
        most = np.maximum(np.minimum(cap, granted("most")), floor)
        threads = by_index(share, index, floor, most, cores)
    else:
        threads = fair_fill(share, floor, cap, min(cores, max(share.sum(), floor.sum())))
    useful = law.useful(jobs, threads)
    if cores - useful.sum() > NEGLIGIBLE:
        threads = _lend(law, jobs, useful, cap, cores, index)
    return threads * min(1.0, cores / max(threads.sum(), NEGLIGIBLE))  # despite rounding


def by_index(
    share: FloatArray, index: FloatArray, floor: FloatArray, cap: FloatArray, cores: float
) -> FloatArray:
    """Fill jobs in order of `index`, highest first; if it is equal, in proportion to `share`.

    Each gets from `floor` to `cap` threads of all `cores`. Returns the threads (n_jobs,).

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


def _lend(
    law: Law, jobs: IntArray, threads: FloatArray, cap: FloatArray, cores: int, index: FloatArray
) -> FloatArray:
    """Lend threads that are left of `cores`, highest `index` first, while they save a job a wave.

    The jobs have `threads`, and can use `cap` at most. Returns the threads (n_active,).
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
