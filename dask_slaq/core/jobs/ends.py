"""When jobs of known length end: in the fair world, by their promise, and as expected."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray, JobArrays

#: Parts of the work at which a job enters the next group.
MARKS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
#: Number of groups: for each part, jobs whose iterations are known, and others that announced some.
GROUPS = 2 * len(MARKS)
#: Weight of the fair share, in logarithms; the rest is that of all threads that a job can use.
SHARED = 0.75
#: Assumed quotients of each group: real seconds over those from the two rates (low, middle, high),
#: and over those until the promise of the present jobs.
ASSUMED = np.array(
    [
        *[[0.60, 1.15, 2.6, 2.3], [0.2, 0.9, 3.0, 2.3]],
        *[[0.55, 0.95, 1.9, 2.2], [0.2, 0.9, 3.0, 2.2]],
        *[[0.55, 0.95, 1.9, 1.7], [0.2, 0.9, 3.0, 1.7]],
        *[[0.50, 0.90, 1.8, 1.3], [0.2, 0.9, 3.0, 1.3]],
        *[[0.45, 0.75, 1.6, 1.1], [0.2, 0.8, 2.5, 1.1]],
        *[[0.35, 0.60, 1.5, 1.1], [0.2, 0.8, 2.5, 1.1]],
    ]
)
#: Scores that count as much as what is assumed, and scores that are remembered.
PRIOR, REMEMBERED = 60, 200
#: Scores count as no farther from the middle: quantiles of what is infinite are nan, for all jobs.
FARTHEST = 10.0
#: Quantiles of the band and of the stated promise.
BAND, STATED = (0.1, 0.5, 0.9), 0.98
#: Quotient of the ends of a band from which on it says nothing, and is not stated: until jobs that
#: have ended show otherwise, the first iteration does not tell what the others will take.
WIDEST = 8.0
#: Ends of which it is told how many were in their band.
HITS = 50

#: Columns in a `JobArrays`: for each group, what was expected (see `EndForecasts.forecast`) and
#: shown in seconds from ``end_at``.
COLUMNS = {
    "end_at": ((GROUPS,), np.float64, math.nan),
    "end_band": ((GROUPS, 5), np.float64, math.nan),
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

    A job is expected to need its work left at a rate between its fair share and all threads that it
    can use. How wrong this was gives the band of all (split conformal prediction: Lei et al., JASA
    2018). A score is 0 for the assumed middle, -1 for the low end of the band, and 1 for the high
    one.
    """

    def __init__(self, table: JobArrays) -> None:
        self._table = table
        # Of each group; then of jobs whose iterations are known, and of others.
        self._scores = [deque[float](maxlen=REMEMBERED) for _ in range(GROUPS + 2)]
        self._late = deque[float](maxlen=REMEMBERED)  # real over stated promises, as assumed
        self._band = np.tile([-1.0, 0.0, 1.0], (GROUPS, 1))  # scores of the ends and the middle
        self._room = 1.0  # factor of the assumed room of promises
        # Of the last ended jobs: whether they ended in the band stated half-way, and the score.
        self.held: deque[tuple[bool, float]] = deque(maxlen=HITS)
        self.judged = 0  # number of ends that were added to `held`
        self._epoch = 0.0

    @property
    def hits(self) -> Hits:
        """How well the last ends were foretold."""
        return Hits(len(self.held), sum(held for held, _ in self.held))

    def recall(self, held: Sequence[tuple[bool, float]]) -> None:
        """Put what is known of ends before the present ones, oldest first, before these."""
        self.held = deque([*held, *self.held], maxlen=HITS)
        scores = self._scores[GROUPS]
        known = [*(min(max(score, -FARTHEST), FARTHEST) for _, score in held), *scores]
        scores.clear()
        scores.extend(known)
        self._learn_quantiles()

    def forecast(
        self,
        rows: IntArray,
        attained: FloatArray,
        total: FloatArray,
        share: FloatArray,
        most: FloatArray,
        settled: BoolArray,
        fair: FloatArray,
        promised: FloatArray,
        epoch: float,
        now: float,
        threads: float,
    ) -> Ends:
        """Return when jobs end, and keep what is expected of those that are new to a group.

        Arrays are (n,): `attained` and `total` in core-seconds, `share` and `most` in threads, and
        `fair` and `promised` in seconds; `settled` tells whether the cost of iterations was
        observed.
        """
        column = self._table.column
        self._epoch = epoch
        known = np.isfinite(total) & (total > 0) & (share > 0)
        done = np.divide(attained, total, out=np.zeros(len(rows)), where=known)
        left = np.where(known, np.maximum(total - attained, 0.0), math.nan)
        alone, full = (np.maximum(left / np.maximum(rate, 1e-3), epoch) for rate in (share, most))
        base = alone**SHARED * full ** (1 - SHARED)
        mark = np.searchsorted(MARKS, np.minimum(done, 1.0), side="right") - 1
        group = 2 * mark + ~settled
        band = base * _quotients(ASSUMED[group, :3].T, self._band[group].T)
        latest = np.maximum(promised, epoch)
        room = np.maximum(ASSUMED[group, 3] * self._room, 1.0)
        # One that has passed is not stated: it cannot be kept any more.
        stated = np.where(known, np.maximum(room * latest, band[1]), np.nan)
        new = known & np.isnan(column["end_at"][rows, group])
        column["end_at"][rows[new], group[new]] = now
        column["end_band"][rows[new], group[new]] = np.stack([base, latest, *band], axis=1)[new]
        young = known & (done >= MARKS[1]) & np.isnan(column["end_promised"][rows])
        column["end_promised"][rows[young]] = now + stated[young]
        column["end_threads"][rows[young]] = threads
        return Ends(fair, stated, *np.where(band[2] > WIDEST * band[0], math.nan, band))

    def learn(self, row: int, now: float) -> None:
        """Compare what was expected of the job in a `row` with its end."""
        at, band = (self._table.column[name][row] for name in ("end_at", "end_band"))
        groups = np.flatnonzero(~np.isnan(at))
        real = np.maximum(now - at[groups], 1e-9)
        scores = _scores(ASSUMED[groups, :3].T, real / band[groups, 0])
        for group, score, late in zip(
            groups, scores, real / band[groups, 1] / ASSUMED[groups, 3], strict=True
        ):
            self._scores[group].append(float(score))
            self._scores[GROUPS + group % 2].append(float(score))
            if late > 0:  # there was a promise
                self._late.append(float(late))
        self._learn_quantiles()
        # Nobody could go by what was stated less than an epoch before the end.
        seen = (at < now - self._epoch) & (band[:, 4] <= WIDEST * band[:, 2])
        shown = np.flatnonzero(seen[groups])
        if len(shown):
            middle = shown[(len(shown) - 1) // 2]
            low, high = band[groups[middle], [2, 4]]
            self.held.append((bool(low <= real[middle] <= high), float(scores[middle])))
            self.judged += 1

    def _learn_quantiles(self) -> None:
        """Find the quantiles of the scores: of a group, of its kind, and while few, as assumed."""
        kinds = [_mixed(np.array([-1.0, 0.0, 1.0]), scores) for scores in self._scores[GROUPS:]]
        for group in range(GROUPS):
            self._band[group] = _mixed(kinds[group % 2], self._scores[group])
        if self._late:
            part = 1 - math.exp(-len(self._late) / PRIOR)
            self._room = max(float(np.quantile(self._late, STATED)), 1.0) ** part


def _mixed(assumed: FloatArray, scores: Sequence[float]) -> FloatArray:
    """Return the quantiles (3,) of `scores`, mixed with those `assumed` while there are few."""
    if not scores:
        return assumed
    part = 1 - math.exp(-len(scores) / PRIOR)
    mixed: FloatArray = part * np.quantile(scores, BAND) + (1 - part) * assumed
    return mixed


def _quotients(assumed: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the quotients (3, n) at `scores` (3, n); those `assumed` (3, n) have -1, 0, 1."""
    low, middle, high = np.log(assumed)
    found: FloatArray = np.exp(middle + scores * np.where(scores > 0, high - middle, middle - low))
    return found


def _scores(assumed: FloatArray, quotients: FloatArray) -> FloatArray:
    """Return the scores (n,) of `quotients` (n,), where those `assumed` (3, n) have -1, 0, 1."""
    low, middle, high = np.log(assumed)
    over = np.log(quotients) - middle
    found: FloatArray = over / np.where(over > 0, high - middle, middle - low)
    return found.clip(-FARTHEST, FARTHEST)
