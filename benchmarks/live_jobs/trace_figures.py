"""Figures of replayed traces: what failures cost, and for what jobs wait.

A job waits from when an iteration is submitted until all of its tasks have started. In the study a
job waits once, before it starts, and is not preempted; this is the delay until the first iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.live_jobs.philly import (
    FRAGMENTATION,
    STATUSES,
    WORK,
    Assumptions,
    TraceJob,
    make_trace,
    make_trace_jobs,
    window,
)
from benchmarks.live_jobs.trace_runs import AGAIN, REPLACED, Ledger, Place, run_trace
from dask_slaq.simulation.workload import Curve, Trace, iterations_to
from dask_slaq.simulation.workload.curves import make_curves

__all__ = ["Replay", "combine", "delays", "show"]

#: Seconds, and part of its time, by which an attempt may miss its promise: epochs are one second.
SLACK, SLACK_PART = 1.0, 0.05
#: Seconds within which tasks start together: their inputs may have to move first.
TOGETHER = 0.1


@dataclass(frozen=True)
class Replay:
    """Runner of a trace under a policy for a seed. Without trace or curves, the seed makes them."""

    trace: Trace | None
    curves: Sequence[Curve]
    count: int
    load: float
    scale: float
    assumed: Assumptions
    settings: dict[str, Any]

    def jobs(self, seed: int) -> list[TraceJob]:
        """Make the jobs for a `seed`."""
        if self.trace is None:
            trace = make_trace(seed, self.count)
        else:
            trace = window(self.trace, seed, self.count)
        return make_trace_jobs(
            trace,
            list(self.curves) or make_curves(seed),
            seed,
            threads=self.settings["workers"],
            load=self.load,
            scale=self.scale,
            assumed=self.assumed,
        )

    def about(self, seeds: Sequence[int]) -> str:
        """Say what runs, and what is assumed."""
        name = "made from the seed" if self.trace is None else f"{self.trace.name} of a file"
        gangs = [job.gpus for seed in seeds for job in self.jobs(seed)]
        assumed = ", ".join(f"{key} {value:g}" for key, value in vars(self.assumed).items())
        return (
            f"{len(seeds)} x {self.count} jobs of a trace {name}, {np.mean(gangs):.1f} GPUs each,"
            f" on {self.settings['workers']} threads: one per GPU and at most all, together.\n"
            f"Durations are scaled to a mean of {self.scale * WORK:g} core-seconds, and arrivals"
            f" to a load of {self.load:g} without what failures repeat.\n"
            "Assumed: a job would train as long as in the trace; a curve, by the seed; a retry"
            f" {AGAIN:g} s after a failure; a new worker {REPLACED:g} s after a death;\n{assumed}."
            " Shares of unsuccessful and killed jobs are by default those of the study (Table 6).\n"
        )

    def __call__(self, policy: str, seed: int) -> dict[str, Any]:
        """Return the figures of one run: see `combine` for their means."""
        jobs = self.jobs(seed)
        ledger = run_trace(jobs, policy, seed=seed, **self.settings)
        return _measure(jobs, ledger, self.settings["workers"], self.assumed.checkpoint)


def _measure(
    jobs: Sequence[TraceJob], ledger: Ledger, threads: int, checkpoint: int
) -> dict[str, Any]:
    attempts = {(job.name, i): attempt for job in jobs for i, attempt in enumerate(job.attempts)}
    status = {job.name: job.status for job in jobs}
    seconds, failed, lost = 0.0, 0.0, 0.0
    by_status = dict.fromkeys(STATUSES, 0.0)
    for place, _, start, stop in ledger.spans:
        attempt = attempts[place.job, place.attempt]
        seconds += stop - start
        by_status[status[place.job]] += stop - start
        if attempt.how in ("task", "worker"):
            failed += stop - start
            kept = attempt.end - attempt.end % checkpoint if checkpoint else 0
            lost += stop - start if place.iteration >= kept else 0.0
    waited = delays(jobs, ledger, threads)
    return {
        "core_seconds": seconds,
        "failed_attempts": failed / seconds,
        "lost": lost / seconds,
        "by_status": {name: part / seconds for name, part in by_status.items()},
        "bytes_per_core_second": ledger.bytes_moved / seconds,
        "makespan_s": max(ledger.completion.values()) - min(job.arrival for job in jobs),
        "apart": _apart(ledger),
        "promises": _promises(jobs, ledger),
        "jobs": [
            {
                "name": job.name,
                "gpus": job.gpus,
                "status": job.status,
                "attempts": len(job.attempts),
                "t90_s": _time_to(0.9, job, ledger),
                "completion_s": ledger.completion[job.name] - job.arrival,
                **waited[job.name],
            }
            for job in jobs
        ],
    }


def _apart(ledger: Ledger) -> float:
    """Return the share of iterations of several tasks in which these did not start together."""
    starts: dict[Place, list[float]] = {}
    for place, _, start, _ in ledger.spans:
        starts.setdefault(place, []).append(start)
    spreads = [max(found) - min(found) for found in starts.values() if len(found) > 1]
    return float(np.mean(np.array(spreads) > TOGETHER)) if spreads else 0.0


def _time_to(part: float, job: TraceJob, ledger: Ledger) -> float | None:
    """Return the seconds from the arrival of a job to a part of its curve's fall, or None."""
    k = iterations_to(job.loss, part)
    at = [t for place, t in ledger.reported.items() if place.job == job.name]
    reached = [place.iteration + 1 for place in ledger.reported if place.job == job.name]
    found = [t for t, n in zip(at, reached, strict=True) if k is not None and n >= k]
    return min(found) - job.arrival if found else None


