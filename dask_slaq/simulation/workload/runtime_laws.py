"""Ground truth of running times: how long an iteration really takes on N threads.

The engine knows nothing of these; it sees reports and core-seconds, as on a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.simulation.workload.jobs import SimulatedJob

__all__ = ["SCALINGS", "Law", "Linear", "Sublinear", "Waves", "fastest", "law", "rate"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Threads at which a sub-linear job is fastest, drawn between these (log-uniform); the largest
#: serial part of an iteration; and the threads on which it takes as long as a linear one.
FASTEST = (32.0, 256.0)
SERIAL = 0.01
SAME = 32.0
#: Threads; sums of fractions differ from whole numbers by less.
ROUNDING = 1e-9
#: Thread counts among which `fastest` looks.
COUNTS = 200


class Law(Protocol):
    """Running times of all jobs of a list."""

    name: str
    #: Threads (n_jobs,) beyond which a job can use none.
    width: FloatArray
    #: Factors (n_jobs, 4) of Ernest's terms 1, 1 / N, log(N) and N; None where it has another form.
    terms: FloatArray | None

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """Time of an iteration of each of these jobs on so many threads, whole and at least 1."""
        ...

    def computed(self, jobs: IntArray, threads: FloatArray, rate: FloatArray) -> FloatArray:
        """Core-seconds a second that the jobs' tasks take, at `rate` iterations a second."""
        ...

    def useful(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """The fewest threads that are as fast as so many; the rest can be lent."""
        ...

    def step(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        """The fewest threads that are faster than so many; infinite if none are."""
        ...


def rate(law: Law, jobs: IntArray, threads: FloatArray) -> FloatArray:
    """Iterations a second on possibly fractional threads.

    A fraction is a thread that the job has for that part of the time, so rates are linear
    between whole numbers of threads.
    """
    low = np.floor(threads + ROUNDING)
    part = threads - low
    whole = np.minimum(low, 1.0) / law.seconds(jobs, np.maximum(low, 1.0))
    if not (part > ROUNDING).any():
        return whole
    return whole + np.maximum(part, 0.0) * (1.0 / law.seconds(jobs, low + 1.0) - whole)


def fastest(law: Law, cores: int) -> FloatArray:
    """Threads (n_jobs,) at which each job is fastest, the fewest of several; to 1 part in 30."""
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


class Linear:
    """``work / N``: on twice the threads, half the time.

    >>> from types import SimpleNamespace as Job
    >>> rate(Linear([Job(work=6.0, partitions=8.0)]), np.array([0]), np.array([1.5]))
    array([0.25])
    """

    name = "linear"

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int = 0) -> None:
        self.work = np.array([job.work for job in jobs])
        self.width = np.array([job.partitions for job in jobs])
        self.terms: FloatArray | None = self.work[:, None] * np.array([0.0, 1.0, 0.0, 0.0])

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        return self.work[jobs] / threads

    def computed(self, jobs: IntArray, threads: FloatArray, rate: FloatArray) -> FloatArray:
        return rate * self.work[jobs]

    def useful(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        return threads

    def step(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        return np.full(len(jobs), np.inf)


class Waves(Linear):
    """``ceil(P / N)`` waves of tasks, each of ``work / P``.

    Threads that a wave leaves idle are no compute of the job, and are lent.

    >>> from types import SimpleNamespace as Job
    >>> Waves([Job(work=8.0, partitions=8.0)]).seconds(np.array([0]), np.array([7.0]))
    array([2.])
    """

    name = "waves"

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int = 0) -> None:
        super().__init__(jobs)
        if not np.isfinite(self.width).all():
            raise InvalidSetting("waves need jobs with a finite number of partitions")
        self.terms = None

    def seconds(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        return self.work[jobs] / width * np.ceil(width / threads - 1e-9)

    def useful(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        waves = np.ceil(width / np.maximum(threads, 1.0) - 1e-9)
        # Of a fraction of a thread, only the whole ones may be too many.
        return np.where(threads < 1.0, threads, np.minimum(threads, np.ceil(width / waves)))

    def step(self, jobs: IntArray, threads: FloatArray) -> FloatArray:
        width = self.width[jobs]
        waves = np.ceil(width / np.maximum(threads, 1.0) - 1e-9)
        faster = np.ceil(width / np.maximum(waves - 1.0, 1.0))
        return np.where(threads < 1.0, 1.0, np.where(waves > 1.0, faster, np.inf))


class Sublinear(Linear):
    """Ernest's form, ``work * (t0 + t1 / N + t2 * log(N) + t3 * N)``, drawn for each job.

    Each job is fastest on 32 to 256 threads, and slower again on more: synchronisation and
    messages. On 32 threads it takes as long as a linear one, so that lists of both kinds load a
    cluster about alike. The threads that it holds are busy all the time.
    """

    name = "sublinear"

    def __init__(self, jobs: Sequence[SimulatedJob], seed: int = 0) -> None:
        super().__init__(jobs)
        rng = np.random.default_rng([seed, 11])
        fastest = np.exp(rng.uniform(math.log(FASTEST[0]), math.log(FASTEST[1]), len(jobs)))
        serial, part = rng.uniform(0.0, SERIAL, len(jobs)), rng.uniform(0.0, 1.0, len(jobs))
        # The minimum, where t1 / N^2 = t2 / N + t3, is at `fastest`.
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


_LAWS = {kind.name: kind for kind in (Linear, Waves, Sublinear)}
#: Names that `law` knows.
SCALINGS = tuple(_LAWS)


def law(name: str, jobs: Sequence[SimulatedJob], seed: int = 0) -> Law:
    """The law of this name for these jobs.

    Raises
    ------
    InvalidSetting
        If there is none; the message lists those there are.
    """
    if name not in _LAWS:
        raise InvalidSetting(f"scaling must be one of {', '.join(SCALINGS)}, not {name!r}")
    return _LAWS[name](jobs, seed)
