"""Jobs of a trace that fail, are retried or are killed, as in the Philly study.

The study is Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019. A trace has arrivals, durations and GPUs; what fails, and when, is
drawn by the seed from `Assumptions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import click
import numpy as np

from benchmarks.common.curves import resample
from dask_slaq.simulation.workload.curves import Curve, sample
from dask_slaq.simulation.workload.traces import Trace, TraceError

__all__ = [
    "FRAGMENTATION",
    "STATUSES",
    "Assumptions",
    "Attempt",
    "TraceJob",
    "assumption_options",
    "make_trace",
    "make_trace_jobs",
    "window",
]

#: Table 6 of the study: share of jobs, and of GPU time, by final status.
STATUSES = {"passed": (0.693, 0.4453), "killed": (0.135, 0.3769), "unsuccessful": (0.172, 0.1776)}
#: Table 2 of the study: share of delayed jobs that waited for GPUs with locality (fragmentation)
#: and not for their fair share, by the largest number of GPUs of the group.
FRAGMENTATION = {4: 0.594, 8: 0.742, 64: 0.979}
#: Part of a job's iterations in which early failures fall.
EARLY = 0.1
#: Mean core-seconds of a job, seconds of an iteration, and the fewest and most iterations.
WORK, ITERATION, FEWEST, MOST = 25.0, 0.25, 10, 80
#: Numbers of GPUs of a made trace, and their frequencies.
GPUS = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}


def _assume(default: float, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of failures. Only `unsuccessful` and `killed` are figures of the study."""

    unsuccessful: float = _assume(STATUSES["unsuccessful"][0], "part of jobs that never succeed.")
    killed: float = _assume(STATUSES["killed"][0], "part of jobs that their users kill.")
    recovered: float = _assume(0.1, "part of other jobs that fail before they succeed.")
    retries: int = _assume(2, "further attempts of a job that fails.")
    early: float = _assume(0.8, f"part of failures in the first {EARLY:.0%} of the iterations.")
    deaths: float = _assume(0.2, "part of failures in which a worker dies; else a task raises.")
    growth: float = _assume(0.3, "jobs fail in proportion to their GPUs to this power.")
    checkpoint: int = _assume(0, "iterations between checkpoints; 0 for none.")


