"""Lists of jobs, a function of curves and seed, so that every policy runs the same list.

The setting is that of the paper's §6.2: Poisson arrivals on 640 cores, one every 15 s on average.
The work of jobs is calibrated once in that setting: under fair shares and linear scaling, jobs take
71 s to 90 % and 98 s to 95 % of their loss reduction on average.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.run_history import Kind
from dask_slaq.lab.simulation.workload.curves import LossCurve, iterations_to, sample

#: Setting of the paper's §6.2, and its mean seconds to 90 and 95 % under fair shares.
PAPER_JOBS, PAPER_CORES, PAPER_INTERARRIVAL_SECONDS = 160, 640, 15.0
#: Seeds of the lists that the calibration averages over.
CALIBRATION_SEEDS = range(6)
#: Range of the total work of a job, relative to the mean.
SIZES = (0.5, 1.5)


@dataclass(frozen=True)
class SimulatedJob:
    """One training job of a simulation. Arrays are (n_iterations,).

    For the last six fields see `Engine.add_job`.
    """

    name: str
    #: Id of the loss curve.
    curve: str
    #: Seconds after the start.
    arrival: float
    #: True loss after each iteration; the job completes with the last one.
    loss: FloatArray
    #: Loss that the job reports after each iteration: the true loss, possibly with noise.
    reports: FloatArray
    #: Core-seconds of an iteration on one thread.
    work: float
    #: Parallel tasks per iteration; infinite if the iteration can be divided at will.
    partitions: float
    #: Most threads that the job can use; the engine knows it.
    cap: float = math.inf
    weight: float = 1.0
    min_share: float | None = None
    max_share: float | None = None
    target: float | None = None
    max_iter: int | None = None
    kind: Kind | None = None

    def settings(self, most: float | None = None) -> dict[str, Any]:
        """Return the keyword arguments of `Engine.add_job`; `most` caps the threads of any job."""
        caps = [cap for cap in (self.max_share, most) if cap is not None]
        caps += [self.cap] if math.isfinite(self.cap) else []
        return {
            "weight": self.weight,
            "min_share": self.min_share,
            "max_share": min(caps, default=None),
            "target": self.target,
            "max_iter": self.max_iter,
            "kind": self.kind,
        }

    @property
    def total(self) -> float:
        """Core-seconds of the whole job on one thread."""
        return self.work * len(self.loss)

    def iterations_to(self, fraction: float) -> int | None:
        """Return the iterations until the true loss has made a `fraction` of its fall."""
        return iterations_to(self.loss, fraction)


def make_jobs(
    curves: Sequence[LossCurve],
    seed: int,
    *,
    jobs: int = PAPER_JOBS,
    interarrival: float = PAPER_INTERARRIVAL_SECONDS,
    work: float = 1.0,
    noise: float = 0.0,
    partitioned: bool = False,
    announced: bool = False,
) -> list[SimulatedJob]:
    """Make a list of jobs with some `curves`, in order of arrival, by a `seed`.

    `work` is the mean core-seconds of a job. Means hold exactly in every list, so that all seeds
    load the cluster equally.
    """
    # One random stream per purpose: noise, for example, must not change arrivals.
    draw = [np.random.default_rng([seed, k]) for k in range(5)]
    arrivals = np.append(0.0, np.cumsum(draw[0].exponential(1.0, jobs - 1)))
    arrivals *= interarrival * (jobs - 1) / max(arrivals[-1], 1e-12)
    size = draw[1].uniform(*SIZES, jobs)
    size *= work / size.mean()
    # Possible numbers of parallel tasks per iteration, where iterations run in waves.
    partitions = draw[2].choice((16, 32, 64, 128, 256, 512), jobs)
    drawn = sample(list(curves), jobs, draw[3])
    width = len(str(jobs - 1))
    made = []
    for i, curve in enumerate(drawn):
        loss = curve.loss
        made.append(
            SimulatedJob(
                name=f"job-{i:0{width}d}",
                curve=curve.id,
                arrival=float(arrivals[i]),
                loss=loss,
                reports=loss + noise * np.ptp(loss) * draw[4].standard_normal(len(loss)),
                work=float(size[i] / len(loss)),
                partitions=float(partitions[i]) if partitioned else math.inf,
                max_iter=len(loss) if announced else None,
            )
        )
    return made


def offered_load(jobs: Sequence[SimulatedJob], cores: int) -> float | None:
    """Return the core-seconds of `jobs` that arrive per core-second; None if all at once."""
    time = (jobs[-1].arrival - jobs[0].arrival) * len(jobs) / max(len(jobs) - 1, 1)
    return sum(job.total for job in jobs) / (cores * time) if time > 0 else None


def calibrate(curves: Sequence[LossCurve]) -> float:
    """Return the mean core-seconds per job that reproduce the times of the paper's §6.2."""
    lists = [make_jobs(curves, seed) for seed in CALIBRATION_SEEDS]
    arrivals = [np.array([job.arrival for job in jobs]) for jobs in lists]
    work = [work_to(jobs, (0.9, 0.95)) for jobs in lists]
    if all(np.isnan(to[0]).all() for to in work):
        raise InvalidSetting("no curve falls, so that there is nothing to calibrate the work by")
    low, high = 1.0, 1e6  # core-seconds
    paper_t90, paper_t95 = 71.0, 98.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        times = [
            np.nanmean(time_shared(a, middle * w, PAPER_CORES)[:-1], axis=1)
            for a, w in zip(arrivals, work, strict=True)
        ]
        t90, t95 = np.mean(times, axis=0)
        below = t90 * t95 < paper_t90 * paper_t95
        low, high = (middle, high) if below else (low, middle)
    return math.sqrt(low * high)


