"""Simulation of the paper's setting (§6.2), shared by Figures 7a and 7b."""

from __future__ import annotations

from benchmarks.paper.study import Study
from dask_slaq.simulation.metrics import Run

__all__ = ["BINS", "CASES", "FREE", "POLICIES", "describe", "main_runs"]


#: The paper has no oracle, which uses the true curves and running times.
POLICIES = ("fair", "max-total", "oracle")
#: Maximum threads per job, by the name of the case.
CASES = {"any number of cores a job": None, "at most 64 cores a job": 64.0}
FREE = next(iter(CASES))
#: Intervals of the time axes.
BINS = 60


def main_runs(study: Study) -> dict[tuple[str, str], list[Run]]:
    """Simulate the paper's setting, once per study. Returns runs by case and policy."""
    if "main" not in study.kept:
        tasks = {
            (case, policy): (policy, study.settings(max_cores=most), study.job_curves)
            for case, most in CASES.items()
            for policy in POLICIES
        }
        found = study.simulate(list(tasks.values()))
        study.kept["main"] = dict(zip(tasks, found, strict=True))
    runs: dict[tuple[str, str], list[Run]] = study.kept["main"]
    return runs


def describe(study: Study) -> str:
    """Describe the setting in words."""
    s = study.scale
    return (
        f"simulated: {s.jobs} jobs, {s.cores} cores, Poisson arrivals, mean {s.interarrival:g} s, "
        f"linear scaling, lists of jobs: {s.seeds}; {study.source}; work such that fair "
        "takes about 71 s to 90 % and 98 s to 95 % with 160 jobs that arrive every 15 s"
    )
