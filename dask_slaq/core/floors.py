"""Floors: the core-seconds that every job gets, whatever its forecast says.

A job is entitled to its fair share of the threads while it has tasks. Its tokens, core-seconds
that are served before any policy's index, make up for what it lacks of a part of the entitlement
(the credit floor) and for its own floor in threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.jobs import Jobs

__all__ = ["credit_entitlement", "refill_tokens", "still_reporting"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Epochs' worth of its fair share after which a job without a report counts as one that never
#: reports. Otherwise it would come before all others for as long as it runs.
EXPLORED = 2.0
#: Maximum debt of a job without a loss, in epochs' worth of its share.
LENT = 1.0


def credit_entitlement(
    jobs: Jobs, weight: FloatArray, capacity: float, elapsed: float
) -> FloatArray:
    """Credit jobs with their fair share of `capacity` for `elapsed` seconds.

    Only jobs that have tasks and are not paused get credit, and for at most as many threads as
    they have tasks.

    Parameters
    ----------
    jobs : Jobs
    weight : numpy.ndarray
        Weights (n_jobs,).
    capacity : float
        Threads of all workers.
    elapsed : float
        Seconds.

    Returns
    -------
    numpy.ndarray
        The threads (n_jobs,) of the fair shares.
    """
    rows, column = jobs.order().rows, jobs.table.column
    demand = np.where(column["paused"][rows], 0.0, column["demand"][rows])
    weight = np.where(demand > 0, weight, 0.0)
    total = weight.sum()
    fair: FloatArray = np.minimum(capacity * weight / max(total, 1e-300), demand)
    column["entitled"][rows] += fair * elapsed
    return fair


def still_reporting(jobs: Jobs, capacity: float, epoch: float) -> BoolArray:
    """Return which jobs (n_jobs,) report a loss or still may.

    A job that used `EXPLORED` epochs of its fair share without a report does not count.

    Parameters
    ----------
    jobs : Jobs
    capacity : float
        Threads of all workers.
    epoch : float
        Seconds.
    """
    rows, column, seen = jobs.order().rows, jobs.table.column, jobs.runtimes.column
    weight = column["weight"][rows]
    explored = EXPLORED * epoch * capacity * weight / weight.sum()
    silent = (seen["reports"][rows] == 0) & (seen["attained"][rows] > explored)
    reporting: BoolArray = column["reports"][rows] & ~silent
    return reporting


def refill_tokens(
    jobs: Jobs,
    share: FloatArray,
    reporting: BoolArray,
    credit: float,
    epoch: float,
    elapsed: float,
    fair: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Refill the tokens (n_jobs,) of all jobs, in core-seconds.

    A job gets the larger of what it lacks of its credit floor, and what is left of its floor:
    tokens for `elapsed` seconds are added to what was left before, up to `epoch` seconds' worth.

    Parameters
    ----------
    jobs : Jobs
    share : numpy.ndarray
        Threads (n_jobs,). Jobs that are not `reporting` come last by index, so their share is
        their floor.
    reporting : numpy.ndarray
        See `still_reporting`.
    credit : float
        Part of its entitlement, in [0, 1], that every job gets over time.
    epoch, elapsed : float
        Seconds.
    fair : numpy.ndarray
        Threads (n_jobs,) to which the jobs are entitled now.

    Returns
    -------
    tokens, rate : numpy.ndarray
        Tokens (n_jobs,), and the threads (n_jobs,) at which they accrue.
    """
    rows, column = jobs.order().rows, jobs.table.column
    attained = jobs.runtimes.column["attained"][rows]
    least = column["floor"][rows]
    floor = np.where(reporting, least, np.maximum(least, credit * share))
    floor[column["paused"][rows]] = 0.0
    # A job that used more than its share owes it: the jobs that lent it fell behind.
    debt = LENT * np.maximum(floor - least, 0.0) * epoch
    used = attained - column["attained_before"][rows]
    left = np.maximum(column["bucket"][rows] - used, -debt)
    bucket = np.minimum(left + floor * elapsed, floor * epoch)
    column["bucket"][rows], column["attained_before"][rows] = bucket, attained
    behind = credit * column["entitled"][rows] - attained
    behind[column["paused"][rows]] = 0.0
    tokens: FloatArray = np.maximum(np.maximum(behind, bucket), 0.0)
    rate: FloatArray = np.where(behind > bucket, credit * fair, floor)
    return tokens, np.where(column["paused"][rows], 0.0, rate)
