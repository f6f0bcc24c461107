"""Work that running jobs have left, whatever is known of their length."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast import Forecast, ending, in_logs, unreported
from dask_slaq.core.gains import END, iterations_to_target
from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.core.jobs import Jobs


def work_left(jobs: Jobs, forecast: Forecast, tasks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the core-seconds (n_jobs,) that jobs have left, and the threads that they can use.

    `forecast` has the jobs that report, and `tasks` (n_jobs,) are those that they had to run at
    once of late. A job of unknown length has the iterations after which its loss hardly falls any
    more; without a forecast it goes on for as long as it has. A job that never had a task that
    ended has nan.
    """
    order = jobs.order()
    rows, at = order.rows, order.reporting
    column, seen = jobs.table.column, jobs.runtimes.column
    speeds, attained = jobs.runtimes.speeds(rows), seen["attained"][rows]
    left = jobs.total(rows, speeds.work) - attained
    done = np.divide(attained, speeds.work, out=np.zeros(len(rows)), where=speeds.work > 0)
    most = jobs.ahead(rows[at])
    curve, target = in_logs(forecast, column["target"][rows][at])
    curve = ending(unreported(curve, done[at]), most)
    ahead = iterations_to_target(curve, target, done[at], END, most)
    by_curve = np.full(len(rows), np.inf)
    known = speeds.work[at] > 0
    by_curve[at[known]] = (ahead * speeds.work[at])[known]
    submitted = column["submitted"][rows]
    so_far = np.where(attained > 0, attained, np.nan)
    unknown = np.where(np.isnan(submitted), so_far, submitted)
    for other in (by_curve, unknown):
        left = np.where(np.isfinite(left), left, other)
    # Between two iterations there are no tasks for a moment.
    tasks = np.maximum(tasks, column["demand"][rows])
    trains = column["reports"][rows] & (seen["reports"][rows] > 0)
    tasks = np.where(trains, np.maximum(tasks, speeds.width), tasks)
    width = np.minimum(tasks, column["most"][rows])
    width[speeds.scaled] = np.minimum(width, speeds.efficient)[speeds.scaled]
    return left, np.where(column["paused"][rows], 0.0, width)
