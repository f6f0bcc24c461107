"""Construction of the `Snapshot` that a policy sees, from the state of all jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast import Forecast, corrections, diverging, ending, in_logs, unreported
from dask_slaq.core.gains import END, TARGET, Gains, Interpolation, iterations_to_target
from dask_slaq.core.job_arrays import BoolArray, FloatArray
from dask_slaq.core.jobs import Jobs
from dask_slaq.core.policies import Snapshot
from dask_slaq.core.promises import EXPLORED, still_new
from dask_slaq.core.runtime import Progress, Speeds

#: Minimum threads of a job that has tasks, if jobs run only on the workers of their sets.
LEAST = 0.05

#: Exchange rate of the measure: core-seconds of a training that weigh as one of any other work.
#: docs/evaluation.md says how it was chosen.
SILENT = 3.0
#: Least work left, in core-seconds.
INSTANT = 1e-6

#: Fraction of the predicted range up to which each field counts the work left.
PARTS = {"to_target": TARGET, "to_end": END}


class _Lines(NamedTuple):
    """Jobs without a loss so far, as straight lines: their loss is the share of work left."""

    new: BoolArray  # (n_jobs,) jobs that are to be explored
    counted: BoolArray  # (n_jobs,) jobs whose work left is counted, by their tasks or iterations
    left: FloatArray  # (n_jobs,) core-seconds of it; 0 for others
    rate: FloatArray  # (n_jobs,) core-seconds of a training that weigh as one of theirs
    per_second: FloatArray  # (n_jobs,) fall of their loss per core-second; 0 for others


def _straight_lines(
    jobs: Jobs, weight: FloatArray, capacity: int, epoch: float, age: FloatArray, work: FloatArray
) -> _Lines:
    """Return what is known of the jobs that have not reported a loss.

    Those that announced iterations are trainings before their first report. `work` (n_jobs,) is the
    core-seconds of one, 0 if unknown: then it takes as long as the first one, which may include
    start-up.
    """
    rows, column, seen = jobs.order().rows, jobs.table.column, jobs.runtimes.column
    attained, submitted = seen["attained"][rows], column["submitted"][rows]
    silent, staged = seen["reports"][rows] == 0, np.isfinite(column["after"][rows])
    new = silent & still_new(jobs, capacity, epoch)
    # Nothing is to be learned any more of a client of whose tasks none has ended for long.
    new &= column["reports"][rows] | ~np.isnan(submitted) | (age < EXPLORED * epoch)
    counted = silent & (staged | ~new) & (attained + age > 0)
    fair = capacity * weight / weight.sum()
    # One that has nothing to count goes on for as long as it has: it ran, or could have run.
    so_far = np.maximum(attained, fair * age)
    left = np.where(submitted > 0, submitted, so_far)
    more = np.isnan(column["left"][rows])
    left = left + np.where(more, np.maximum(attained - fair * age, 0.0), 0.0)
    training = jobs.before_report(rows) & ~staged
    one = np.where(work > 0, work, attained + left)
    left = np.where(training, left + (np.where(training, jobs.ahead(rows), 1.0) - 1.0) * one, left)
    rate = np.where(training, 1.0, SILENT)
    left = np.where(counted, np.maximum(left, INSTANT), 0.0)
    per_second = np.divide(1.0, rate * (attained + left), out=np.zeros(len(rows)), where=counted)
    return _Lines(new, counted, left, rate, per_second)


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
    """Return a snapshot of the `jobs`, with the fields of `PARTS` in `needs`. See `Engine`."""
    order = jobs.order()
    column, seen, at = jobs.table.column, jobs.runtimes.column, order.reporting
    rows, n = order.rows, len(order.names)
    attained, held, age = seen["attained"][rows], seen["share"][rows], jobs.age(rows, now)
    lines = _straight_lines(jobs, weight, capacity, epoch, age, speeds.work)
    # Jobs with stages whose work left is known by these, whether or not they report.
    after, counted = column["after"][rows], column["left"][rows]
    staged = np.isfinite(after + counted) & column["reports"][rows]
    counted = np.where(lines.counted, lines.left, counted)
    staged |= lines.counted
    if (new := staged & (speeds.work == 0)).any():  # counted in core-seconds
        speeds = replace(speeds, work=np.where(new, 1.0, speeds.work))
    normalized = np.ones(n)
    done = np.divide(attained, speeds.work, out=np.zeros(n), where=speeds.work > 0)
    most = jobs.ahead(rows[at])
    forecast, target = in_logs(forecast, column["target"][rows][at])
    forecast = ending(unreported(forecast, done[at]), most)
    forecast = diverging(forecast, jobs.diverge(rows[at]))
    normalized[at] = corrections.normalized(forecast, normalizer)
    normalized = np.where(lines.counted, lines.left * lines.per_second, normalized)
    gain = Gains(
        Interpolation(forecast.horizons, forecast.reduction),
        corrections.scale(forecast, normalizer),
        at,
        speeds,
        held,
        np.maximum(lines.left, epoch),  # the last tasks gain no less per core-second than others
        lines.per_second,
        epoch,
        move_pause,
    )
    cap = np.minimum(np.minimum(room, column["most"][rows]), speeds.useful)
    cap[column["paused"][rows]] = 0.0
    floor = column["floor"][rows]
    if strict:
        floor = np.where(column["demand"][rows] > 0, np.maximum(floor, LEAST), floor)
    work = speeds.core_seconds(held)
    left = {}
    for name in needs:
        ahead, total = np.full((2, n), np.inf)
        ahead[at] = iterations_to_target(forecast, target, done[at], PARTS[name], most)
        total = np.multiply(work, ahead, out=total, where=work > 0)
        if name == "to_end":
            total = total + np.nan_to_num(after)
        else:
            # A training at its target, or whose target is not in sight, goes on to its end.
            rest = jobs.total(rows, work) - attained
            rest = np.where(np.isfinite(rest), rest, attained)
            reached = (total == 0) | ~np.isfinite(total)
            # Among trainings alone its gain tells more.
            reached &= (rest > 0) & (work > 0) & (lines.counted & (lines.rate > 1)).any()
            total = np.where(reached, rest, total)
        rate = lines.rate if name == "to_target" else 1.0
        left[name] = np.where(staged, rate * counted, total)
    return Snapshot(
        jobs=order.names,
        capacity=capacity,
        weight=weight,
        floor=np.minimum(floor, cap),
        cap=cap,
        known=(column["reports"][rows] | lines.counted) & (speeds.work > 0),
        normalized=normalized,
        gain=gain,
        speed=Progress(speeds, work),
        reporting=lines.new | staged | (seen["reports"][rows] > 0),
        age=age,
        attained=attained,
        efficient=speeds.efficient,
        **left,
    )
