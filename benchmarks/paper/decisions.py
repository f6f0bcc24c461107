"""Figure 10b: time per decision by jobs and cores, from the decision benchmark."""

from __future__ import annotations

import xarray as xr
from threadpoolctl import threadpool_limits

from benchmarks import decision
from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import Study

__all__ = ["decisions", "decisions_rows"]

METHODS = ("ours", "the paper's way")

_PAPER = "hundreds of milliseconds to a few seconds"


def decisions(study: Study) -> xr.Dataset:
    """Figure 10b: time per decision, measured for every size."""
    jobs, cores = study.scale.decision_jobs, study.scale.decision_cores
    with threadpool_limits(1):
        found = [[_seconds(study, n, c) for c in cores] for n in jobs]
    seconds = [[[pair[k] for pair in row] for row in found] for k in range(len(METHODS))]
    return dataset(
        {"seconds": variable(("way", "jobs", "cores"), seconds, "time of a decision", "s")},
        {
            "way": (list(METHODS), "way", ""),
            "jobs": (jobs, "jobs", "1"),
            "cores": (cores, "cores", "1"),
        },
        figure="10b",
        title="Time of a decision",
        shows="scheduling time for 1000 to 4000 jobs on 1000 to 16000 cores",
        setting="one thread of this machine, a report of every job since the last decision; ours: "
        "reports, fits, policy and placement; the paper's way: a curve_fit for every job, timed "
        f"on {study.scale.fits} jobs and multiplied, and Algorithm 1 with a heap",
    )


def _seconds(study: Study, jobs: int, cores: int) -> tuple[float, float]:
    found = decision.measure(
        jobs, cores, policy="max-total", seed=study.seed, decisions=3, fits=study.scale.fits
    )
    return found["seconds"], found["paper_seconds"]


def decisions_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 10b: the largest size."""
    jobs, cores = int(data["jobs"].max()), int(data["cores"].max())
    ours = by_name(data["seconds"].sel(jobs=jobs, cores=cores))
    measured = f"time of a decision, {jobs} jobs on {cores} cores"
    return [Row("10b", measured, _PAPER, ours, "s", data.attrs["setting"])]
