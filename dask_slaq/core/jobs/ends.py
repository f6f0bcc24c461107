"""When jobs of known length end: in the fair world, by their promise, and as expected.

A job does its work left at a rate between three: its fair share, all threads that it can use, and
what it had lately. It is expected to end in the geometric mean of the three times, times a
`middle`. The band is as wide as these times differ, which is what others may still bring or leave.
How far earlier ends were off, in half-widths of the band, corrects both, by the reason for which a
length is known (normalized split conformal prediction: Lei et al., JASA 2018).
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays

#: Reasons for which a length is known: tasks that were counted; announced iterations; and these
#: before the second report, while the cost of one is a guess.
COUNTED, ANNOUNCED, GUESSED = range(3)
#: Parts of the work at which it is noted what is expected, for each job.
MARKS = np.array([0.0, 0.2, 0.4, 0.6, 0.8])
#: Maximum number of scores that are remembered.
MOST_SCORES = 200
#: Quantiles of the band, and their assumed scores.
BAND, ASSUMED = (0.1, 0.5, 0.9), np.array([-1.0, 0.0, 1.0])

#: Columns in a `JobArrays`. What was expected while the length was a guess, and then at each of
#: `MARKS`, is noted at ``end_at``: see `EndForecasts.forecast`.
COLUMNS = {
    "end_at": ((len(MARKS) + 1,), np.float64, math.nan),
    "end_noted": ((len(MARKS) + 1, 5), np.float64, math.nan),
    "end_reason": ((), np.int64, ANNOUNCED),  # the last one that was no guess
    "end_rate": ((), np.float64, math.nan),  # threads that the job had lately
    # The promised end, and the threads of the cluster, when a fifth of the work was done.
    "end_promised": ((), np.float64, math.nan),
    "end_threads": ((), np.float64, math.nan),
}


class Ends(NamedTuple):
    """Seconds (n,) until jobs end; nan where unknown, or known too little to be of use."""

    fair: FloatArray  # on a cluster that shares fairly; negative for one that would have ended
    promised: FloatArray  # as it is stated, with room for jobs to come; inf for no promise
    low: FloatArray
    expected: FloatArray
    high: FloatArray


class Hits(NamedTuple):
    """How well ends were foretold: of the last ``ended`` jobs, ``held`` ended in their band."""

    ended: int
    held: int


class EndForecasts:
    """Forecasts of the ends of the jobs in `table`, corrected by those that have ended.

    A score is 0 for the assumed middle, -1 for the low end of the assumed band, 1 for the high one.
    """

    #: Quotient of the ends of a band from which on it says nothing, and is not stated.
    widest = 8.0

    def __init__(self, table: JobArrays) -> None:
        self._table = table
        self._scores = [deque[float](maxlen=MOST_SCORES) for _ in range(3)]  # by reason
        self._late = deque[float](maxlen=MOST_SCORES)  # real over stated promises, as assumed
        self._band = np.tile(ASSUMED, (3, 1))  # scores of the ends and the middle
        self._room = 1.0  # factor of the assumed room of promises
        # Of the last ended jobs: whether they ended in the band stated half-way.
        self.held: deque[bool] = deque(maxlen=50)
        self._epoch = 0.0

    @property
    def hits(self) -> Hits:
        """How well the last ends were foretold."""
        return Hits(len(self.held), sum(self.held))

    def forecast(
        self,
        rows: IntArray,
        attained: FloatArray,
        total: FloatArray,
        rates: FloatArray,
        reason: IntArray,
        fair: FloatArray,
        promised: FloatArray,
        epoch: float,
        now: float,
        threads: float,
    ) -> Ends:
        """Return when jobs end, and note what is expected of those that are at a new mark.

        Arrays are (n,): `attained` and `total` in core-seconds, `fair` and `promised` in seconds,
        and why `total` is known. `rates` (3, n), in threads, are the fair share, all that a job can
        use, and what it had lately.
        """
        column = self._table.column
        self._epoch = epoch
        done, times = done_and_times(attained, total, rates, epoch)
        known, sure = ~np.isnan(times[0]), reason != GUESSED
        # Until ends have shown otherwise, logarithms of real seconds over the mean of the three
        # times: at the begin, and what is added, times the cube of the part that is done, to the
        # end. Half the width of the band: if all times agree, and per logarithm of the quotient of
        # the longest and the shortest; and the factor of that for a guess. Source of these five:
        # `python -m benchmarks.ends --live --owners --load 1.2 --fit`, the lowest interval score
        # (Gneiting and Raftery, JASA 2007). It gives .25, -.48, .39, .15 and 2.5; ends are later,
        # and farther apart, where short newcomers keep coming.
        middle = times.mean(axis=0) + 0.35 - 0.55 * done**3
        half = 0.38 + 0.18 * np.ptp(times, axis=0)
        half = np.where(sure, half, 3.0 * half)
        band = np.exp(middle + half * self._band[reason].T)
        # To leave room for jobs to come, the promise of one that begins is stated longer by this
        # part, and at its end by none: `promise_kept` of that benchmark is 99 % with it.
        latest = np.maximum(promised, epoch) * (1 + 1.3 * (1 - done))
        # One that has passed is not stated: it cannot be kept any more.
        stated = np.where(known, np.maximum(latest * self._room, band[1]), np.nan)
        mark = np.searchsorted(MARKS, done, side="right") * sure
        new = known & np.isnan(column["end_at"][rows, mark])
        column["end_at"][rows[new], mark[new]] = now
        noted = np.stack([middle, half, latest, band[0], band[2]], axis=1)
        column["end_noted"][rows[new], mark[new]] = noted[new]
        column["end_reason"][rows[sure]] = reason[sure]
        young = known & (done >= MARKS[1]) & np.isnan(column["end_promised"][rows])
        column["end_promised"][rows[young]] = now + stated[young]
        column["end_threads"][rows[young]] = threads
        return Ends(fair, stated, *np.where(band[2] > self.widest * band[0], math.nan, band))

    def learn(self, row: int, now: float) -> None:
        """Compare what was expected of the job in a `row` with its end."""
        column = self._table.column
        marks = np.flatnonzero(~np.isnan(column["end_at"][row]))
        at, noted = column["end_at"][row, marks], column["end_noted"][row, marks]
        middle, half, latest, low, high = noted.T
        real = np.maximum(now - at, 1e-9)
        # Quantiles of what is infinite would be nan, for all jobs.
        scores = ((np.log(real) - middle) / half).clip(-10.0, 10.0)
        for mark, score in zip(marks, scores.tolist(), strict=True):
            self._scores[column["end_reason"].item(row) if mark else GUESSED].append(score)
        late = real / latest
        self._late.extend(late[late > 0].tolist())  # without a promise it is 0
        self._learn_quantiles()
        # Nobody could go by what was stated less than an epoch before the end.
        shown = np.flatnonzero((at < now - self._epoch) & (high <= self.widest * low))
        if len(shown):
            half_way = shown[(len(shown) - 1) // 2]
            self.held.append(bool(low[half_way] <= real[half_way] <= high[half_way]))

    def _learn_quantiles(self) -> None:
        """Find the quantiles of the scores, mixed with those assumed while there are few."""
        prior = 60  # scores that count as much as what is assumed
        for reason, scores in enumerate(self._scores):
            if scores:
                part = 1 - math.exp(-len(scores) / prior)
                self._band[reason] = (1 - part) * ASSUMED + part * np.quantile(scores, BAND)
        if self._late:
            part = 1 - math.exp(-len(self._late) / prior)
            self._room = max(float(np.quantile(self._late, 0.98)), 1.0) ** part


def done_and_times(
    attained: FloatArray, total: FloatArray, rates: FloatArray, epoch: float
) -> tuple[FloatArray, FloatArray]:
    """Return the part (n,) of the work that is done, and logarithms of seconds (3, n) at `rates`.

    They are 0 and nan of a job of unknown length, or that may have no thread.
    """
    known = np.isfinite(total) & (total > 0) & (rates[0] > 0)
    done = np.divide(attained, total, out=np.zeros(len(total)), where=known).clip(0.0, 1.0)
    left = np.where(known, np.maximum(total - attained, 0.0), math.nan)
    # Less than a quarter of an epoch cannot be told, as decisions are an epoch apart.
    return done, np.log(np.maximum(left / np.maximum(rates, 1e-3), 0.25 * epoch))
