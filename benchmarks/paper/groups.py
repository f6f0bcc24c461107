"""Figure 8: distribution of the cores by the jobs' normalized loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import NOT_STATED, Row, by_name, dataset, variable
from benchmarks.paper.setting import BINS, FREE, POLICIES, Shares, describe, main_runs
from benchmarks.paper.study import Study
from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.simulation.metrics import Run, normalized_loss

__all__ = ["shares", "shares_rows"]


#: Groups of active jobs in order of decreasing loss, and the edges between them.
GROUPS = ("highest 25 %", "next 25 %", "lowest 50 %")
ENDS = np.array([0.0, 0.25, 0.5, 1.0])
#: Minimum number of active jobs for groups.
FEWEST = 4


def shares(study: Study) -> xr.Dataset:
    """Figure 8: share of the cores that jobs of high, medium and low loss have."""
    runs = {policy: main_runs(study)[FREE, policy] for policy in POLICIES}
    last = min(run.jobs[-1].arrival for run, _ in runs[POLICIES[0]])
    edges = np.linspace(0.0, last, BINS // 2 + 1)
    found = {p: [_group_shares(run, seen) for run, seen in runs[p]] for p in POLICIES}
    over_time = [_mean_over_lists(found[p], edges) for p in POLICIES]
    mean = [_mean_over_lists(found[p], np.array([0.0, last]))[:, 0] for p in POLICIES]
    name = "share of the cores in use"
    return dataset(
        {
            "share": variable(("policy", "group", "time"), over_time, name, "%"),
            "mean_share": variable(("policy", "group"), mean, f"{name}, mean over time", "%"),
        },
        {
            "policy": (list(POLICIES), "policy", ""),
            "group": (list(GROUPS), "jobs by normalized loss", ""),
            "time": ((edges[:-1] + edges[1:]) / 2, "time", "s"),
        },
        figure="8",
        title="Who has the cores (gaps: too few active jobs)",
        shows="share of the cores that the 25 % of the jobs with high, the 25 % with medium and "
        "the 50 % with low loss have, over time",
        setting=f"{describe(study)}; moments with {FEWEST} active jobs or more",
    )


def _group_shares(run: Run, seen: Shares) -> tuple[FloatArray, FloatArray]:
    """Return the times (n,) of changes, and each group's percentage (3, n) from then on."""
    loss = [np.append(1.0, normalized_loss(job)) for job in run.jobs]
    share = np.full((len(GROUPS), len(seen.at)), np.nan)
    for k, (at, jobs, threads) in enumerate(zip(seen.at, seen.jobs, seen.threads, strict=True)):
        if len(jobs) < FEWEST or not threads.sum() > 0:
            continue
        now = [loss[i][np.searchsorted(run.outcome.times[i], at, side="right")] for i in jobs]
        share[:, k] = _members(len(jobs)) @ threads[np.argsort(-np.array(now), kind="stable")]
        share[:, k] *= 100.0 / threads.sum()
    return np.array(seen.at), share


def _members(count: int) -> FloatArray:
    """Return the fraction (3, count) of each job that belongs to each group, highest loss first.

    With 6 jobs, for example, the first group has one and a half jobs.
    """
    edge = np.arange(count + 1) / count
    inside = np.minimum(edge[1:], ENDS[1:, None]) - np.maximum(edge[:-1], ENDS[:-1, None])
    return count * np.maximum(inside, 0.0)


def _mean_over_lists(
    found: Sequence[tuple[FloatArray, FloatArray]], edges: FloatArray
) -> FloatArray:
    """Return the mean over time (3, n_edges - 1) of all lists together; nan without data."""
    total = np.zeros((len(GROUPS), len(edges) - 1))
    known = np.zeros(len(edges) - 1)
    for at, share in found:
        there = np.isfinite(share[0])
        lasts = np.where(there, np.diff(at, append=at[-1]), 0.0)
        known += np.diff(np.interp(edges, at, np.cumsum(lasts) - lasts))
        for row, values in zip(total, share, strict=True):
            amount = lasts * np.where(there, values, 0.0)
            row += np.diff(np.interp(edges, at, np.cumsum(amount) - amount))
    return np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)


def shares_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 8."""
    return [
        Row("8", f"share of the cores, jobs of the {group} of the normalized loss", NOT_STATED,
            by_name(data["mean_share"].sel(group=group)), "%", data.attrs["setting"])
        for group in data["group"].values.tolist()
    ]  # fmt: skip
