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
from dask_slaq.lab.simulation.workload.curves import LossCurve, sample

#: Total thread-seconds of all jobs of a run: 31 s of 16 busy threads.
WORK = 500.0
#: Seconds from the first to the last arrival of `staggered` and of `burst`.
LAST_ARRIVAL = 22.0
BURST = 2.0
#: Number of jobs of each workload.
COUNTS = {"staggered": 10, "burst": 14, "mixed": 12}
#: What tells the random numbers of workloads apart.
STREAMS = {"staggered": 2, "burst": 3, "mixed": 4}
#: What the jobs of `mixed` are: half of them train. All have about the same work.
SHAPES = ("training", "map", "training", "reduction", "training", "chains")
#: Numbers of partitions to draw from. As data sets are usually chunked, there are two or three
#: partitions per thread of the cluster, so that a job can use all threads it is granted.
PARTITIONS = (24, 32, 48)


@dataclass(frozen=True)
class EmulatedJob:
    """One training job. It arrives some seconds after the start of the run.

    `loss` and `reports`, (n_iterations,), are the true losses, and with noise. `seconds`,
    (n_iterations, n_partitions), is the compute of each task. Only jobs of the shape "training"
    have losses, and report them. `max_iter` and `kind` are what the job announces.
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


def make_jobs(
    workload: str,
    curves: list[LossCurve],
    seed: int,
    *,
    count: int | None = None,
    scale: float = 1.0,
    noise: float = 0.0,
) -> list[EmulatedJob]:
    """Make the jobs of a workload, in order of arrival; `COUNTS` of them by default.

    Jobs of "staggered" arrive one after another, with four to five active at a time, and those of
    "burst" within two seconds. "mixed" is staggered, with batches, reductions and chains alongside
    the training jobs.

    `scale` is the length relative to a full run, with the same load. `noise` is the standard
    deviation of the noise of reports, relative to the range of the curve.
    """
    rng = np.random.default_rng([seed, STREAMS[workload]])
    arrivals = arrivals_of(workload, rng, count, scale)
    jobs = _jobs(curves, rng, arrivals, scale, noise)
    if workload != "mixed":
        return jobs
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

    There are `COUNTS` jobs by default. `scale` is the length relative to a full run.
    """
    count = count or COUNTS[workload]
    if workload != "burst":
        gaps = rng.uniform(0.6, 1.4, count - 1)
        times = np.cumsum(gaps) / max(gaps.sum(), 1e-9) * LAST_ARRIVAL * scale
        return np.append(0.0, times)
    times = np.sort(rng.uniform(0.0, BURST * min(scale, 1.0), count))
    return times - times[0]


def _jobs(
    curves: list[LossCurve],
    rng: np.random.Generator,
    arrivals: np.ndarray,
    scale: float,
    noise: float,
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
                arrival=float(arrivals[i]),
                loss=loss,
                reports=loss + noise * np.ptp(loss) * rng.standard_normal(len(loss)),
                seconds=task[i] * jitter,
                max_iter=int(iterations[i]),
            )
        )
    return jobs
