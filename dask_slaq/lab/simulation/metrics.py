"""Metrics of simulated runs, and their summary per policy.

The quality of a job is its normalized true loss: the fraction of its whole fall that is left, by
the running minimum. It is 1 until the first iteration ends, and 0 when the job completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.lab.simulation.fluid import Outcome
from dask_slaq.lab.simulation.workload import SimulatedJob


@dataclass(frozen=True)
class SimulatedRun:
    """One run of a policy on a list of `jobs`, in order of arrival, with its `outcome`."""

    seed: int
    jobs: Sequence[SimulatedJob]
    outcome: Outcome

    def time_to(self, fraction: float) -> FloatArray:
        """Return the seconds (n_jobs,) from arrival to `fraction` of the fall; nan if none."""
        found = []
        for job, times in zip(self.jobs, self.outcome.times, strict=True):
            k = job.iterations_to(fraction)
            found.append(np.nan if k is None else times[k - 1] - job.arrival)
        return np.array(found)

    @property
    def completion(self) -> FloatArray:
        """Seconds (n_jobs,) from arrival to the end."""
        ends = np.array([times[-1] for times in self.outcome.times])
        return ends - np.array([job.arrival for job in self.jobs])

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the last end."""
        return max(float(times[-1]) for times in self.outcome.times) - self.jobs[0].arrival

    @property
    def area(self) -> FloatArray:
        """Integral (n_jobs,) of each job's normalized loss from arrival to end, in seconds."""
        found = []
        for job, times in zip(self.jobs, self.outcome.times, strict=True):
            before = np.append(1.0, normalized_loss(job))[:-1]
            found.append(float(np.sum(before * np.diff(times, prepend=job.arrival))))
        return np.array(found)

    def mean_loss(self) -> float:
        """Return the mean over time of the mean normalized loss of active jobs, as in the paper.

        The longer a policy keeps nearly converged jobs, the lower it is; `area` has no such bias.
        """
        at, mean, active = self.loss_over_time()
        lasts = np.diff(at)[active > 0]
        return float(np.sum(mean[active > 0] * lasts) / np.sum(lasts))

    def loss_over_time(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return steps of time, the mean normalized loss of active jobs, and their number."""
        at, loss, count = [], [], []
        for job, times in zip(self.jobs, self.outcome.times, strict=True):
            levels = np.concatenate([[0.0, 1.0], normalized_loss(job)])
            levels[-1] = 0.0  # the job has left
            at.append(np.append(job.arrival, times))
            loss.append(np.diff(levels))
            step = np.zeros(len(levels) - 1)
            step[0], step[-1] = 1.0, -1.0
            count.append(step)
        order = np.argsort(np.concatenate(at), kind="stable")
        total = np.cumsum(np.concatenate(loss)[order])[:-1]
        active = np.cumsum(np.concatenate(count)[order])[:-1].round()
        mean = np.divide(total, active, out=np.zeros(len(total)), where=active > 0)
        return np.concatenate(at)[order], mean, active


def normalized_loss(job: SimulatedJob) -> FloatArray:
    """Return the fraction (n_iterations,) of the fall that is left; 0 if the loss never falls."""
    best = np.minimum.accumulate(job.loss)
    fall = best[0] - best[-1]
    return (best - best[-1]) / fall if fall > 0 else np.zeros(len(best))


def summarize(
    runs: Sequence[SimulatedRun], fair: Sequence[SimulatedRun], cores: int
) -> dict[str, float | int | None]:
    """Summarize the `runs` of one policy over its seeds, and those of `fair` on the same lists.

    The cluster has `cores` threads. The result has the keys of the JSON output. rho is the
    finish-time fairness of a job: its seconds to completion over those under `fair`. `rho95` is the
    same ratio for 95 % of the loss reduction. ``converged_share`` is the fraction of the time of
    all jobs in which at most 5 % of their loss reduction was left.
    """
    pairs = list(zip(runs, fair, strict=True))
    rho = np.concatenate([a.completion / b.completion for a, b in pairs])
    rho95 = np.concatenate([a.time_to(0.95) / b.time_to(0.95) for a, b in pairs])
    decisions = [d for run in runs for d in run.outcome.decisions]
    time = sum(run.makespan for run in runs)
    every = np.concatenate([run.completion for run in runs])
    young = np.concatenate([run.time_to(0.95) for run in runs])
    return {
        "t90_mean_s": _mean(run.time_to(0.90) for run in runs),
        "t95_mean_s": _mean(run.time_to(0.95) for run in runs),
        "completion_mean_s": _mean(run.completion for run in runs),
        "mean_normalized_loss": float(np.mean([run.mean_loss() for run in runs])),
        "converged_share": float(1.0 - np.nan_to_num(young).sum() / every.sum()),
        "area": _mean(run.area for run in runs),
        "rho_mean": float(np.mean(rho)),
        "rho_p95": float(np.percentile(rho, 95)),
        "rho_max": float(np.max(rho)),
        "rho95_max": None if np.isnan(rho95).all() else float(np.nanmax(rho95)),
        "makespan_s": float(np.mean([run.makespan for run in runs])),
        "utilization": sum(run.outcome.busy for run in runs) / (cores * time),
        "active_mean": sum(float(run.completion.sum()) for run in runs) / time,
        "worker_moves": sum(run.outcome.moved for run in runs),
        "decisions": len(decisions),
        "decision_seconds": float(np.mean(decisions)) if decisions else None,
    }


def _mean(values: Iterable[FloatArray]) -> float | None:
    """Return the mean over all jobs of all runs that have a value; None if none has."""
    every = np.concatenate(list(values))
    known = every[~np.isnan(every)]
    return float(np.mean(known)) if len(known) else None
