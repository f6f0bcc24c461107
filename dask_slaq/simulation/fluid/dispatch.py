"""Division of threads between two decisions: a fluid version of the live dispatcher's rules.

Jobs that are behind their floor are served first, then every job has its share. Threads that a job
cannot use go to the others in proportion to their shares, and those that save a job a wave of tasks
are lent to it.
"""

from __future__ import annotations

import numpy as np

from dask_slaq.core.grants import Decision
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.policies import fair_fill, fit_floors
from dask_slaq.simulation.workload import Law

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
    threads = fair_fill(share, floor, cap, min(cores, max(share.sum(), floor.sum())))
    useful = law.useful(jobs, threads)
    if cores - useful.sum() > NEGLIGIBLE:
        threads = _lend(law, jobs, useful, cap, cores, index)
    return threads * min(1.0, cores / max(threads.sum(), NEGLIGIBLE))  # despite rounding


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
