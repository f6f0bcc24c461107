"""Figures 3, 7a, 7b, 8 and 9: quality over time by policy, and what each of our changes gains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import OURS, POLICIES, Study
from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.lab.simulation.metrics import SimulatedRun, normalized_loss
from dask_slaq.lab.simulation.study import Settings, job_lists, run
from dask_slaq.lab.simulation.workload.curves import LossCurve, fit_for_jobs

#: Percent of the loss reduction.
REDUCTIONS = (25.0, 50.0, 75.0, 80.0, 85.0, 90.0, 95.0, 100.0)
#: Most cores of a job in the second case of Figure 7b, three of the paper's machines.
MOST = 96.0
#: Seconds that Figures 7a and 8 show, and their intervals.
SHOWN, BINS = 800.0, 80
#: Groups of active jobs by normalized loss, and upper bounds of their parts.
GROUPS = ("highest 25 %", "next 25 %", "lowest 50 %")
PARTS = (0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Watched:
    """A run, and the core-seconds (n_groups, n_bins) of each group of jobs over time."""

    run: SimulatedRun
    by_group: FloatArray


def simulate(policy: str, settings: Settings, curves: Sequence[LossCurve]) -> SimulatedRun:
    """Simulate one list of jobs."""
    [(seed, jobs)] = job_lists(curves, settings)
    return run(policy, seed, jobs, settings)


def watch(policy: str, settings: Settings, curves: Sequence[LossCurve]) -> Watched:
    """Simulate one list of jobs, and find which of them had the cores."""
    [(seed, jobs)] = job_lists(curves, settings)
    steps: list[tuple[float, Any, Any]] = []
    done = run(policy, seed, jobs, settings, lambda *step: steps.append(step))
    loss = [np.append(1.0, normalized_loss(job)) for job in jobs]
    found, edges = np.zeros((len(GROUPS), BINS)), np.linspace(0.0, SHOWN, BINS + 1)
    ends = [step[0] for step in steps[1:]] + [steps[-1][0]]
    for (start, active, threads), end in zip(steps, ends, strict=True):
        lasts = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0.0, None)
        if start >= SHOWN or not lasts.any():
            continue
        now = [loss[i][np.searchsorted(done.outcome.times[i], start, "right")] for i in active]
        found += by_group(now, threads)[:, None] * lasts
    return Watched(done, found)


def by_group(loss: Sequence[float], threads: Sequence[float]) -> FloatArray:
    """Return the threads of each of the `GROUPS` of jobs; a job may be in two of them."""
    order = np.argsort(-np.array(loss), kind="stable")
    upto = np.append(0.0, np.cumsum(np.asarray(threads)[order]))
    at = np.interp(np.array((0.0, *PARTS)) * len(order), np.arange(len(upto)), upto)
    return np.diff(at)


def _main(study: Study) -> dict[str, list[Watched]]:
    """Simulate the paper's setting, once per study. Returns runs by policy."""
    if "main" not in study.kept:
        found = study.simulate(watch, [(policy, study.settings()) for policy in POLICIES])
        study.kept["main"] = dict(zip(POLICIES, found, strict=True))
    runs: dict[str, list[Watched]] = study.kept["main"]
    return runs


def less(values: Mapping[str, float]) -> dict[str, float]:
    """Return by how many percent each policy is below fair."""
    fair = values["fair"]
    return {name: 100.0 * (1.0 - each / fair) for name, each in values.items() if name != "fair"}


# Figure 3


