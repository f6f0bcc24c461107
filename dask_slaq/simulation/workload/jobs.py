"""The workload: jobs as a function of curves and seed, so that every policy gets the same.

The paper's §6.2: Poisson arrivals on 640 cores, one every 15 s on average. How much a job computes
is calibrated once for all settings: there, under fair shares and linear scaling, jobs are to take
71 s to 90 % and 98 s to 95 % of their loss reduction, on average.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.simulation.workload.curves import Curve, sample

__all__ = ["SimulatedJob", "calibrate", "make_jobs", "offered_load", "time_shared", "work_to"]

FloatArray = npt.NDArray[np.float64]

#: The setting of the paper's §6.2, and mean seconds to 90 and 95 % under fair shares in it.
PAPER_JOBS, PAPER_CORES, PAPER_INTERARRIVAL = 160, 640, 15.0
PAPER_T90, PAPER_T95 = 71.0, 98.0
#: Lists of jobs that the calibration averages over.
CALIBRATION_SEEDS = range(6)
#: Total work of a job, in means.
SIZES = (0.5, 1.5)
#: Parallel tasks of an iteration, where iterations run in waves.
PARTITIONS = (16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class SimulatedJob:
    """One training job.

    Attributes
    ----------
    name, curve : str
    arrival : float
        Seconds after the start.
    loss : (n_iterations,) array
        True loss after each iteration; the job completes with the last one.
    reports : (n_iterations,) array
        What it reports: the true loss, with noise if asked for.
    work : float
        Core-seconds of an iteration on one thread.
    partitions : float
        Parallel tasks of an iteration, infinite if it can be divided at will.
    slowdown : (n_iterations,) array
        Factor on the time of each iteration: 1, or more where a straggler holds it up.
    alone : (n_iterations,) array, optional
        Seconds before the tasks of each iteration in which only its driver works; none if left
        out.
    charged : float
        Part of the work that is compute of tasks, and charged to the job; the rest is overhead.
    cap : float
        Threads that it can use at most, which the engine is told.
    weight, min_share, max_share, target, max_iter
        As of `Engine.add_job`.
    """

    name: str
    curve: str
    arrival: float
    loss: FloatArray
    reports: FloatArray
    work: float
    partitions: float
    slowdown: FloatArray
    alone: FloatArray | None = None
    charged: float = 1.0
    cap: float = math.inf
    weight: float = 1.0
    min_share: float | None = None
    max_share: float | None = None
    target: float | None = None
    max_iter: int | None = None

    def settings(self, most: float | None = None) -> dict[str, Any]:
        """What `Engine.add_job` is told of it, on a cluster where a job has `most` threads."""
        caps = [cap for cap in (self.max_share, most) if cap is not None]
        caps += [self.cap] if math.isfinite(self.cap) else []
        return {
            "weight": self.weight,
            "min_share": self.min_share,
            "max_share": min(caps, default=None),
            "target": self.target,
            "max_iter": self.max_iter,
        }

    @property
    def total(self) -> float:
        """Core-seconds of the whole job on one thread."""
        return self.work * float(self.slowdown.sum())

    def iterations_to(self, fraction: float) -> int | None:
        """Iterations until the running minimum of the true loss has fallen by this fraction of
        its whole fall; None for a loss that never falls."""
        best = np.minimum.accumulate(self.loss)
        fall = best[0] - best[-1]
        if not fall > 0:
            return None
        return int(np.argmax(best[0] - best >= fraction * fall * (1 - 1e-12))) + 1


def make_jobs(
    curves: Sequence[Curve],
    seed: int,
    *,
    jobs: int = PAPER_JOBS,
    interarrival: float = PAPER_INTERARRIVAL,
    work: float = 1.0,
    noise: float = 0.0,
    stragglers: float = 0.0,
    straggling: float = 4.0,
    partitioned: bool = False,
) -> list[SimulatedJob]:
    """Jobs in order of arrival.

    Parameters
    ----------
    curves : sequence of Curve
    seed : int
    jobs : int
    interarrival : float
        Mean seconds between two arrivals, those of a Poisson process; 0 for all at once.
    work : float
        Mean core-seconds of a whole job; sizes are uniform, the largest three times the smallest.
    noise : float
        Standard deviation of the noise on reports, in ranges of the curve.
    stragglers, straggling : float
        Share of the iterations that take `straggling` times as long.
    partitioned : bool
        Draw a number of parallel tasks for each job; else it can be divided at will.

    Notes
    -----
    Times between arrivals and sizes are scaled to have their means exactly in every list, so that
    all seeds load the cluster alike.
    """
    # One stream a purpose: noise, say, must not change who arrives when.
    draw = [np.random.default_rng([seed, k]) for k in range(6)]
    arrivals = np.append(0.0, np.cumsum(draw[0].exponential(1.0, jobs - 1)))
    arrivals *= interarrival * (jobs - 1) / max(arrivals[-1], 1e-12)
    size = draw[1].uniform(*SIZES, jobs)
    size *= work / size.mean()
    partitions = draw[2].choice(PARTITIONS, jobs)
    drawn = sample(list(curves), jobs, draw[3])
    width = len(str(jobs - 1))
    made = []
    for i, curve in enumerate(drawn):
        loss = curve.loss
        slow = np.where(draw[5].random(len(loss)) < stragglers, straggling, 1.0)
        made.append(
            SimulatedJob(
                name=f"job-{i:0{width}d}",
                curve=curve.id,
                arrival=float(arrivals[i]),
                loss=loss,
                reports=loss + noise * np.ptp(loss) * draw[4].standard_normal(len(loss)),
                work=float(size[i] / len(loss)),
                partitions=float(partitions[i]) if partitioned else math.inf,
                slowdown=slow,
            )
        )
    return made


def offered_load(jobs: Sequence[SimulatedJob], cores: int) -> float | None:
    """Core-seconds that arrive in a core-second; None for jobs that arrive all at once."""
    time = (jobs[-1].arrival - jobs[0].arrival) * len(jobs) / max(len(jobs) - 1, 1)
    return sum(job.total for job in jobs) / (cores * time) if time > 0 else None


def calibrate(curves: Sequence[Curve]) -> float:
    """Mean core-seconds of a job, for the times of the paper's §6.2 under fair shares.

    The ratio of the times to 95 and to 90 % is a matter of the curves alone, so they are met
    in their geometric mean.

    Raises
    ------
    InvalidSetting
        If no curve falls.
    """
    lists = [make_jobs(curves, seed) for seed in CALIBRATION_SEEDS]
    arrivals = [np.array([job.arrival for job in jobs]) for jobs in lists]
    work = [work_to(jobs, (0.9, 0.95)) for jobs in lists]
    if all(np.isnan(to[0]).all() for to in work):
        raise InvalidSetting("no curve falls, so that there is nothing to calibrate the work by")
    low, high = 1.0, 1e6  # core-seconds
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        times = [
            np.nanmean(time_shared(a, middle * w, PAPER_CORES)[:-1], axis=1)
            for a, w in zip(arrivals, work, strict=True)
        ]
        t90, t95 = np.mean(times, axis=0)
        below = t90 * t95 < PAPER_T90 * PAPER_T95
        low, high = (middle, high) if below else (low, middle)
    return math.sqrt(low * high)


def work_to(jobs: Sequence[SimulatedJob], fractions: Sequence[float]) -> FloatArray:
    """Core-seconds (n_fractions + 1, n_jobs) to these fractions of the loss reduction, nan where
    the loss does not fall, and in the last row to the end."""
    work = np.full((len(fractions) + 1, len(jobs)), np.nan)
    for i, job in enumerate(jobs):
        for f, fraction in enumerate(fractions):
            k = job.iterations_to(fraction)
            if k is not None:
                work[f, i] = job.work * job.slowdown[:k].sum()
        work[-1, i] = job.total
    return work


def time_shared(arrivals: FloatArray, work: FloatArray, cores: int) -> FloatArray:
    """Seconds from arrival to some amounts of work under ideal equal sharing.

    Every active job computes at ``cores / active`` threads, linearly. A job is then through with
    some work when the service of one job, summed since the beginning, has grown by as much.

    Parameters
    ----------
    arrivals : (n_jobs,) array
        Seconds, in order.
    work : (n_amounts, n_jobs) array
        Core-seconds; a job leaves after the last amount.
    cores : int

    Returns
    -------
    (n_amounts, n_jobs) array

    Examples
    --------
    The second job comes when the first has done half of its work:

    >>> time_shared(np.array([0.0, 1.0]), np.array([[8.0, 8.0]]), cores=4)
    array([[3., 3.]])
    """
    last = len(work) - 1
    times = np.full(work.shape, np.nan)
    due: list[tuple[float, int, int]] = []  # service, job, which amount
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