def delays(jobs: Sequence[TraceJob], ledger: Ledger, threads: int) -> dict[str, dict[str, float]]:
    """Return what each job waited, in seconds: ``delay_s`` over all iterations of all attempts,
    ``first_s`` from its arrival until all tasks of an iteration run for the first time, and of
    these ``delay_gang_s`` and ``first_gang_s``, in which some of the `threads` were idle.

    Threads of dead workers count as busy.
    """
    starts: dict[Place, list[float]] = {}
    for place, _, start, _ in ledger.spans:
        starts.setdefault(place, []).append(start)
    edges = [(start, 1) for _, _, start, _ in ledger.spans]
    edges += [(stop, -1) for *_, stop in ledger.spans]
    edges += [(t, step) for _, start, stop in ledger.down for t, step in ((start, 1), (stop, -1))]
    edges.sort()
    time = np.array([t for t, _ in edges])
    busy = np.cumsum([step for _, step in edges])
    full = np.append(0.0, np.cumsum(np.diff(time) * (busy[:-1] >= threads)))

    def idle(begin: float, end: float) -> float:
        taken = np.interp([begin, end], time, full)
        return max(end - begin - float(taken[1] - taken[0]), 0.0)

    found = {}
    for job in jobs:
        waits = [
            (at, sorted(starts[place])[: job.gpus][-1])
            for place, at in ledger.submitted.items()
            if place.job == job.name and place in starts
        ]
        first = (job.arrival, waits[0][1])
        found[job.name] = {
            "delay_s": sum(end - begin for begin, end in waits),
            "delay_gang_s": sum(idle(*each) for each in waits),
            "first_s": first[1] - first[0],
            "first_gang_s": idle(*first),
        }
    return found


def _promises(jobs: Sequence[TraceJob], ledger: Ledger) -> dict[str, int]:
    """Count promises of attempts that succeeded, and those kept; ``again``, of jobs that failed."""
    found = {"made": 0, "kept": 0, "made_again": 0, "kept_again": 0}
    for job in jobs:
        last = len(job.attempts) - 1
        begun, promised, ended = ledger.promises.get((job.name, last), (0.0, 0.0, math.nan))
        if job.status != "passed" or math.isnan(ended):
            continue
        kept = ended <= promised + SLACK + SLACK_PART * (promised - begun)
        found["made"] += 1
        found["kept"] += kept
        found["made_again"] += last > 0
        found["kept_again"] += kept and last > 0
    return found


