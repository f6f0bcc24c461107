"""Do the simulator and the cluster agree? The emulated jobs of a live run, simulated.

The simulator gets what is known beforehand: curves, iterations, compute of tasks, arrivals and
threads; and the seconds that an iteration takes beside its tasks, from one job alone on a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.emulation import FAN_IN, run_emulated
from benchmarks.jobs import EmulatedJob
from benchmarks.measure import LATE
from dask_slaq.core.engine import Engine
from dask_slaq.simulation.jobs import SimulatedJob
from dask_slaq.simulation.measures import Run
from dask_slaq.simulation.tasks import TaskSimulation

__all__ = ["Overhead", "agreement_table", "compare", "measure_overhead", "simulate"]

#: Difference of the mean t90 up to which the two are said to agree.
AGREE = 0.15
#: The job by which the overhead is measured: iterations, waves of tasks, seconds of a task.
ITERATIONS, WAVES, TASK = 16, 2, 0.1

#: Makes the jobs of a seed.
Jobs = Callable[[int], Sequence[EmulatedJob]]


@dataclass(frozen=True)
class Overhead:
    """What a job takes beside the compute of its tasks.

    Attributes
    ----------
    start_up : float
        Seconds from the arrival until the tasks of the first iteration are sent.
    iteration : float
        Seconds from one iteration to the next: sums, the driver, and messages.
    """

    start_up: float
    iteration: float


def measure_overhead(workers: int, **settings: Any) -> Overhead:
    """Run one job alone on a cluster, under fair.

    Parameters
    ----------
    workers : int
    **settings
        Of `run_emulated`.
    """
    loss = np.geomspace(2.0, 1.0, ITERATIONS)
    seconds = np.full((ITERATIONS, WAVES * workers), TASK)
    job = EmulatedJob("calibration", "made", 0.5, loss, loss, seconds)
    trace = run_emulated([job], "fair", seed=0, workers=workers, **settings).traces[0]
    compute = WAVES * TASK
    each = float(np.median(np.diff(trace.times))) - compute
    first = trace.times[0] - job.arrival - compute
    return Overhead(max(first - each, 0.0), max(each, 0.0))


def simulate(
    jobs: Sequence[EmulatedJob], policy: str, workers: int, epoch: float, overhead: Overhead
) -> Run:
    """Simulate emulated jobs under a policy, task by task."""
    jobs = sorted(jobs, key=lambda job: job.arrival)
    made = [_simulated(job, overhead) for job in jobs]
    simulation = TaskSimulation(
        made,
        Engine(policy, epoch=epoch),
        workers,
        seconds=[job.seconds for job in jobs],
        fan_in=FAN_IN,
    )
    return Run(0, made, simulation.run())


def _simulated(job: EmulatedJob, overhead: Overhead) -> SimulatedJob:
    work = job.seconds.sum(axis=1)
    alone = np.full(len(work), overhead.iteration)
    alone[0] += overhead.start_up
    return SimulatedJob(
        name=job.name,
        curve=job.curve,
        arrival=job.arrival,
        loss=job.loss,
        reports=job.reports,
        work=float(work.mean()),
        partitions=float(job.seconds.shape[1]),
        slowdown=work / work.mean(),
        alone=alone,
        max_iter=job.max_iter,
    )


def compare(
    live: Mapping[str, Any],
    jobs: Jobs,
    seeds: Sequence[int],
    *,
    workers: int,
    epoch: float,
    overhead: Overhead,
) -> dict[str, Any]:
    """Simulate what was run live, and compare the mean t90.

    Parameters
    ----------
    live : dict
        Figures by policy, as of `measure.summarize`.
    jobs : callable
    seeds : sequence of int
    workers, epoch
        Of the live runs.
    overhead : Overhead

    Returns
    -------
    dict
        ``overhead``, ``agree_within``, and by policy ``simulated_s``, ``live_s``, ``difference``
        (a fraction of live), ``agrees``, the same by seed, and ``late_s``, by which threads of
        the live run woke too late; oracles and plain Dask are left out.
    """
    found = {}
    for policy, row in live.items():
        if policy in ("none", "oracle"):
            continue
        by_seed = {}
        for seed in seeds:
            times = simulate(jobs(seed), policy, workers, epoch, overhead).time_to(0.90)
            real = [j["t90_s"] for j in row["jobs"] if j["seed"] == seed and j["t90_s"] is not None]
            by_seed[str(seed)] = _compared(float(np.nanmean(times)), float(np.mean(real)))
            print(f"seed {seed}, {policy}: simulated", file=sys.stderr)
        simulated = float(np.mean([one["simulated_s"] for one in by_seed.values()]))
        whole = _compared(simulated, row["t90_mean_s"])
        found[policy] = {**whole, "late_s": row["late_s"], "seeds": by_seed}
    return {"overhead": asdict(overhead), "agree_within": AGREE, "policies": found}


def _compared(simulated: float, live: float) -> dict[str, Any]:
    difference = simulated / live - 1.0
    return {
        "simulated_s": simulated,
        "live_s": live,
        "difference": difference,
        "agrees": abs(difference) <= AGREE,
    }


def agreement_table(workload: str, found: Mapping[str, Any]) -> str:
    """A readable table of what `compare` found."""
    spent = found["overhead"]
    lines = [
        f"{workload}: t90 simulated and live; beside its tasks an iteration takes "
        f"{1e3 * spent['iteration']:.0f} ms, and the start {1e3 * spent['start_up']:.0f} ms",
        f"{'policy':>15}  {'simulated/s':>11}  {'live/s':>8}  {'difference':>10}  by seed",
    ]
    for name, row in found["policies"].items():
        seeds = " ".join(f"{one['difference']:+.0%}" for one in row["seeds"].values())
        verdict = "agrees" if row["agrees"] else f"differs by more than {AGREE:.0%}"
        if row["late_s"] > LATE:
            verdict += ", but the machine was busy: the live times mean little"
        lines.append(
            f"{name:>15}  {row['simulated_s']:11.2f}  {row['live_s']:8.2f}  "
            f"{row['difference']:+10.1%}  {seeds}  {verdict}"
        )
    return "\n".join(lines)
