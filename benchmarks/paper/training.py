"""Figures 1 and 5: losses as trainings report them, without a scheduler."""

from __future__ import annotations

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import Study
from dask_slaq.lab.simulation.workload.curves import iterations_to

#: Algorithms of Figure 1, by how they are called here and in the paper.
FOUR = {
    "logistic regression": "LogReg", "linear SVM": "SVM", "LDA": "LDA", "MLP classifier": "MLPC",
}  # fmt: skip
REDUCTIONS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 98, 100)
#: Iterations of Figure 5.
SHOWN = 100


def cumulative(study: Study) -> xr.Dataset:
    """Figure 1: relative time to percentages of the loss reduction, of four jobs."""
    groups = study.groups()
    jobs = {name: groups[group] for group, name in FOUR.items() if group in groups}
    jobs = jobs or dict(list(groups.items())[:4])
    time = [
        [100.0 * (iterations_to(c.loss, r / 100) or 0) / len(c.loss) if r else 0.0
         for r in REDUCTIONS]
        for c in jobs.values()
    ]  # fmt: skip
    return dataset(
        {"time": variable(("job", "reduction"), time, "relative cumulative time", "%")},
        {
            "job": (list(jobs), "job", ""),
            "reduction": (REDUCTIONS, "loss reduction", "% of the whole"),
        },
        figure="1",
        title="Work that the last part of the loss reduction takes",
        setting=f"whole curves of one training each, of {study.source}; all iterations cost alike",
    )


def cumulative_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 1."""
    values = by_name(data["time"].sel(reduction=95))
    differs = "It depends on when a training is stopped: these take 60 to 300 iterations."
    return [Row("time to 95 % of the loss reduction", "SVM 20 %", values, "%", differs)]


def changes(study: Study) -> xr.Dataset:
    """Figure 5: the change of the loss over the largest one so far, by algorithm."""
    groups = study.groups()
    change = np.full((len(groups), SHOWN), np.nan)
    for row, curve in zip(change, groups.values(), strict=True):
        steps = np.abs(np.diff(curve.loss[: SHOWN + 1]))
        row[: len(steps)] = steps / np.maximum(np.maximum.accumulate(steps), 1e-300)
    return dataset(
        {"change": variable(("algorithm", "iteration"), change, "normalized loss change", "1")},
        {
            "algorithm": (list(groups), "algorithm", ""),
            "iteration": (range(1, SHOWN + 1), "iteration", "1"),
        },
        figure="5",
        title="Loss changes over the largest one so far",
        setting=f"one full-batch training per algorithm, of {study.source}",
    )


def changes_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 5: the highest and the lowest of all algorithms."""
    change = data["change"]
    late = change.isel(iteration=slice(-20, None)).mean("iteration")
    values = {
        "in the first iteration": float(change.isel(iteration=0).min()),
        "in the last 20, median": float(late.median()),
        "highest": float(late.max()),
    }
    return [Row("normalized loss change by algorithm", "from 1 to 0 for all", values)]