def work_to(jobs: Sequence[SimulatedJob], fractions: Sequence[float]) -> FloatArray:
    """Return core-seconds (n_fractions + 1, n_jobs) to `fractions` of the fall, and in all."""
    work = np.full((len(fractions) + 1, len(jobs)), np.nan)
    for i, job in enumerate(jobs):
        for f, fraction in enumerate(fractions):
            k = job.iterations_to(fraction)
            if k is not None:
                work[f, i] = job.work * k
        work[-1, i] = job.total
    return work


def time_shared(arrivals: FloatArray, work: FloatArray, cores: int) -> FloatArray:
    """Return the seconds from `arrivals` to amounts of `work` under ideal equal sharing.

    An amount of work is done when the service per job, summed since the beginning, has grown by
    that amount. Both ascend; a job leaves after its last amount.
    """
    last = len(work) - 1
    times = np.full(work.shape, np.nan)
    due: list[tuple[float, int, int]] = []  # service, job, row of the amount
    now = service = 0.0
    active = following = 0
    while due or following < len(arrivals):
        arrival = arrivals[following] if following < len(arrivals) else math.inf
        at = now + (due[0][0] - service) * active / cores if due else math.inf
        if arrival <= at:
            service += (arrival - now) * cores / active if active else 0.0
            now = arrival
            for k in np.flatnonzero(~np.isnan(work[:, following])).tolist():
                heapq.heappush(due, (service + work[k, following], following, k))
            active, following = active + 1, following + 1
        else:
            service, i, k = heapq.heappop(due)
            now = at
            times[k, i] = now - arrivals[i]
            active -= k == last
    return times


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
        # Of sublinear jobs: range (log-uniform) of the threads at which a job is fastest, largest
        # serial part of an iteration, and threads on which the job takes as long as a linear one.
        fastest_range = (32.0, 256.0)
        fastest = np.exp(
            rng.uniform(math.log(fastest_range[0]), math.log(fastest_range[1]), len(jobs))
        )
        serial, part = rng.uniform(0.0, 0.01, len(jobs)), rng.uniform(0.0, 1.0, len(jobs))
        # These factors put the minimum, where t1 / N^2 = t2 / N + t3, at `fastest`.
        per_log, per_thread = part / fastest, (1.0 - part) / fastest**2
        theta = np.stack([serial, np.ones(len(jobs)), per_log, per_thread])
        same = 32.0
        theta /= same * self._form(theta, np.full(len(jobs), same))
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
    """Return iterations per second (n,) of `jobs` by a `law` on fractional `threads` (n,)."""
    # Tolerance in threads: sums of fractions differ from whole numbers by less.
    rounding = 1e-9
    low = np.floor(threads + rounding)
    part = threads - low
    whole = np.minimum(low, 1.0) / law.seconds(jobs, np.maximum(low, 1.0))
    if not (part > rounding).any():
        return whole
    return whole + np.maximum(part, 0.0) * (1.0 / law.seconds(jobs, low + 1.0) - whole)


def fastest(law: Law, cores: int) -> FloatArray:
    """Return the fewest threads (n_jobs,) on which a `law` makes jobs fastest, to 1 in 30."""
    every = np.arange(len(law.width))
    counts = np.unique(np.round(np.geomspace(1, cores, 200)))
    best = np.minimum(np.full(len(every), float(cores)), law.width)
    least = law.seconds(every, np.maximum(best, 1.0))
    for n in counts[::-1]:
        some = np.minimum(n, law.width)
        seconds = law.seconds(every, np.maximum(some, 1.0))
        better = seconds <= least
        best, least = np.where(better, some, best), np.where(better, seconds, least)
    return best
