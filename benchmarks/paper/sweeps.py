"""Figures 9 and 10c: the paper's setting with more contention, and with moves that take time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import NOT_STATED, Row, by_name, dataset, variable
from benchmarks.paper.quality import less
from benchmarks.paper.study import Study
from dask_slaq.simulation.metrics import summarize
from dask_slaq.simulation.study import Settings

__all__ = ["contention", "contention_rows", "moves", "moves_rows"]

POLICIES = ("fair", "max-total")


def _sweep(study: Study, points: Sequence[Settings]) -> list[list[dict[str, Any]]]:
    """Simulate each policy at each point. Returns the measures, by policy and point."""
    tasks = [(policy, point, study.job_curves) for policy in POLICIES for point in points]
    runs = study.simulate(tasks)
    fair = runs[: len(points)]
    found = [
        summarize(some, fair[i % len(points)], study.scale.cores) for i, some in enumerate(runs)
    ]
    return [found[start : start + len(points)] for start in range(0, len(found), len(points))]


def _pick(found: list[list[dict[str, Any]]], key: str) -> np.ndarray:
    return np.array([[one[key] for one in by_point] for by_point in found], dtype=float)


def _setting(study: Study, arrivals: str) -> str:
    s = study.scale
    return (
        f"simulated: {s.jobs} jobs, {s.cores} cores, Poisson arrivals, {arrivals}, linear "
        f"scaling, lists of jobs: {s.sweep_seeds}; {study.source}"
    )


def contention(study: Study) -> xr.Dataset:
    """Figure 9: mean normalized loss and time to 90 %, by the time between arrivals."""
    between = study.scale.interarrivals
    found = _sweep(study, [study.settings(gap, seeds=study.scale.sweep_seeds) for gap in between])
    dims = ("policy", "interarrival")
    return dataset(
        {
            "loss": variable(
                dims, _pick(found, "mean_normalized_loss"),
                "mean normalized loss of the active jobs", "1",
            ),
            "t90": variable(
                dims, _pick(found, "t90_mean_s"), "mean time to 90 % of the loss reduction", "s"
            ),
        },
        {
            "policy": (list(POLICIES), "policy", ""),
            "interarrival": (between, "mean time between arrivals", "s"
            ),
        },
        figure="9",
        title="Contention: jobs that arrive at ever shorter intervals",
        shows="average normalized loss when jobs arrive every 10 to 2 s on average",
        setting=f"{_setting(study, 'the mean of the axis')}; the jobs' work is that of the "
        "paper's setting at 15 s. Under fair shares and linear scaling this mean does not depend "
        "on the arrivals: each job has the same share of the time in each state of its training",
    )  # fmt: skip


def contention_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 9."""
    rows = []
    gaps = data["interarrival"].values
    for gap in (gaps.max(), gaps.min()):
        at = data.sel(interarrival=gap)
        for key in ("loss", "t90"):
            name = data[key].attrs["long_name"]
            measured = f"{name}, one job every {gap:g} s, less than under fair by"
            rows.append(Row("9", measured, NOT_STATED, less(at[key]), "%", data.attrs["setting"]))
    return rows


def moves(study: Study) -> xr.Dataset:
    """Figure 10c: the cost to jobs if their data must move first."""
    pauses, seeds = study.scale.pauses, study.scale.sweep_seeds
    found = _sweep(study, [study.settings(move_pause=pause, seeds=seeds) for pause in pauses])
    dims = ("policy", "pause")
    gained = _pick(found, "worker_moves") / (study.scale.jobs * seeds)
    return dataset(
        {
            "t90": variable(
                dims, _pick(found, "t90_mean_s"), "mean time to 90 % of the loss reduction", "s"
            ),
            "moves": variable(dims, gained, "workers of 16 cores gained, a job", "1"),
        },
        {
            "policy": (list(POLICIES), "policy", ""),
            "pause": (pauses, "pause while data moves to a worker", "s"),
        },
        figure="10c",
        title="What moving costs",
        shows="overhead of moving jobs to other cores",
        setting=f"{_setting(study, f'mean {study.scale.interarrival:g} s')}; a job computes "
        "nothing on a worker that it gained until the pause is over; the engine knows the pause",
    )


def moves_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 10c."""
    rows = []
    for pause in data["pause"].values:
        at = data.sel(pause=pause)
        setting, case = data.attrs["setting"], f"with a pause of {pause:g} s"
        measured = f"mean time to 90 % of the loss reduction, {case}, less than under fair by"
        rows.append(Row("10c", measured, NOT_STATED, less(at["t90"]), "%", setting))
        measured = f"{data['moves'].attrs['long_name']}, {case}"
        rows.append(Row("10c", measured, NOT_STATED, by_name(at["moves"]), "", setting))
    return rows