def assumption_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an option for each of the `Assumptions`."""
    for each in reversed(fields(Assumptions)):
        whole = isinstance(each.default, int)
        command = click.option(
            f"--{each.name}",
            default=each.default,
            show_default=True,
            type=click.IntRange(0) if whole else click.FloatRange(0, 1),
            help=f"With --trace: {each.metadata['help']}",
        )(command)
    return command


@dataclass(frozen=True)
class Attempt:
    """One attempt of a job, which continues after `begin` iterations.

    `how` is "done", or "task", "worker" or "killed" if it ends in the iteration number `end`.
    """

    begin: int
    end: int
    how: str


@dataclass(frozen=True)
class TraceJob:
    """One job of a trace. It arrives some seconds after the start of the run.

    `loss`, (n_iterations,), is its curve, and `seconds`, (n_iterations, gpus), the compute of each
    task. `status` is one of `STATUSES`.
    """

    name: str
    curve: str
    arrival: float
    gpus: int
    loss: np.ndarray
    seconds: np.ndarray
    status: str
    attempts: tuple[Attempt, ...]


def make_trace(seed: int, count: int) -> Trace:
    """Make a trace of `count` jobs by the `seed`. Its distributions are assumptions."""
    rng = np.random.default_rng([seed, 5])
    gpus = rng.choice(list(GPUS), count, p=list(GPUS.values()))
    arrivals = np.cumsum(rng.exponential(60.0, count))
    return Trace("made", "by the seed", arrivals, rng.lognormal(7.0, 1.2, count), gpus * 1.0)


def make_trace_jobs(
    trace: Trace,
    curves: list[Curve],
    seed: int,
    *,
    threads: int,
    load: float,
    scale: float,
    assumed: Assumptions,
) -> list[TraceJob]:
    """Make all jobs of a trace, in order of arrival.

    They are scaled to a mean of `WORK` times `scale` core-seconds, and to a `load` of the
    `threads`, in which what failures repeat does not count. A job has as many tasks per iteration
    as it had GPUs, but no more than threads.
    """
    count = len(trace.arrivals)
    rng = np.random.default_rng([seed, 6])
    gpus = np.clip(trace.gpus.round(), 1, threads).astype(int)
    work = trace.duration * gpus
    work *= scale * WORK / work.mean()
    span = work.sum() / (load * threads)
    arrivals = (trace.arrivals - trace.arrivals[0]) / max(trace.gap * count, 1e-9) * span
    jobs = []
    drawn = sample(curves, count, rng)
    status = _statuses(rng, gpus, assumed)
    for i, curve in enumerate(drawn):
        length = work[i] / gpus[i]
        n = int(np.clip(round(length / ITERATION), FEWEST, MOST))
        jitter = rng.uniform(0.8, 1.2, (n, gpus[i]))
        jobs.append(
            TraceJob(
                name=f"job-{i:02d}",
                curve=curve.id,
                arrival=float(arrivals[i]),
                gpus=int(gpus[i]),
                loss=resample(curve, n),
                seconds=jitter * length / n,
                status=status[i],
                attempts=_attempts(rng, n, status[i], assumed),
            )
        )
    return jobs


def window(trace: Trace, seed: int, count: int) -> Trace:
    """Return the jobs of a trace for a `seed`: seed 0 has the first `count` jobs, 1 the next ones.

    Raises `TraceError` if the trace has too few jobs.
    """
    first, last = seed * count, (seed + 1) * count
    if first < 0 or last > len(trace.arrivals):
        raise TraceError(
            f"{trace.place}: trace {trace.name!r} has {len(trace.arrivals)} jobs, and seed {seed} "
            f"takes {count} jobs from job {first}; use fewer --jobs or other seeds"
        )
    columns = (column[first:last] for column in (trace.arrivals, trace.duration, trace.gpus))
    return Trace(trace.name, trace.place, *columns)


def _statuses(rng: np.random.Generator, gpus: np.ndarray, assumed: Assumptions) -> list[str]:
    """Draw the final status of each job. Larger jobs fail more often."""
    larger = gpus**assumed.growth
    fails = np.minimum(assumed.unsuccessful * larger / larger.mean(), 1.0)
    drawn = rng.random(len(gpus))
    status = np.where(drawn < fails + assumed.killed, "killed", "passed")
    return np.where(drawn < fails, "unsuccessful", status).tolist()


def _attempts(
    rng: np.random.Generator, n: int, status: str, assumed: Assumptions
) -> tuple[Attempt, ...]:
    """Draw the attempts of a job of `n` iterations. Draws do not depend on the checkpoints."""
    most = assumed.retries
    where, early, died = rng.random((3, most + 1))
    number = 0
    if status == "unsuccessful":
        number = most + 1
    elif rng.random() < assumed.recovered and status == "passed":
        number = int(rng.integers(min(1, most), most + 1))
    attempts: list[Attempt] = []
    begin = 0
    for i in range(number):
        left = n - begin
        low, high = (0.0, EARLY) if early[i] < assumed.early else (EARLY, 1.0)
        end = min(begin + int((low + where[i] * (high - low)) * left), n - 1)
        attempts.append(Attempt(begin, end, "worker" if died[i] < assumed.deaths else "task"))
        begin = end - end % assumed.checkpoint if assumed.checkpoint else 0
    if status == "killed":
        attempts.append(Attempt(begin, int(rng.random() * n), "killed"))
    elif status == "passed":
        attempts.append(Attempt(begin, n, "done"))
    return tuple(attempts)
