"""Emulated jobs: their compute, reported losses and arrival times.

Jobs are a function of the seed and the curves, so that every policy gets the same jobs. The compute
of an iteration is divided among the tasks of its partitions. The number of partitions limits the
threads that a job can use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.common.curves import resample
from dask_slaq.simulation.workload.curves import Curve, sample

__all__ = ["COUNTS", "EmulatedJob", "arrivals_of", "burst", "mixed", "staggered"]

#: Total thread-seconds of all jobs of a run: 31 s of 16 busy threads.
WORK = 500.0
#: Seconds from the first to the last arrival of `staggered` and of `burst`.
LAST_ARRIVAL = 22.0
BURST = 2.0
#: Number of jobs of each workload.
COUNTS = {"staggered": 10, "burst": 14, "mixed": 12}
#: What the jobs of `mixed` are: half of them train. All have about the same work.
SHAPES = ("training", "map", "training", "reduction", "training", "chains")
#: Numbers of partitions to draw from. As data sets are usually chunked, there are two or three
#: partitions per thread of the cluster, so that a job can use all threads it is granted.
PARTITIONS = (24, 32, 48)


@dataclass(frozen=True)
class EmulatedJob:
    """One training job.

    Attributes
    ----------
    name : str
    curve : str
        Id of the loss curve.
    arrival : float
        Seconds after the start of the run.
    loss : (n_iterations,) array
        True loss after each iteration.
    reports : (n_iterations,) array
        Reported losses: the true losses plus noise.
    seconds : (n_iterations, n_partitions) array
        Compute of each task; without losses, of all tasks.
    shape : str
        One of `SHAPES`: only training jobs have losses, and report them.
    max_iter : int, optional
        Number of iterations that the job announces.
    kind : mapping, optional
        Kind that the job states.
    """

    name: str
    curve: str
    arrival: float
    loss: np.ndarray
    reports: np.ndarray
    seconds: np.ndarray
    max_iter: int | None = None
    kind: Mapping[str, Any] | None = None
    shape: str = "training"


def staggered(
    curves: list[Curve],
    seed: int,
    *,
    count: int = COUNTS["staggered"],
    scale: float = 1.0,
    noise: float = 0.0,
    slow: float = 1.0,
    told: bool = True,
) -> list[EmulatedJob]:
    """Make jobs that arrive one after another, with four to five active at a time.

    Parameters
    ----------
    curves : list of Curve
    seed, count : int
        Seed, and number of jobs.
    scale : float
        Length relative to a full run; the load stays the same.
    noise : float
        Standard deviation of the noise of reports, relative to the range of the curve.
    slow : float
        Factor on all durations: the same jobs in slow motion, for a busy machine.
    told : bool
        Whether jobs announce their number of iterations, as libraries' fits do.

    Returns
    -------
    list of EmulatedJob
        In order of arrival.
    """
    rng = np.random.default_rng([seed, 2])
    arrivals = arrivals_of("staggered", rng, count, scale)
    return _jobs(curves, rng, arrivals, scale, noise, slow, told)


def burst(
    curves: list[Curve],
    seed: int,
    *,
    count: int = COUNTS["burst"],
    scale: float = 1.0,
    noise: float = 0.0,
    slow: float = 1.0,
    told: bool = True,
) -> list[EmulatedJob]:
    """Make jobs that arrive within two seconds. See `staggered` for the parameters."""
    rng = np.random.default_rng([seed, 3])
    arrivals = arrivals_of("burst", rng, count, scale)
    return _jobs(curves, rng, arrivals, scale, noise, slow, told)


def mixed(
    curves: list[Curve],
    seed: int,
    *,
    count: int = COUNTS["mixed"],
    scale: float = 1.0,
    noise: float = 0.0,
    slow: float = 1.0,
    told: bool = True,
) -> list[EmulatedJob]:
    """Make training jobs beside batches, reductions and chains. See `staggered`."""
    rng = np.random.default_rng([seed, 4])
    arrivals = arrivals_of("staggered", rng, count, scale)
    jobs = _jobs(curves, rng, arrivals, scale, noise, slow, told)
    return [_reshape(job, SHAPES[i % len(SHAPES)]) for i, job in enumerate(jobs)]


def _reshape(job: EmulatedJob, shape: str) -> EmulatedJob:
    if shape == "training":
        return job
    none = np.zeros(0)
    return replace(job, shape=shape, loss=none, reports=none, max_iter=None)


def arrivals_of(
    workload: str, rng: np.random.Generator, count: int | None, scale: float
) -> np.ndarray:
    """Draw the seconds at which the jobs of a workload arrive, the first at 0.

    Parameters
    ----------
    workload : {"staggered", "burst"}
    rng : numpy.random.Generator
    count : int, optional
        Number of jobs; `COUNTS` by default.
    scale : float
        Length relative to a full run.
    """
    count = count or COUNTS[workload]
    if workload == "staggered":
        gaps = rng.uniform(0.6, 1.4, count - 1)
        times = np.cumsum(gaps) / max(gaps.sum(), 1e-9) * LAST_ARRIVAL * scale
        return np.append(0.0, times)
    times = np.sort(rng.uniform(0.0, BURST * min(scale, 1.0), count))
    return times - times[0]


def _jobs(
    curves: list[Curve],
    rng: np.random.Generator,
    arrivals: np.ndarray,
    scale: float,
    noise: float,
    slow: float,
    told: bool,
) -> list[EmulatedJob]:
    """Make the jobs. Their total work is the same for every seed, and so is the load."""
    count = len(arrivals)
    drawn = sample(curves, count, rng)
    partitions = rng.choice(PARTITIONS, count)
    task = rng.uniform(0.06, 0.16, count)  # seconds
    size = rng.uniform(0.5, 1.5, count)
    size *= scale * WORK / size.sum()
    iterations = np.clip(size / (partitions * task), 16 if scale >= 1 else 6, 60)
    iterations = iterations.round().astype(int)
    task *= scale * WORK / (iterations * partitions * task).sum()
    jobs = []
    for i, curve in enumerate(drawn):
        loss = resample(curve, int(iterations[i]))
        jitter = rng.uniform(0.8, 1.2, (iterations[i], partitions[i]))
        jobs.append(
            EmulatedJob(
                name=f"job-{i:02d}",
                curve=curve.id,
                arrival=slow * float(arrivals[i]),
                loss=loss,
                reports=loss + noise * np.ptp(loss) * rng.standard_normal(len(loss)),
                seconds=slow * task[i] * jitter,
                max_iter=int(iterations[i]) if told else None,
            )
        )
    return jobs
