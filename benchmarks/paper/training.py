"""Figures 1 and 3: how the losses of training algorithms fall, from the curves alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import NOT_STATED, Row, dataset, variable
from benchmarks.paper.study import Study, largest_groups
from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.simulation.workload.curves import Curve

__all__ = ["changes", "changes_rows", "progress", "progress_rows"]


#: Points on the time axis of Figure 1, and iterations in Figure 3.
POINTS, ITERATIONS = 101, 100
#: Iterations over which the table averages the remaining change.
LATE = (40, 60)


def progress(study: Study) -> xr.Dataset:
    """Figure 1: loss reduction against training time, both in percent of the whole."""
    groups = largest_groups([curve for curve in study.curves if _reduction(curve) is not None])
    time = np.linspace(0.0, 100.0, POINTS)
    reached = [_mean_progress(members, time) for members in groups.values()]
    return dataset(
        {
            "loss_reduction": variable(
                ("algorithm", "time"), reached, "loss reduction reached", "% of the whole"
            )
        },
        {
            "algorithm": (list(groups), "algorithm", ""),
            "time": (time, "training time", "% of the whole"),
        },
        figure="1",
        title="Most of the loss reduction comes early",
        shows="cumulative loss reduction against training time, by algorithm",
        setting=f"{study.source}; iterations of a run take equally long; running minimum of the "
        "loss, mean over the curves of an algorithm",
    )


def _reduction(curve: Curve) -> FloatArray | None:
    """Return the loss reduction in percent (n_iterations,), or None if the loss never falls."""
    best = np.minimum.accumulate(curve.loss)
    fall = best[0] - best[-1]
    return 100.0 * (best[0] - best) / fall if fall > 0 else None


def _mean_progress(curves: Sequence[Curve], time: FloatArray) -> FloatArray:
    reached = [_reduction(curve) for curve in curves]
    every = [
        np.interp(time, np.linspace(0.0, 100.0, len(one)), one)
        for one in reached
        if one is not None
    ]
    return np.mean(every, axis=0)


def progress_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 1."""
    mean = data["loss_reduction"].mean("algorithm")
    early = float(mean.sel(time=20.0, method="nearest"))
    reached = float(data["time"].values[int((mean.values >= 80.0).argmax())])
    setting = data.attrs["setting"]
    return [
        Row("1", "loss reduction after 20 % of the training time", NOT_STATED,
            {"mean of the algorithms": early}, "%", setting),
        Row("1", "training time to 80 % of the loss reduction", NOT_STATED,
            {"mean of the algorithms": reached}, "%", setting),
    ]  # fmt: skip


def changes(study: Study) -> xr.Dataset:
    """Figure 3: change of the loss per iteration, normalized by the largest change so far."""
    smooth = [curve for curve in study.curves if not curve.noisy and len(curve.loss) > 2]
    groups = largest_groups(smooth or study.curves)
    change = [_mean_change(members) for members in groups.values()]
    return dataset(
        {
            "change": variable(
                ("algorithm", "iteration"), change, "change of loss over the largest so far", "1"
            )
        },
        {
            "algorithm": (list(groups), "algorithm", ""),
            "iteration": (np.arange(1, ITERATIONS + 1), "iteration", "1"),
        },
        figure="3",
        title="Normalized, the changes of all losses fall from 1 towards 0",
        shows="change of loss of each iteration, normalized by the largest change so far, "
        "by algorithm",
        setting=f"{study.source}, without noisy ones; median over those of an algorithm that run "
        "so long",
    )


def _mean_change(curves: Sequence[Curve]) -> FloatArray:
    """Return the median (ITERATIONS,) over curves; nan once fewer than half of them remain."""
    table = np.full((len(curves), ITERATIONS), np.nan)
    for row, curve in zip(table, curves, strict=True):
        size = np.abs(np.diff(curve.loss))[:ITERATIONS]
        largest = np.maximum.accumulate(size)
        row[: len(size)] = np.divide(size, largest, out=np.zeros(len(size)), where=largest > 0)
    enough = 2 * np.isfinite(table).sum(axis=0) >= len(curves)
    found = np.full(ITERATIONS, np.nan)
    found[enough] = np.nanmedian(table[:, enough], axis=0)
    return found


def changes_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 3."""
    late = data["change"].sel(iteration=slice(*LATE)).mean()
    measured = f"normalized change of loss in iterations {LATE[0]} to {LATE[1]}"
    ours = {"mean of the algorithms": float(late)}
    return [Row("3", measured, NOT_STATED, ours, "", data.attrs["setting"])]
