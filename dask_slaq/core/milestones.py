"""Work that jobs have left to their two milestones: their target, and their end.

Here iterations become core-seconds, which policies compare. What is assumed of a training:

============  ============================  ==========================  ==========================
reports       core-seconds per iteration    iterations to its target    iterations to its end
============  ============================  ==========================  ==========================
none          tasks of the first so far,    `FIRST_PART` of those       all that are announced
              ended and submitted; like     announced, at most
              runs if they took longer      `USUAL_ITERATIONS`
one to four   the most of: the running      the same less the reports   those announced; else
              mean, what was charged since  up to the third, at least   until the loss hardly falls;
              the last report, `FEW_MEAN`   one; then the forecast      else as many as so far
              of the mean of all
more          the more of the first two     the forecast                the same
============  ============================  ==========================  ==========================

So an iteration that takes longer than expected makes a job seem farther from its milestones, never
nearer, and estimates jump only at reports. Work without a loss has no target: it goes to its end,
counted by its tasks. Running means are in `runtime/observed.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast import (
    USUAL_ITERATIONS,
    FitStatus,
    Forecast,
    concave_hull,
    ending,
    first_at,
    in_logs,
    predicted_range,
    unreported,
)
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.jobs.jobs import Epoch, JobTable
from dask_slaq.core.jobs.promises import EXPLORED_EPOCHS, still_new
from dask_slaq.core.policies import EXCHANGE_RATE

#: Fractions of its predicted range: the fall that counts as the target of a job without one, and
#: the fall after which its loss hardly changes.
TARGET_PART, END_PART = 0.9, 0.99
#: Least work left, in core-seconds.
INSTANT_CORE_SECONDS = 1e-6
#: Fraction of the announced iterations, if these are few, after which a loss is at its target.
FIRST_PART = 0.35


@dataclass(frozen=True)
class JobCurves:
    """Forecasts of the jobs that report, corrected by what is known besides their reports."""

    forecast: Forecast
    target: FloatArray  # (n_reporting,) raw losses, or their logs where forecasts are; nan for none
    done: FloatArray  # (n_reporting,) iterations so far, by core-seconds
    most: FloatArray  # (n_reporting,) iterations to come, inf if unknown
    hinted: BoolArray  # (n_reporting,) whether the forecast falls to the target by that alone

    @classmethod
    def of(
        cls, jobs: JobTable, forecast: Forecast, work: FloatArray, *, raw: bool = False
    ) -> JobCurves:
        """Return the curves of `jobs`, with core-seconds `work` (n_jobs,) per iteration.

        None is in logs if they stay `raw`.
        """
        order = jobs.order()
        rows = order.rows[order.reporting]
        attained, work = jobs.runtimes.column["attained"][rows], work[order.reporting]
        done = np.divide(attained, work, out=np.zeros(len(rows)), where=work > 0)
        most = jobs.ahead(rows)
        target = jobs.table.column["target"][rows]
        if not raw:
            forecast, target = in_logs(forecast, target)
        forecast = ending(unreported(forecast, done), most)
        hinted, forecast = _by_hint(forecast, target, most)
        return cls(forecast, target, done, most, hinted)

    def iterations(self, part: float = TARGET_PART) -> FloatArray:
        """Return the iterations (n_reporting,) to the target, by default `part` of the range."""
        return iterations_to_target(self.forecast, self.target, self.done, part, self.most)


def _by_hint(
    forecast: Forecast, targets: FloatArray, most: FloatArray
) -> tuple[BoolArray, Forecast]:
    """Return which targets a forecast does not reach but may be true, and forecasts that do.

    A user who names a target knows what the losses do not show, as on a plateau: the loss gets
    there by the announced end, or in as many iterations as so far, but ten at least. Losses refute
    that once they have fallen by more than is left, and are predicted to stop. No forecast becomes
    lower.
    """
    left = forecast.level - targets
    fallen = np.maximum(forecast.start - forecast.level, 0.0)
    usable = (forecast.status == FitStatus.OK) | (forecast.status == FitStatus.TOO_FEW_REPORTS)
    hinted = usable & (left > forecast.reduction[:, -1]) & (left > fallen)
    if not hinted.any():
        return hinted, forecast
    span = np.where(np.isfinite(most), most, np.maximum(forecast.n_reports, 10))[hinted]
    pace = np.minimum(forecast.horizons / np.maximum(span, 1.0)[:, None], 1.0)
    fall = np.maximum(forecast.reduction[hinted], left[hinted, None] * pace)
    reduction, remaining = forecast.reduction.copy(), forecast.remaining.copy()
    reduction[hinted] = concave_hull(forecast.horizons, fall)
    remaining[hinted] = np.maximum(remaining[hinted], left[hinted])
    return hinted, replace(forecast, reduction=reduction, remaining=remaining)


def iterations_to_target(
    forecast: Forecast,
    targets: FloatArray,
    done: FloatArray,
    part: float = TARGET_PART,
    most: FloatArray | float = np.inf,
) -> FloatArray:
    """Predict the iterations (n_jobs,) that each job still needs to reach its target quality.

    `targets` (n_jobs,) are raw losses, nan for `part` of the predicted range; `done` are iterations
    so far, estimated from core-seconds instead of reports, and `most` those to come, inf if
    unknown. The result is 0 if the target is reached, inf if the forecast does not reach it. A job
    with too few reports and no target has those of `first_iterations`; if `most` is unknown, `done`
    plus those in which a typical curve falls by half, so that one that never reports falls back.
    """
    to_part = forecast.remaining - (1.0 - part) * predicted_range(forecast)
    fall = np.where(np.isnan(targets), to_part, forecast.level - targets)
    ahead = first_at(fall, forecast.reduction, forecast.horizons)
    ahead = np.minimum(ahead, most)  # between two horizons
    in_sight = (fall <= forecast.reduction[:, -1]) & np.isfinite(fall)
    # Less than this part of the remaining fall is rounding.
    left = np.where(in_sight, np.where(fall > 1e-12 * forecast.remaining, ahead, 0.0), np.inf)
    few = (forecast.status == FitStatus.TOO_FEW_REPORTS) & np.isnan(targets)
    usual = np.where(
        np.isinf(most), USUAL_ITERATIONS + done, first_iterations(forecast.n_reports, most)
    )
    return np.where(few, usual, left)


def first_iterations(reports: IntArray | int, most: FloatArray | float) -> FloatArray:
    """Return the iterations (n,) to the target of jobs with few `reports`, and `most` to come."""
    return np.maximum(np.minimum(FIRST_PART * (reports + most), USUAL_ITERATIONS) - reports, 1.0)


class Lines(NamedTuple):
    """Jobs without a loss so far, as straight lines: their loss is the share of work left."""

    new: BoolArray  # (n_jobs,) jobs that are to be explored
    counted: BoolArray  # (n_jobs,) jobs whose work left is counted, by their tasks or iterations
    left: FloatArray  # (n_jobs,) core-seconds of it; 0 for others
    training: BoolArray  # (n_jobs,) those that are counted by announced iterations
    ahead: FloatArray  # (n_jobs,) the number of these; 1 for others
    first: FloatArray  # (n_jobs,) core-seconds of the first one
    begun: FloatArray  # (n_jobs,) core-seconds that are left of the first one

    def per_second(self, attained: FloatArray) -> FloatArray:
        """Return the fall (n_jobs,) per core-second, given those attained; 0 for jobs with a loss.

        A core-second of a training counts more than one of other work.
        """
        rate = np.where(self.training, 1.0, EXCHANGE_RATE)
        work: FloatArray = rate * (attained + self.left)
        return np.divide(1.0, work, out=np.zeros(len(rate)), where=self.counted)


def straight_lines(
    jobs: JobTable,
    epoch: Epoch,
    weight: FloatArray,
    age: FloatArray,
    work: FloatArray,
) -> Lines:
    """Return what is known of the jobs that have not reported a loss.

    Those that announced iterations are trainings before their first report. `work` (n_jobs,) is the
    core-seconds of one, 0 if unknown.
    """
    rows, column, seen = jobs.order().rows, jobs.table.column, jobs.runtimes.column
    attained, submitted = seen["attained"][rows], column["submitted"][rows]
    silent = seen["reports"][rows] == 0
    new = silent & still_new(jobs, epoch)
    # Nothing is to be learned any more of a client of whose tasks none has ended for long.
    new &= column["reports"][rows] | ~np.isnan(submitted) | (age < EXPLORED_EPOCHS * epoch.seconds)
    counted = silent & ~new & (attained + age > 0)
    fair = epoch.capacity * weight / weight.sum()
    # One that has nothing to count goes on for as long as it has: it ran, or could have run.
    so_far = np.maximum(attained, fair * age)
    begun = np.where(submitted > 0, submitted, so_far)
    training = jobs.before_report(rows) & counted
    more = np.isnan(column["left"][rows]) & ~training
    left = begun + np.where(more, np.maximum(attained - fair * age, 0.0), 0.0)
    ahead, first = np.where(training, jobs.ahead(rows), 1.0), jobs.first_iteration(rows, work)
    left = np.where(counted, np.maximum(left + (ahead - 1.0) * first, INSTANT_CORE_SECONDS), 0.0)
    return Lines(new, counted, left, training, ahead, first, begun)


def milestones(
    jobs: JobTable, curves: JobCurves, work: FloatArray, lines: Lines
) -> tuple[FloatArray, FloatArray]:
    """Return the core-seconds (n_jobs,) to the target and to the end of each job.

    Those to the target are 0 where it is reached, inf where none is in sight, and of work without a
    loss those to its end times the exchange rate. `work` (n_jobs,) is core-seconds per iteration.
    """
    order = jobs.order()
    rows, at, n = order.rows, order.reporting, len(order.names)
    seen = jobs.runtimes.column
    attained, charged = seen["attained"][rows], seen["charged"][rows]
    flat = curves.iterations(END_PART)
    flat = np.where((flat == 0) | np.isfinite(curves.most), curves.most, flat)
    to_target, to_end = np.full((2, n), np.inf)
    one = np.where(work > 0, work, np.inf)[at]  # unknown before the first iteration
    for left, ahead in ((to_target, curves.iterations()), (to_end, flat)):
        # Half of what was charged counts as done: the rest of the iteration is not known, and one
        # that takes longer than expected must not seem to be near its end.
        whole = one * np.maximum(ahead, 1.0) - 0.5 * np.minimum(charged, work)[at]
        left[at] = np.where(ahead > 0, whole, 0.0)
    # One of which nothing is known goes on for as long as it has.
    to_end = np.where(
        np.isfinite(to_end) & (to_end > 0), to_end, np.maximum(attained, INSTANT_CORE_SECONDS)
    )
    # A training before its first report has the rest of its first iteration, and further ones.
    first = lines.begun + (first_iterations(0, lines.ahead) - 1.0) * lines.first
    to_target = np.where(lines.training, first, to_target)
    without = lines.counted & ~lines.training
    to_target = np.where(without, EXCHANGE_RATE * lines.left, to_target)
    to_end = np.where(lines.counted, lines.left, to_end)
    return to_target, to_end
