"""Promises: the core-seconds that every job gets, whatever its forecast says.

A job of known length is to end within `max_slowdown` times its fair time (`fair_clock`). One of
unknown length is to get a part of its fair share. Its tokens, core-seconds that are served before
any policy's index, make up for what it lacks of that, or of its own floor in threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray
from dask_slaq.core.jobs.ends import ANNOUNCED, COUNTED, GUESSED, Ends
from dask_slaq.core.jobs.jobs import Epoch, JobTable

#: Epochs' worth of its fair share up to which a job without a report comes first. Without a bound
#: it would for as long as it runs.
EXPLORED_EPOCHS = 2.0


def credit_entitlement(jobs: JobTable, epoch: Epoch, weight: FloatArray) -> FloatArray:
    """Credit jobs with their fair share since the last decision. Returns its threads."""
    rows, column = jobs.order().rows, jobs.table.column
    demand = np.where(column["paused"][rows], 0.0, column["demand"][rows])
    weight = np.where(demand > 0, weight, 0.0)
    total = weight.sum()
    fair: FloatArray = np.minimum(epoch.capacity * weight / max(total, 1e-300), demand)
    column["entitled"][rows] += fair * epoch.elapsed
    return fair


def still_new(jobs: JobTable, epoch: Epoch) -> BoolArray:
    """Return which jobs (n_jobs,) used at most `EXPLORED_EPOCHS` of their fair share."""
    rows, column, seen = jobs.order().rows, jobs.table.column, jobs.runtimes.column
    weight = column["weight"][rows]
    explored = EXPLORED_EPOCHS * epoch.seconds * epoch.capacity * weight / weight.sum()
    new: BoolArray = seen["attained"][rows] <= explored
    return new


def advance_fair_clock(
    jobs: JobTable,
    epoch: Epoch,
    weight: FloatArray,
    room: FloatArray,
    total: FloatArray,
    max_slowdown: float,
    within: Callable[[FloatArray, FloatArray], FloatArray] = lambda weight, cap: cap,
) -> Ends:
    """Advance the fair clock to this `epoch`, and return when the jobs end."""
    rows, column = jobs.order().rows, jobs.table.column
    now, elapsed, seconds, capacity = epoch
    # At the very moment at which an iteration ends, a job has few tasks or none.
    lately = column["fair_width"][rows] * math.exp(-elapsed / seconds)
    column["fair_width"][rows] = width = np.maximum(column["demand"][rows], lately)
    cap = np.minimum(np.minimum(room, column["most"][rows]), width)
    cap[column["paused"][rows]] = 0.0
    age = jobs.age(rows, now)
    threads = jobs.fair_clock.advance(
        rows, weight, cap, total, capacity, elapsed, age, seconds, within
    )
    times = jobs.max_slowdown(rows, max_slowdown)
    attained = jobs.runtimes.column["attained"][rows]
    # It goes on with as many as it has had, or without any so far, with as many as it may use.
    usual, most = column["fair_cap"][rows], np.minimum(room, column["most"][rows])
    usual = np.where(column["paused"][rows], 0.0, np.where(usual > 0, usual, most))
    share = within(weight, np.minimum(capacity * weight / weight.sum(), usual))
    fair = jobs.fair_clock.until_end(rows, total, np.maximum(threads, share), age)
    promised = times * (age + fair) - age
    # The first iteration includes start-up: it is the second report that tells the cost of one.
    announced = np.where(jobs.runtimes.column["reports"][rows] > 1, ANNOUNCED, GUESSED)
    reason = np.where(np.isfinite(column["max_iter"][rows]), announced, COUNTED)
    got = (attained - column["attained_before"][rows]) / max(elapsed, 1e-9)
    rate = np.where(np.isnan(column["end_rate"][rows]), share, column["end_rate"][rows])
    # A running mean over five epochs. Less than a tenth of its fair share does not count: it may
    # have had nothing to do.
    rate += (1 - math.exp(-elapsed / (5.0 * seconds))) * (got - rate)
    column["end_rate"][rows] = rate
    rates = np.stack([share, np.minimum(capacity, usual), np.maximum(rate, 0.1 * share)])
    return jobs.ends.forecast(
        rows, attained, total, rates, reason, fair, promised, seconds, now, capacity
    )


def refill_tokens(
    jobs: JobTable,
    epoch: Epoch,
    max_slowdown: float,
    credit: float,
    fair: FloatArray,
    age: FloatArray,
    total: FloatArray,
    pooled: Callable[[FloatArray], FloatArray] = lambda owed: owed,
) -> tuple[FloatArray, FloatArray]:
    """Refill the tokens of all jobs. Returns core-seconds and the threads at which they accrue.

    A job gets what it lacks of its promise now, and the rest by and by; or what is left of its
    floor if that is more. What jobs of one search are due is `pooled` by them.
    """
    rows, column, clock = jobs.order().rows, jobs.table.column, jobs.fair_clock
    elapsed, seconds = epoch.elapsed, epoch.seconds
    attained, floor = jobs.runtimes.column["attained"][rows], column["floor"][rows]
    paused = column["paused"][rows]
    floor = np.where(paused, 0.0, floor)
    used = attained - column["attained_before"][rows]
    left = np.maximum(column["bucket"][rows] - used, -floor * seconds)
    bucket = np.minimum(left + floor * elapsed, floor * seconds)
    column["bucket"][rows], column["attained_before"][rows] = bucket, attained
    times, new = jobs.max_slowdown(rows, max_slowdown), jobs.before_report(rows)
    # Half of the slack only: until then all that is known of the job is that it waits.
    times = np.where(new, 1.0 + (times - 1.0) / 2, times)
    due, soon = (clock.served(rows, (age + ahead) / times) for ahead in (0.0, seconds))
    # By then all but 1 % should be done, the error of what work is expected: what is left is due
    # now, be it a little more. The fair clock takes the job for done: its last task would wait.
    ends = due >= (1 - 0.01) * total
    more = np.minimum(fair * seconds, 0.01 * total)
    due = np.where(ends, np.maximum(total, attained + more), due)
    soon = np.maximum(soon, due)
    known = np.isfinite(total)
    entitled = credit * column["entitled"][rows]
    due = np.where(known, due, entitled) - attained
    soon = np.where(known, soon, entitled + credit * fair * seconds) - attained
    due, soon = pooled(due), pooled(soon)
    promised = soon > bucket + floor * seconds
    tokens: FloatArray = np.maximum(np.where(promised, due, bucket), 0.0)
    rate: FloatArray = np.where(promised, (soon - tokens) / seconds, floor)
    # What a job is due before its first report comes before older debts, which may last for ever
    # if their job never catches up.
    first = new & known & promised
    tokens = np.where(first, np.maximum(soon, 0.0), tokens)
    rate[first] = 0.0
    tokens[paused] = rate[paused] = 0.0
    return tokens, rate
