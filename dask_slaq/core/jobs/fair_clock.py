"""Fair clock: what every job would have received by now on a cluster that shares fairly.

A job is promised to end no later than `R` times its time there: `t` seconds after its arrival it
must have received what it would have received there in `t / R` (the fair sojourn protocol of
Friedman and Henderson, SIGMETRICS 2003, with slack). A fair schedule keeps every such promise, so
all of them can be kept at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays
from dask_slaq.core.policies import fair_fill

#: Ages of each job at which the clock remembers what it had received. When they are used up, every
#: second one is dropped.
MOST_AGES = 64

#: Columns of the clock in a `JobArrays`. ``history`` has the core-seconds received at the ages
#: ``0, step, 2 * step, …``, of which ``points`` are known. ``served`` is the amount at ``age``, the
#: present age, or the one at which the job was done; ``weight`` the last one, ``cap`` the largest;
#: ``width`` the tasks that it has had lately.
COLUMNS = {
    "fair_history": ((MOST_AGES,), np.float64, 0.0),
    "fair_step": ((), np.float64, 0.0),
    "fair_points": ((), np.int64, 1),
    "fair_age": ((), np.float64, 0.0),
    "fair_served": ((), np.float64, 0.0),
    "fair_weight": ((), np.float64, 1.0),
    "fair_cap": ((), np.float64, 0.0),
    "fair_width": ((), np.float64, 0.0),
}


class FairClock:
    """Fair cluster of the jobs in `table`, and of those that have left the real one before it."""

    def __init__(self, table: JobArrays) -> None:
        self._table = table
        # Weight, cap in threads and core-seconds left of jobs that have ended in the real world.
        self._ended: FloatArray = np.zeros((3, 0))

    def advance(
        self,
        rows: IntArray,
        weight: FloatArray,
        cap: FloatArray,
        total: FloatArray,
        capacity: float,
        elapsed: float,
        age: FloatArray,
        step: float,
        within: Callable[[FloatArray, FloatArray], FloatArray] = lambda weight, cap: cap,
    ) -> FloatArray:
        """Advance by `elapsed` seconds, and return the threads (n,) of the jobs in `rows` here."""
        column, n = self._table.column, len(rows)
        before = column["fair_served"][rows]
        cap = np.where(age >= elapsed, cap, 0.0)
        weight, most = (
            np.append(*pair) for pair in ((weight, self._ended[0]), (cap, self._ended[1]))
        )
        left = np.append(np.maximum(total - before, 0.0), self._ended[2])
        threads, given, spent = np.zeros((3, len(left)))
        rest = elapsed
        for turn in range(16, 0, -1):  # of more ends of jobs, the rest share as they are then
            works = left > given
            cap = np.where(works, most, 0.0)
            cap[:n] = within(weight[:n], cap[:n])
            threads = fair_fill(weight, np.zeros(len(left)), cap, capacity)
            busy = threads > 0
            end = ((left - given)[busy] / threads[busy]).min(initial=np.inf)
            seconds = min(rest, end) if turn > 1 else rest
            given = np.minimum(given + threads * seconds * (1 + 1e-12), left)
            spent[works] += seconds
            rest -= seconds
            if rest <= 0:
                break
        self._ended[2] -= given[n:]
        self._ended = self._ended[:, self._ended[2] > 0]
        column["fair_weight"][rows] = weight[:n]
        column["fair_cap"][rows] = np.maximum(most[:n], column["fair_cap"][rows])
        # A job that is done there has received nothing since it was.
        until = np.where(left[:n] > 0, age - elapsed + spent[:n], column["fair_age"][rows])
        self._remember(rows, until, before, before + given[:n], step)
        return threads[:n]

    def _remember(
        self, rows: IntArray, age: FloatArray, before: FloatArray, after: FloatArray, step: float
    ) -> None:
        """Record what jobs had received at the ages between the last call and `age`."""
        column = self._table.column
        new = column["fair_step"][rows] == 0
        column["fair_step"][rows[new]] = step
        since = column["fair_age"][rows]
        at = np.arange(len(rows))
        while True:
            due = column["fair_points"][rows[at]] * column["fair_step"][rows[at]]
            at = at[due <= age[at]]
            if not len(at):
                break
            row, points = rows[at], column["fair_points"][rows[at]]
            due = points * column["fair_step"][row]
            part = (due - since[at]) / np.maximum(age[at] - since[at], 1e-12)
            value = before[at] + np.clip(part, 0.0, 1.0) * (after[at] - before[at])
            column["fair_history"][row, points] = value
            column["fair_points"][row] = points + 1
            full = row[points + 1 == MOST_AGES]
            column["fair_history"][full, : MOST_AGES // 2] = column["fair_history"][full, ::2]
            column["fair_points"][full] = MOST_AGES // 2
            column["fair_step"][full] *= 2
        column["fair_age"][rows], column["fair_served"][rows] = age, after

    def served(self, rows: IntArray, age: FloatArray) -> FloatArray:
        """Return the core-seconds (n,) that jobs had received at an earlier `age`."""
        column = self._table.column
        step, points = column["fair_step"][rows], column["fair_points"][rows]
        place = np.divide(age, step, out=np.zeros(len(rows)), where=step > 0)
        last = points - 1
        low = np.minimum(place.astype(np.int64), last)
        history = column["fair_history"]
        now, newest = column["fair_served"][rows], column["fair_age"][rows]
        begin = history[rows, low]
        known = low < last
        end = np.where(known, history[rows, np.minimum(low + 1, MOST_AGES - 1)], now)
        width = np.where(known, step, newest - low * step)
        part = np.divide(age - low * step, width, out=np.zeros(len(rows)), where=width > 0)
        served: FloatArray = begin + np.clip(part, 0.0, 1.0) * (end - begin)
        return served

    def until_end(
        self, rows: IntArray, total: FloatArray, threads: FloatArray, age: FloatArray
    ) -> FloatArray:
        """Return seconds (n,) until jobs end on their `threads`; < 0 where they have here."""
        column = self._table.column
        left = total - column["fair_served"][rows]
        ahead = np.divide(left, threads, out=np.full(len(rows), np.inf), where=threads > 0)
        until = np.where(left > 0, ahead, column["fair_age"][rows] - age)
        return np.where(np.isfinite(total), until, np.nan)

    def leave(self, row: int, attained: float) -> None:
        """Keep a job that has ended until it has received the core-seconds `attained` here."""
        column = self._table.column
        left = attained - column["fair_served"].item(row)
        if left > 0 and column["fair_cap"].item(row) > 0:
            ended = [[column[name].item(row)] for name in ("fair_weight", "fair_cap")]
            self._ended = np.append(self._ended, [*ended, [left]], axis=1)
