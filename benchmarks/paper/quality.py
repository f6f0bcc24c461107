"""Figures 7a and 7b, and all measures of their runs: quality and times under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import NOT_STATED, Row, by_name, dataset, variable
from benchmarks.paper.setting import BINS, CASES, FREE, POLICIES, describe, main_runs
from benchmarks.paper.study import Study
from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.simulation.metrics import Run, summarize

__all__ = ["less", "losses", "losses_rows", "measures", "measures_rows", "times", "times_rows"]


#: Percent of the loss reduction.
REDUCTIONS = (25.0, 50.0, 75.0, 80.0, 85.0, 90.0, 95.0, 100.0)
#: Key in `summarize`, description, unit, and conversion factor to the unit.
MEASURES = (
    ("mean_normalized_loss", "mean normalized loss of the active jobs", "", 1.0),
    ("converged_share", "part of the jobs' time with at most 5 % left to fall", "%", 100.0),
    ("area", "integral of the normalized loss, mean of the jobs", "s", 1.0),
    ("t90_mean_s", "mean time to 90 % of the loss reduction", "s", 1.0),
    ("t95_mean_s", "mean time to 95 % of the loss reduction", "s", 1.0),
    ("completion_mean_s", "mean time to completion", "s", 1.0),
    ("rho_mean", "time to completion over that under fair, mean", "", 1.0),
    ("rho_p95", "time to completion over that under fair, 95th percentile", "", 1.0),
    ("rho_max", "time to completion over that under fair, worst job", "", 1.0),
    ("utilization", "cores that compute", "%", 100.0),
    ("worker_moves", "workers of 16 cores that jobs gained, a job", "", 1.0),
    ("decision_seconds", "time of a decision, mean", "ms", 1e3),
)
#: The paper's values for fair.
_FAIR = {"t90_mean_s": "fair 71 s", "t95_mean_s": "fair 98 s"}


def losses(study: Study) -> xr.Dataset:
    """Figure 7a: mean normalized loss of the active jobs over time."""
    runs = {policy: main_runs(study)[FREE, policy] for policy in POLICIES}
    first = [run.jobs[-1].arrival for run in runs[POLICIES[0]]]
    edges = np.linspace(0.0, min(first), BINS + 1)
    over_time = [
        np.mean([_by_interval(*run.loss_over_time(), edges) for run in runs[p]], axis=0)
        for p in POLICIES
    ]
    mean = [np.mean([run.mean_loss() for run in runs[p]]) for p in POLICIES]
    name = "mean normalized loss of the active jobs"
    return dataset(
        {
            "loss": variable(("policy", "time"), over_time, name, "1"),
            "mean_loss": variable(("policy",), mean, f"{name}, of the whole run", "1"),
        },
        {
            "policy": (list(POLICIES), "policy", ""),
            "time": ((edges[:-1] + edges[1:]) / 2, "time", "s"),
        },
        figure="7a",
        title="Normalized loss of the active jobs",
        shows="average normalized loss of the active jobs over time, SLAQ and fair",
        setting=f"{describe(study)}; no job active counts as 0 in the picture and not at all in "
        "the mean; a policy that keeps nearly converged jobs active is flattered by this measure",
    )


def _by_interval(
    at: FloatArray, value: FloatArray, active: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return the mean (n_edges - 1,) of a step function between edges; 0 where undefined."""
    total = np.append(0.0, np.cumsum(value * np.diff(at)))
    return np.diff(np.interp(edges, at, total)) / np.diff(edges)


def less(data: xr.DataArray) -> dict[str, float]:
    """Return by how many percent each policy is below fair."""
    found = by_name(data)
    fair = found.pop("fair")
    return {name: 100.0 * (1.0 - value / fair) for name, value in found.items()}


def losses_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 7a."""
    measured = "mean normalized loss of the active jobs, less than under fair by"
    setting = data.attrs["setting"]
    return [Row("7a", measured, "up to 73 %", less(data["mean_loss"]), "%", setting)]


def times(study: Study) -> xr.Dataset:
    """Figure 7b: mean time to several percentages of the loss reduction."""
    runs = main_runs(study)
    seconds = [[[_mean_time(runs[c, p], r) for r in REDUCTIONS] for p in POLICIES] for c in CASES]
    return dataset(
        {
            "seconds": variable(
                ("case", "policy", "reduction"), seconds, "mean time since arrival", "s"
            )
        },
        {
            "case": (list(CASES), "how elastic jobs are", ""),
            "policy": (list(POLICIES), "policy", ""),
            "reduction": (REDUCTIONS, "loss reduction", "% of the whole"),
        },
        figure="7b",
        title="Time to parts of the loss reduction",
        shows="average time to reach percentages of the loss reduction, SLAQ and fair",
        setting=describe(study),
    )


def _mean_time(runs: Sequence[Run], percent: float) -> float:
    return float(np.nanmean(np.concatenate([run.time_to(percent / 100.0) for run in runs])))


def times_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 7b."""
    rows = []
    for case in data["case"].values.tolist():
        for percent, paper in ((90.0, "45 %"), (95.0, "30 %")):
            seconds = data["seconds"].sel(case=case, reduction=percent)
            name = f"mean time to {percent:.0f} % of the loss reduction"
            measured = f"{name}, {case}, less than under fair by"
            rows.append(Row("7b", measured, paper, less(seconds), "%", data.attrs["setting"]))
    return rows


def measures(study: Study) -> xr.Dataset:
    """Compute all measures of the runs of Figure 7, which have no picture."""
    runs = main_runs(study)
    found: dict[str, list[list[float]]] = {key: [] for key, *_ in MEASURES}
    for case in CASES:
        fair = runs[case, "fair"]
        by_policy: list[dict[str, Any]] = [
            summarize(runs[case, p], fair, study.scale.cores) for p in POLICIES
        ]
        for key, _, _, factor in MEASURES:
            per = study.scale.jobs * study.scale.seeds if key == "worker_moves" else 1
            found[key].append([factor * one[key] / per for one in by_policy])
    return dataset(
        {
            key: variable(("case", "policy"), found[key], name, unit or "1")
            for key, name, unit, _ in MEASURES
        },
        {
            "case": (list(CASES), "how elastic jobs are", ""),
            "policy": (list(POLICIES), "policy", ""),
        },
        figure="7",
        title="Measures of the paper's setting",
        shows="no figure",
        setting=describe(study),
    )


def measures_rows(data: xr.Dataset) -> list[Row]:
    """Return all measures as rows of the table."""
    return [
        Row("7", f"{name}, {case}", _FAIR.get(key, NOT_STATED),
            by_name(data[key].sel(case=case)), unit, data.attrs["setting"])
        for case in data["case"].values.tolist()
        for key, name, unit, _ in MEASURES
    ]  # fmt: skip
