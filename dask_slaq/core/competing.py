"""Models of one search that are jobs: they share what the search gets, the best ones first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dask_slaq.core.forecast import FitStatus, Forecast, at_horizon
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.policies import Allocation, Snapshot
from dask_slaq.core.search_settings import FEWEST_REPORTS


def in_order(
    forecast: Forecast,
    ahead: FloatArray,
    attained: FloatArray,
    work: FloatArray,
    begun: BoolArray,
    groups: Sequence[IntArray],
    patience: float = 4.0,
) -> list[IntArray]:
    """Return the jobs of each search in `groups`, by position, in the order of their claims.

    Those with few reports come first, so that all are soon known, then those with the lowest
    predicted final loss, and at last those that diverge, or have not `begun`. One that does not
    report in `patience` times what others need for a forecast is not first.
    """
    final = forecast.level - at_horizon(ahead, forecast.reduction, forecast.horizons)
    diverges = forecast.status == FitStatus.DIVERGING
    final = np.where(diverges | np.isnan(final), math.inf, final)
    few = (forecast.n_reports < FEWEST_REPORTS) & ~(diverges & (forecast.n_reports == 0))
    found = []
    for at in groups:
        # It would come first for as long as it runs.
        most = patience * FEWEST_REPORTS * work[at].max()
        young = few[at] & ((attained[at] <= most) | (most == 0))
        rank = np.where(young, -math.inf, final[at])
        found.append(at[np.lexsort((at, rank, ~begun[at]))])
    return found


def yield_to_first(
    allocation: Allocation, snapshot: Snapshot, groups: Sequence[IntArray]
) -> Allocation:
    """Return an allocation in which the first of each group have what they use of its share."""
    share, index = allocation.share.copy(), allocation.index.copy()
    for at in groups:
        floor, cap = np.minimum(snapshot.floor[at], share[at]), snapshot.cap[at]
        left = share[at].sum() - floor.sum()
        mine = floor.copy()
        for most in (np.minimum(snapshot.efficient[at], cap), cap):  # well used, then at all
            room = np.maximum(most - mine, 0.0)
            before = np.concatenate(([0.0], np.cumsum(room)[:-1]))
            more = np.clip(left - before, 0.0, room)
            mine, left = mine + more, max(left - more.sum(), 0.0)
        share[at] = mine
        ranked = np.sort(index[at])[::-1]
        for i in range(1, len(at)):  # equal ones would be served by turns
            most = ranked[i - 1]
            most = most * 0.999 if most > 1e-12 else most - 1e-12
            ranked[i] = min(ranked[i], most)
        index[at] = ranked
    return Allocation(share, index)


def spread(values: FloatArray, share: FloatArray, groups: Sequence[IntArray]) -> FloatArray:
    """Return values (n_jobs,) whose sum over each group is spread over it like its shares."""
    values = values.copy()
    for at in groups:
        total = share[at].sum()
        part = share[at] / total if total > 0 else np.full(len(at), 1 / len(at))
        values[at] = values[at].sum() * part
    return values
