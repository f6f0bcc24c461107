"""True running times of simulated jobs: how long an iteration takes on N threads.

The engine does not know these laws: as on a cluster, it only receives reports and core-seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.simulation.workload.simulated_jobs import SimulatedJob

#: Of sublinear jobs: range (log-uniform) of the threads at which a job is fastest, largest serial
#: part of an iteration, and threads on which the job takes as long as a linear one.
FASTEST = (32.0, 256.0)
SERIAL = 0.01
SAME = 32.0
#: Tolerance in threads: sums of fractions differ from whole numbers by less.
ROUNDING = 1e-9
#: Number of thread counts that `fastest` tries.
COUNTS = 200


class Law:
    """Running times of all jobs of a list; this one scales linearly, ``work / N``.

    In all methods `jobs` (n,) are indices in the list, and `threads` (n,) may be fractional except
    in `seconds`. Results are (n,).
    """

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int) -> None:
        #: Core-seconds (n_jobs,) of one iteration on one thread.
        self.work = np.array([job.work for job in jobs])
        #: Threads (n_jobs,) beyond which a job can use no more; possibly infinite.
        self.width = np.array([job.partitions for job in jobs])
        #: Factors (n_jobs, 4) of Ernest's terms 1, 1 / N, log(N) and N; None for another form.
        self.terms: FloatArray | None = self.work[:, None] * np.array([0.0, 1.0, 0.0, 0.0])

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """Return the seconds of one iteration on whole threads, at least 1 per job."""
        return self.work[jobs] / threads

    def computed(self, jobs: IntArray, threads: FloatArray, rate: FloatArray) -> FloatArray:
        """Return the core-seconds per second that tasks take, at `rate` iterations per second."""
        return rate * self.work[jobs]

    def useful(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """Return the threads that each job needs to be as fast as now; the rest can be lent."""
        return threads

    def step(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """Return the fewest threads on which each job would be faster; infinite if none."""
        return np.full(len(jobs), np.inf)


class Waves(Law):
    """Tasks in ``ceil(P / N)`` waves, each of ``work / P``.

    Threads that a wave leaves idle do not count as compute of the job, and are lent.
    """

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int) -> None:
        super().__init__(jobs, seed)
        if not np.isfinite(self.width).all():
            raise InvalidSetting("waves need jobs with a finite number of partitions")
        self.terms = None

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        return self.work[jobs] / width * np.ceil(width / threads - 1e-9)

    def useful(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        waves = np.ceil(width / np.maximum(threads, 1.0) - 1e-9)
        # Less than one thread is never too many.
        return np.where(threads < 1.0, threads, np.minimum(threads, np.ceil(width / waves)))

    def step(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        waves = np.ceil(width / np.maximum(threads, 1.0) - 1e-9)
        faster = np.ceil(width / np.maximum(waves - 1.0, 1.0))
        return np.where(threads < 1.0, 1.0, np.where(waves > 1.0, faster, np.inf))


class Sublinear(Law):
    """Ernest's form, ``work * (t0 + t1 / N + t2 * log(N) + t3 * N)``, drawn for each job.

    Each is fastest on 32 to 256 threads, and on 32 takes as long as a linear one. Its threads are
    always busy.
    """

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int) -> None:
        super().__init__(jobs, seed)
        rng = np.random.default_rng([seed, 11])
        fastest = np.exp(rng.uniform(math.log(FASTEST[0]), math.log(FASTEST[1]), len(jobs)))
        serial, part = rng.uniform(0.0, SERIAL, len(jobs)), rng.uniform(0.0, 1.0, len(jobs))
        # These factors put the minimum, where t1 / N^2 = t2 / N + t3, at `fastest`.
        per_log, per_thread = part / fastest, (1.0 - part) / fastest**2
        theta = np.stack([serial, np.ones(len(jobs)), per_log, per_thread])
        theta /= SAME * self._form(theta, np.full(len(jobs), SAME))
        self._terms = self.work * theta
        self.terms = self._terms.T

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        return self._form(self._terms[:, jobs], threads)

    @staticmethod
    def _form(theta: FloatArray, threads: FloatArray) -> FloatArray:
        return theta[0] + theta[1] / threads + theta[2] * np.log(threads) + theta[3] * threads

    def computed(self, jobs: IntArray, threads: FloatArray, rate: FloatArray) -> FloatArray:
        return threads


_LAWS = {"linear": Law, "waves": Waves, "sublinear": Sublinear}
#: Names that `law` accepts.
SCALINGS = tuple(_LAWS)


def law(name: str, jobs: Sequence[SimulatedJob], seed: int = 0) -> Law:
    """Make the law of running times of `jobs` by its `name` in `SCALINGS`; it draws by `seed`."""
    return _LAWS[name](jobs, seed)


def rate(law: Law, jobs: IntArray, threads: FloatArray) -> FloatArray:
    """Return iterations per second (n,) of `jobs` by a `law` on fractional `threads` (n,).

    They are linear between whole numbers: a job holds a part of a thread for that part of the time.
    """
    low = np.floor(threads + ROUNDING)
    part = threads - low
    whole = np.minimum(low, 1.0) / law.seconds(jobs, np.maximum(low, 1.0))
    if not (part > ROUNDING).any():
        return whole
    return whole + np.maximum(part, 0.0) * (1.0 / law.seconds(jobs, low + 1.0) - whole)


def fastest(law: Law, cores: int) -> FloatArray:
    """Return the fewest threads (n_jobs,) on which a `law` makes jobs fastest, to 1 in 30."""
    every = np.arange(len(law.width))
    counts = np.unique(np.round(np.geomspace(1, cores, COUNTS)))
    best = np.minimum(np.full(len(every), float(cores)), law.width)
    least = law.seconds(every, np.maximum(best, 1.0))
    for n in counts[::-1]:
        some = np.minimum(n, law.width)
        seconds = law.seconds(every, np.maximum(some, 1.0))
        better = seconds <= least
        best, least = np.where(better, some, best), np.where(better, seconds, least)
    return best