def combine(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the runs of a policy: means over runs, and over the jobs of all of them.

    ``gpus`` has the delays by number of GPUs, and "all".
    """
    jobs = [{**job, "run": i} for i, run in enumerate(runs) for job in run["jobs"]]
    sizes = sorted({job["gpus"] for job in jobs})
    means = (
        "core_seconds",
        "failed_attempts",
        "lost",
        "bytes_per_core_second",
        "makespan_s",
        "apart",
    )
    return {
        **{key: _mean(run[key] for run in runs) for key in means},
        "by_status": {name: _mean(run["by_status"][name] for run in runs) for name in STATUSES},
        "t90_mean_s": _mean(job["t90_s"] for job in jobs if job["status"] == "passed"),
        "promises": {key: sum(run["promises"][key] for run in runs) for key in runs[0]["promises"]},
        "gpus": {
            str(size): _delay([job for job in jobs if size in ("all", job["gpus"])])
            for size in (*sizes, "all")
        },
        "jobs": jobs,
    }


def _delay(jobs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {"jobs": len(jobs)}
    for key in ("first", "delay"):
        waits = np.array([job[f"{key}_s"] for job in jobs])
        gang = sum(job[f"{key}_gang_s"] for job in jobs)
        found[f"{key}_mean_s"] = float(waits.mean())
        found[f"{key}_p90_s"] = float(np.quantile(waits, 0.9))
        found[f"{key}_gang"] = gang / waits.sum() if waits.sum() > 1e-6 else 0.0
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def show(policies: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the figures as two tables, with those of the study where it has them."""
    lines = [
        f"{'policy':>15}  failed    lost  passed  killed  unsucc.  KB/core-s   t90/s  makespan/s"
        "  apart  promises kept  again"
    ]
    for name, row in policies.items():
        parts = [row["failed_attempts"], row["lost"], *row["by_status"].values()]
        cells = [f"{part:6.1%}" for part in parts]
        kept = row["promises"]
        ratio, again = (
            f"{kept['kept']}/{kept['made']}",
            f"{kept['kept_again']}/{kept['made_again']}",
        )
        t90 = "-" if row["t90_mean_s"] is None else f"{row['t90_mean_s']:.2f}"
        lines.append(
            f"{name:>15}  {'  '.join(cells)}  {row['bytes_per_core_second'] / 1e3:10.1f}"
            f"  {t90:>6}  {row['makespan_s']:10.1f}  {row['apart']:5.1%}"
            f"  {ratio if kept['made'] else '-':>13}  {again if kept['made_again'] else '-':>5}"
        )
    shares = [f"{part:6.1%}" for _, part in STATUSES.values()]
    lines.append(f"{'study':>15}  {'-':>6}  {'-':>6}  {'  '.join(shares)}  {'-':>10}")
    lines += ["", "Delay in seconds; gang: part of it in which threads were idle, but too few"]
    lines.append(
        f"{'policy':>15}  gpus  jobs   first   p90  gang  study  all iterations    p90  gang"
    )
    for name, row in policies.items():
        for size, delay in row["gpus"].items():
            lines.append(
                f"{name:>15}  {size:>4}  {delay['jobs']:4}  {delay['first_mean_s']:6.2f}"
                f"  {delay['first_p90_s']:4.1f}  {delay['first_gang']:4.0%}  {_of_study(size):>5}"
                f"  {delay['delay_mean_s']:14.2f}  {delay['delay_p90_s']:5.1f}"
                f"  {delay['delay_gang']:4.0%}"
            )
    return "\n".join(lines)


def _of_study(size: str) -> str:
    """Return the share of delayed jobs of a size that waited for locality, in the study."""
    if size in ("all", "1"):
        return "-"
    return next((f"{part:.0%}" for most, part in FRAGMENTATION.items() if int(size) <= most), "-")
