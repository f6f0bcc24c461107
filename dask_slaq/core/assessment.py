"""Construction of the `Snapshot` that a policy sees, from the state of all jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from dask_slaq.core.forecast import Forecast, diverging, ending, quality, unreported
from dask_slaq.core.gains import END, TARGET, Gains, Interpolation, iterations_to_target
from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.core.jobs import Jobs
from dask_slaq.core.policies import Snapshot
from dask_slaq.core.promises import still_reporting
from dask_slaq.core.runtime import Progress, Speeds

__all__ = ["build_snapshot"]


#: Minimum threads of a job that has tasks, if jobs run only on the workers of their sets.
LEAST = 0.05

#: Fraction of the predicted range up to which each field counts the work left.
PARTS = {"to_target": TARGET, "to_end": END}


def build_snapshot(
    jobs: Jobs,
    forecast: Forecast,
    speeds: Speeds,
    weight: FloatArray,
    room: FloatArray,
    capacity: int,
    now: float,
    *,
    normalizer: str,
    epoch: float,
    move_pause: float,
    strict: bool,
    needs: Collection[str],
) -> Snapshot:
    """Return a snapshot of the `jobs`, with the fields of `PARTS` that are in `needs`.

    `forecast` has the jobs that report, and all else (n_jobs,) all jobs, in their order. `room`
    holds the threads of the workers that each job may use. See `Engine` for the settings.
    """
    order = jobs.order()
    column, seen, at = jobs.table.column, jobs.runtimes.column, order.reporting
    rows, n = order.rows, len(order.names)
    after, counted = column["after"][rows], column["left"][rows]
    # Jobs with stages whose work left is known by these, whether or not they report.
    staged = np.isfinite(after + counted) & column["reports"][rows] & bool(needs)
    if (new := staged & (speeds.work == 0)).any():  # counted in core-seconds
        speeds = replace(speeds, work=np.where(new, 1.0, speeds.work))
    normalized = np.ones(n)
    attained, held = seen["attained"][rows], seen["share"][rows]
    done = np.divide(attained, speeds.work, out=np.zeros(n), where=speeds.work > 0)
    most = jobs.ahead(rows[at])
    forecast = ending(unreported(forecast, done[at]), most)
    forecast = diverging(forecast, jobs.diverge(rows[at]))
    normalized[at] = quality.normalized(forecast, normalizer)
    gain = Gains(
        Interpolation(forecast.horizons, forecast.reduction),
        quality.scale(forecast, normalizer),
        at,
        speeds,
        held,
        epoch,
        move_pause,
    )
    cap = np.minimum(np.minimum(room, column["most"][rows]), speeds.useful)
    cap[column["paused"][rows]] = 0.0
    floor = column["floor"][rows]
    if strict:
        floor = np.where(column["demand"][rows] > 0, np.maximum(floor, LEAST), floor)
    work = speeds.core_seconds(held)
    target = column["target"][rows][at]
    left = {}
    for name in needs:
        ahead, total = np.full((2, n), np.inf)
        ahead[at] = iterations_to_target(forecast, target, done[at], PARTS[name], most)
        total = np.multiply(work, ahead, out=total, where=work > 0)
        if name == "to_end":
            total = total + np.nan_to_num(after)
        left[name] = np.where(staged, counted, total)
    return Snapshot(
        jobs=order.names,
        capacity=capacity,
        weight=weight,
        floor=np.minimum(floor, cap),
        cap=cap,
        known=column["reports"][rows] & (speeds.work > 0),
        normalized=normalized,
        gain=gain,
        speed=Progress(speeds, work),
        reporting=still_reporting(jobs, capacity, epoch) | staged,
        age=jobs.age(rows, now),
        attained=attained,
        efficient=speeds.efficient,
        **left,
    )
