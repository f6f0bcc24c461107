"""Measures of runs, and their summaries.

The quality of a job is the running minimum of its true loss, normalized by the range of its own
run, at the time when the job published it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.common import results
from dask_slaq.lab.simulation.workload import iterations_to

#: `Run.late` in seconds above which a run counts as distorted.
LATE = 0.01


@dataclass
class JobTrace:
    """Losses of one job, one per iteration, and the times when they were published.

    All times are in seconds since the start of the run; the completion is nan while the job runs.
    """

    name: str
    arrival: float
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    completion: float = float("nan")

    def record(self, now: float, loss: float) -> None:
        """Record that the job published `loss` at time `now` (seconds)."""
        self.times.append(now)
        self.losses.append(float(loss))

    def time_to(self, fraction: float) -> float | None:
        """Return the seconds from arrival to `fraction` of the loss reduction, None without one."""
        k = iterations_to(self.losses, fraction) if self.losses else None
        return None if k is None else self.times[k - 1] - self.arrival


@dataclass(frozen=True)
class Run:
    """Result of one policy and one seed.

    `late` is the mean lateness in seconds of a sleeping thread of this process. Above a few
    milliseconds the machine was too busy for meaningful times. `charged` are the virtual seconds
    that the scheduler's CPU time took, or on real processes this time. `inside` are the shares of
    tasks that were sent inside the worker set of their job, and inside the one that was planned
    before grants moved.
    """

    seed: int
    traces: list[JobTrace]
    bytes_moved: int
    compute_seconds: float
    threads: int
    late: float = 0.0
    charged: float = 0.0
    inside: tuple[float, float] | None = None

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the last completion."""
        first = min(t.arrival for t in self.traces)
        return max(t.completion for t in self.traces) - first

    @property
    def utilization(self) -> float:
        """Share of the threads' time spent in tasks."""
        return self.compute_seconds / (self.threads * self.makespan)

    @property
    def active(self) -> float:
        """Mean number of active jobs over the whole run."""
        return sum(t.completion - t.arrival for t in self.traces) / self.makespan


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Summarize the runs of one policy. Returns the keys of the JSON output."""
    jobs = [
        {
            "name": t.name,
            "seed": run.seed,
            "iterations": len(t.losses),
            "t90_s": t.time_to(0.90),
            "t95_s": t.time_to(0.95),
            "completion_s": t.completion - t.arrival,
        }
        for run in runs
        for t in run.traces
    ]
    return {
        "t90_mean_s": results.mean(j["t90_s"] for j in jobs),
        "t95_mean_s": results.mean(j["t95_s"] for j in jobs),
        "completion_mean_s": results.mean(j["completion_s"] for j in jobs),
        "makespan_s": results.mean(run.makespan for run in runs),
        "bytes_moved": results.mean(run.bytes_moved for run in runs),
        "utilization": results.mean(run.utilization for run in runs),
        "active_jobs": results.mean(run.active for run in runs),
        "late_s": results.mean(run.late for run in runs),
        "inside": results.mean(run.inside and run.inside[0] for run in runs),
        "planned": results.mean(run.inside and run.inside[1] for run in runs),
        "charged_s": results.mean(run.charged for run in runs),
        "runs": [{"seed": r.seed, "makespan_s": r.makespan, "late_s": r.late} for r in runs],
        "jobs": jobs,
    }


def ratios(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Compare policies: makespan to that of none, t90, t95 to the better of none and fair.

    ``rho_max`` and ``rho_p95`` are the largest quotient, over jobs, of the time from arrival to end
    and that of the same job under fair, and its 95 % quantile.
    """
    result: dict[str, dict[str, float]] = {}
    for name, row in policies.items():
        found: dict[str, float] = {}
        if name != "none" and "none" in policies:
            found["makespan_over_none"] = row["makespan_s"] / policies["none"]["makespan_s"]
        for key in ("t90", "t95"):
            rivals = [policies[p][f"{key}_mean_s"] for p in ("none", "fair") if p in policies]
            rivals = [r for r in rivals if r]
            if rivals and name not in ("none", "fair") and row[f"{key}_mean_s"]:
                found[f"{key}_over_best_baseline"] = row[f"{key}_mean_s"] / min(rivals)
        if "fair" in policies:
            fair = policies["fair"]["jobs"]
            pairs = zip(row["jobs"], fair, strict=True)
            rho = [mine["completion_s"] / other["completion_s"] for mine, other in pairs]
            found["rho_max"], found["rho_p95"] = max(rho), float(np.quantile(rho, 0.95))
        result[name] = found
    return result


COLUMNS = ["t90/s", "t95/s", "makespan/s", "moved/MB", "busy", "active", "late/ms", "inside",
           "mksp/none", "t90/base", "worst rho"]  # fmt: skip


def table(workload: str, policies: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the summaries of one workload, by policy, as a readable table."""
    rows, compared = [], ratios(policies)
    for name, row in policies.items():
        over = compared[name]
        rows.append([
            name, row["t90_mean_s"], row["t95_mean_s"], row["makespan_s"],
            row["bytes_moved"] / 1e6, f"{row['utilization']:.0%}", row["active_jobs"],
            1e3 * row["late_s"], row["inside"], over.get("makespan_over_none"),
            over.get("t90_over_best_baseline"), over.get("rho_max"),
        ])  # fmt: skip
    return results.table([workload, *COLUMNS], rows)