def one_job(study: Study) -> xr.Dataset:
    """Figure 3: accuracy and loss of one job over time, among others."""
    loss, accuracy = _classifier(study.seed)
    settings = study.settings(jobs=study.scale.one_job, seeds=1)
    [(seed, jobs)] = job_lists(study.job_curves, settings)
    middle = jobs[len(jobs) // 2]
    ours = replace(middle, loss=loss, reports=loss, work=middle.total / len(loss))
    jobs = [ours if job is middle else job for job in jobs]
    runs = {policy: run(policy, seed, jobs, settings) for policy in POLICIES}
    ends = {p: r.outcome.times[len(jobs) // 2] - ours.arrival for p, r in runs.items()}
    time = np.linspace(0.0, max(end[-1] for end in ends.values()), 200)
    at = {p: np.searchsorted(end, time, "right") - 1 for p, end in ends.items()}
    shown = [
        [np.where(at[p] < 0, np.nan, values[np.maximum(at[p], 0)]) for p in POLICIES]
        for values in (accuracy, loss)
    ]
    return dataset(
        {
            "accuracy": variable(("policy", "time"), shown[0], "accuracy on held-out data", "%"),
            "loss": variable(("policy", "time"), shown[1], "loss", "1"),
            "t90": variable(
                ("policy",), [float(r.time_to(0.9)[len(jobs) // 2]) for r in runs.values()],
                "time to 90 % of the loss reduction", "s",
            ),
        },
        {"policy": (list(POLICIES), "policy", ""), "time": (time, "time since arrival", "s")},
        figure="3",
        title="One job under each scheduler",
        setting=f"a logistic regression in the middle of a list of {len(jobs)} jobs; "
        f"{study.describe()}",
    )  # fmt: skip


def _classifier(seed: int) -> tuple[FloatArray, FloatArray]:
    """Train a logistic regression by gradient descent. Returns losses, and accuracies in %."""
    rng = np.random.default_rng([seed, 3])
    x = rng.standard_normal((4000, 30)) * np.geomspace(1.0, 0.1, 30)
    y = np.where(x @ rng.standard_normal(30) + 0.3 * rng.standard_normal(4000) > 0, 1.0, -1.0)
    train, held = slice(0, 3000), slice(3000, None)
    w, found = np.zeros(30), []
    for _ in range(100):
        margin = y[train] * (x[train] @ w)
        w += 2.0 * x[train].T @ (y[train] / (1.0 + np.exp(margin))) / 3000
        right = 100.0 * np.mean(y[held] * (x[held] @ w) > 0)
        found.append((np.log1p(np.exp(-y[train] * (x[train] @ w))).mean(), right))
    loss, accuracy = np.array(found).T
    return loss, accuracy


def one_job_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 3."""
    measured = "time of one job to 90 % of its loss reduction"
    return [Row(measured, "no value", by_name(data["t90"]), "s")]


# Figures 7a, 7b and 8


def losses(study: Study) -> xr.Dataset:
    """Figure 7a: mean normalized loss of the active jobs over time."""
    runs, edges = _main(study), np.linspace(0.0, SHOWN, BINS + 1)
    over_time = [
        np.mean([_by_interval(*each.run.loss_over_time(), edges) for each in runs[p]], axis=0)
        for p in POLICIES
    ]
    name = "mean normalized loss of the active jobs"
    return dataset(
        {"loss": variable(("policy", "time"), over_time, name, "1")},
        {
            "policy": (list(POLICIES), "policy", ""),
            "time": ((edges[:-1] + edges[1:]) / 2, "time", "s"),
        },
        figure="7a",
        title="Normalized loss of the active jobs",
        setting=f"{study.describe()}; the first {SHOWN:g} s; no job active counts as 0",
    )


def _by_interval(
    at: FloatArray, value: FloatArray, active: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return the mean (n_edges - 1,) of a step function between edges; 0 where undefined."""
    total = np.append(0.0, np.cumsum(value * np.diff(at)))
    return np.diff(np.interp(edges, at, total)) / np.diff(edges)


def losses_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 7a."""
    mean = by_name(data["loss"].mean("time"))
    name = data["loss"].attrs["long_name"]
    differs = (
        "The paper's .49 is 73 % below 1.8: its losses are not fractions of their range, as here."
    )
    return [
        Row(name, "SLAQ .49", mean, "", differs),
        Row(f"{name}, below fair by", "73 %", less(mean), "%", differs),
    ]


def times(study: Study) -> xr.Dataset:
    """Figure 7b: mean time to several percentages of the loss reduction."""
    seeds = study.scale.sweep_seeds
    capped = study.settings(seeds=seeds, max_cores=MOST)
    cases = {
        "any number of cores per job": [[w.run for w in runs] for runs in _main(study).values()],
        f"at most {MOST:g} cores": study.simulate(simulate, [(p, capped) for p in POLICIES]),
    }
    seconds = [[[_mean_time(runs, r) for r in REDUCTIONS] for runs in by] for by in cases.values()]
    dims, about = ("case", "policy", "reduction"), "mean time since arrival"
    return dataset(
        {"seconds": variable(dims, seconds, about, "s")},
        {
            "case": (list(cases), "how elastic jobs are", ""),
            "policy": (list(POLICIES), "policy", ""),
            "reduction": (REDUCTIONS, "loss reduction", "% of the whole"),
        },
        figure="7b",
        title="Time to parts of the loss reduction",
        setting=f"{study.describe()}; lists of jobs with at most {MOST:g} cores: {seeds}",
    )


def _mean_time(runs: Sequence[SimulatedRun], percent: float) -> float:
    return float(np.nanmean(np.concatenate([each.time_to(percent / 100) for each in runs])))


def times_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 7b."""
    rows = []
    free = data["case"].values[0]
    differs = "More than the paper's: here each job scales linearly to all 640 cores."
    for case in data["case"].values.tolist():
        for percent, fair, slaq, part in ((90.0, 71, 39, 45), (95.0, 98, 68, 30)):
            seconds = by_name(data["seconds"].sel(case=case, reduction=percent))
            name, why = f"{case}: mean time to {percent:.0f} %", differs if case == free else ""
            paper = f"fair {fair} s, SLAQ {slaq} s"
            rows.append(Row(name, paper, seconds, "s", why))
            below = f"{name}, below fair by"
            rows.append(Row(below, f"{part} %", less(seconds), "%", why))
    return rows


def cores(study: Study) -> xr.Dataset:
    """Figure 8: cores over time by group of normalized loss."""
    runs = _main(study)
    used = np.array([np.sum([each.by_group for each in runs[p]], axis=0) for p in POLICIES])
    total = used.sum(axis=1, keepdims=True)
    part = np.divide(100.0 * used, total, out=np.full(used.shape, np.nan), where=total > 0)
    mean = 100.0 * used.sum(axis=2) / used.sum(axis=(1, 2))[:, None]
    dims, name = ("policy", "group", "time"), "part of the cores"
    middle = (np.arange(BINS) + 0.5) * SHOWN / BINS
    return dataset(
        {
            "part": variable(dims, part, name, "%"),
            "mean": variable(dims[:2], mean, f"{name}, of the whole time", "%"),
        },
        {
            "policy": (list(POLICIES), "policy", ""),
            "group": (list(GROUPS), "jobs by normalized loss", ""),
            "time": (middle, "time", "s"),
        },
        figure="8",
        title="Cores by group of normalized loss",
        setting=f"{study.describe()}; the first {SHOWN:g} s; few jobs are active at a time: one "
        "that is partly in a group counts there in part",
    )


def cores_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 8."""
    rows = []
    for group, paper in ((GROUPS[0], "60 %"), (GROUPS[2], "22 %")):
        values = by_name(data["mean"].sel(group=group))
        measured = f"cores of the jobs with the {group} of normalized loss"
        rows.append(Row(measured, paper, values, "%"))
    return rows


# Figure 9


def contention(study: Study) -> xr.Dataset:
    """Figure 9: times to 90 and 95 % of the loss reduction, by the time between arrivals."""
    between, seeds = study.scale.interarrivals, study.scale.sweep_seeds
    # As loaded at 4 s as the paper's setting of Figure 7 is at 15 s.
    points = [study.settings(gap, seeds=seeds, load=study.load * 4.0 / gap) for gap in between]
    found = study.simulate(simulate, [(p, point) for p in POLICIES for point in points])
    seconds = [
        [[_mean_time(found[i * len(points) + k], r) for k in range(len(points))]
         for i in range(len(POLICIES))]
        for r in (90.0, 95.0)
    ]  # fmt: skip
    dims, name = ("reduction", "policy", "interarrival"), "mean time since arrival"
    return dataset(
        {"seconds": variable(dims, seconds, name, "s")},
        {
            "reduction": ((90, 95), "loss reduction", "% of the whole"),
            "policy": (list(POLICIES), "policy", ""),
            "interarrival": (between, "mean time between arrivals", "s"),
        },
        figure="9",
        title="Contention: jobs that arrive at ever shorter intervals",
        setting=f"{study.describe('the mean of the axis')}, made smaller in proportion, so that "
        f"the load is {study.load:.2g} at 4 s and {0.4 * study.load:.2g} at 10 s",
    )


def contention_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 9."""
    stated = {10.0: {90: "23 %", 95: "20 %"}, 4.0: {90: "44 %", 95: "30 %"}}
    turns = (
        "The gain grows until the cluster is full, at 4 s here; at shorter intervals jobs queue "
        "up, and those before their 90 % outnumber those that could give way."
    )
    few = "Less than the paper's: at this load two jobs are seldom there at a time."
    rows = []
    for gap in data["interarrival"].values.tolist():
        for percent in (90, 95):
            values = less(by_name(data["seconds"].sel(interarrival=gap, reduction=percent)))
            measured = f"one job every {gap:g} s, mean time to {percent} %, below fair by"
            paper = stated.get(gap, {}).get(percent, "not shown")
            differs = turns if gap < 4 else few if gap == 10 else ""
            rows.append(Row(measured, paper, values, "%", differs))
    return rows


# What each of our changes gains

_BARE = {"max_slowdown": math.inf, "floor": 0.0}
#: Changes from the paper's scheduler to the default, one after the other.
LADDER: dict[str, tuple[str, dict[str, Any]]] = {
    "slaq2017": ("slaq2017", {}),
    "no core for everybody": (
        "max-total", {**_BARE, "predictor": "paper", "normalizer": "largest-change"},
    ),
    "losses over their predicted range": ("max-total", {**_BARE, "predictor": "paper"}),
    "our forecasts": ("max-total", _BARE),
    "least work left to the target first": (OURS, _BARE),
    "promise: the default": (OURS, {}),
}  # fmt: skip


#: What is measured after each change, its description and unit.
MEASURES = (
    ("t90", "mean time to 90 % of the loss reduction", "s"),
    ("t95", "mean time to 95 % of the loss reduction", "s"),
    ("end", "mean time to the end", "s"),
    ("worst", "worst time to the end over that under fair", "1"),
)


def gains(study: Study) -> xr.Dataset:
    """Return measures after each change, in the paper's setting and of whole trainings."""
    seeds, whole = study.scale.sweep_seeds, fit_for_jobs(study.curves) or study.job_curves
    cases = {"the paper's setting": study.job_curves, "whole trainings, some noisy": whole}
    values = []
    for curves in cases.values():
        load, jobs = study.load_of(curves), study.scale.ladder_jobs
        settings = study.settings(jobs=jobs, seeds=seeds, load=load)
        steps = [("fair", {}), *LADDER.values()]
        tasks = [(policy, replace(settings, **more)) for policy, more in steps]
        found = study.simulate(simulate, tasks, curves)
        values.append([_measures(runs, found[0]) for runs in found])
    return dataset(
        {
            key: variable(("case", "change"), np.array(values)[:, :, k], about, unit)
            for k, (key, about, unit) in enumerate(MEASURES)
        },
        {
            "case": (list(cases), "trainings", ""),
            "change": (["fair", *LADDER], "change, after those before", ""),
        },
        figure="changes",
        title="What each change gains over slaq2017",
        setting=f"{study.describe()}, {seeds} of them here; whole trainings: all iterations, and "
        "40 % of the curves from mini-batches",
    )


def _measures(runs: Sequence[SimulatedRun], fair: Sequence[SimulatedRun]) -> tuple[float, ...]:
    pairs = list(zip(runs, fair, strict=True))
    end = float(np.mean([each.completion.mean() for each in runs]))
    worst = max(float((each.completion / other.completion).max()) for each, other in pairs)
    return _mean_time(runs, 90.0), _mean_time(runs, 95.0), end, worst


def gains_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of the table of changes."""
    rows = []
    for case in data["case"].values.tolist():
        for key, about, unit in MEASURES:
            values = by_name(data[key].sel(case=case))
            unit = "" if unit == "1" else unit
            rows.append(Row(f"{case}: {about}", "-", values, unit))
    return rows
