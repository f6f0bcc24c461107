"""Runs of repeated jobs on the virtual clock, with each memory under each policy."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from benchmarks.common.metrics import Run, summarize
from benchmarks.common.results import say, table
from benchmarks.live_jobs.drivers import run_emulated
from benchmarks.live_jobs.emulated import COUNTS
from benchmarks.memory.jobs import SCENARIOS, repeated_jobs
from benchmarks.memory.kinds import KnownKind

POLICIES = ("max-total", "first-to-target")


def run(
    kinds: list[KnownKind],
    arrival: str,
    scenario: str,
    policy: str,
    seed: int,
    shape: dict[str, Any],
) -> Run:
    """Run one list of jobs with one memory under one policy."""
    listed = repeated_jobs(kinds, arrival, seed, **shape)
    jobs, past = listed.jobs, listed.memory.get(scenario, [])
    if scenario == "without":  # no two jobs are alike
        jobs = [replace(job, kind={"name": job.name}) for job in jobs]
    return run_emulated(jobs, policy, seed=seed, past=past if policy != "none" else [])


def measure(
    kinds: dict[int, list[KnownKind]], shape: dict[str, Any], pool: Executor
) -> dict[str, Any]:
    """Run all policies with all memories on kinds by seed; `shape` is passed to `repeated_jobs`.

    Returns by arrival, scenario and policy ``t90_over_best``, relative to the better of none and
    fair, ``makespan_over_none``, and ``t90_over_without``, relative to no memory. The scenario
    ``without`` has no memory.
    """
    rows = [("without", policy) for policy in ("none", "fair", *POLICIES)]
    rows += [(scenario, policy) for scenario in SCENARIOS for policy in POLICIES]
    due = {
        (arrival, *row): [
            pool.submit(run, kinds[seed], arrival, *row, seed, shape) for seed in kinds
        ]
        for arrival in COUNTS
        for row in rows
    }
    found: dict[str, Any] = {}
    for arrival in COUNTS:
        runs = {}
        for row in rows:
            runs[row] = summarize([future.result() for future in due[(arrival, *row)]])
            t90, makespan = (runs[row][key] for key in ("t90_mean_s", "makespan_s"))
            line = f"{arrival}, {', '.join(row)}: t90 {t90:.2f} s, makespan {makespan:.1f} s"
            say(line)
        best = min(runs["without", policy]["t90_mean_s"] for policy in ("none", "fair"))
        makespan = runs["without", "none"]["makespan_s"]
        found[arrival] = {
            scenario: {
                policy: {
                    "t90_over_best": runs[scenario, policy]["t90_mean_s"] / best,
                    "makespan_over_none": runs[scenario, policy]["makespan_s"] / makespan,
                    "t90_over_without": runs[scenario, policy]["t90_mean_s"]
                    / runs["without", policy]["t90_mean_s"],
                }
                for policy in POLICIES
            }
            for scenario in ("without", *SCENARIOS)
        }
    return found


def show(found: dict[str, Any]) -> str:
    """Format the ratios as a table."""
    rows = [
        [f"{arrival}, {scenario}, {policy}", *(f"{ratio:.3f}" for ratio in row.values())]
        for arrival, scenarios in found.items()
        for scenario, policies in scenarios.items()
        for policy, row in policies.items()
    ]
    return table(["", "t90/best", "mksp/none", "t90/without"], rows)
