"""When jobs of known length end: in the fair world, by their promise, and as expected."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, FloatArray, IntArray, JobArrays

__all__ = ["COLUMNS", "EndForecasts", "Ends", "Hits"]

#: Parts of the work at which a job enters the next group.
MARKS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
#: Number of groups: for each part, jobs whose iterations are known, and others that announced some.
GROUPS = 2 * len(MARKS)
#: Assumed quotients of each group, and the number of ended jobs that they count for: real seconds
#: over the expected (low, middle, high), and over those until the promise of the present jobs.
ASSUMED = np.array(
    [
        *[[0.5, 1.0, 2.0, 2.3], [0.25, 1.0, 3.5, 2.3]],
        *[[0.5, 1.0, 2.0, 2.2], [0.25, 1.0, 3.5, 2.2]],
        *[[0.5, 1.0, 2.0, 1.7], [0.25, 1.0, 3.5, 1.7]],
        *[[0.5, 0.95, 2.0, 1.3], [0.25, 1.0, 3.5, 1.3]],
        *[[0.5, 0.9, 1.5, 1.1], [0.25, 0.8, 2.5, 1.1]],
        *[[0.35, 0.75, 1.5, 1.1], [0.25, 0.8, 2.5, 1.1]],
    ]
)
PRIOR = 20
#: Ended jobs remembered in each group.
REMEMBERED = 200
#: Quantiles of the band and of the stated promise, and the step by which each ended job moves them.
BAND, STEP = (0.1, 0.5, 0.9, 0.98), 0.02
#: Epochs over which the pace of a job is averaged.
PACE = 10.0
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
    # Core-seconds per second of late, and core-seconds and time up to which they are counted.
    "end_pace": ((), np.float64, math.nan),
    "end_used": ((), np.float64, 0.0),
    "end_seen": ((), np.float64, math.nan),
}


class Ends(NamedTuple):
    """Seconds (n,) from now until jobs end; nan where their length is unknown.

    What is expected is nan, too, where it is known too little to be of use.
    """

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

    A job is expected to need its work left on its fair share, and the more of it is done, on what
    it got of late instead. How wrong this was for jobs that have ended gives the band, whose
    quantiles move until the band holds as many ends as it states (adaptive conformal prediction:
    Gibbs and Candes, NeurIPS 2021). The promise of a job grows with every job that comes later. It
    is stated with so much room that nearly all jobs end by what was stated.
    """

    def __init__(self, table: JobArrays) -> None:
        self._table = table
        self._quotients: list[deque[tuple[float, float]]] = [
            deque(maxlen=REMEMBERED) for _ in range(GROUPS)
        ]
        self._levels = np.tile(BAND, (GROUPS, 1))
        self._factors = ASSUMED.copy()
        # Of the last ended jobs: whether they ended in the band stated half-way.
        self.held: deque[bool] = deque(maxlen=HITS)
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
        share: FloatArray,
        settled: BoolArray,
        fair: FloatArray,
        promised: FloatArray,
        epoch: float,
        now: float,
        threads: float,
    ) -> Ends:
        """Return when jobs end, and keep what is expected of those that are new to a group.

        All arrays are (n,). `attained` and `total` are core-seconds, until now and of the whole
        job, inf if unknown; `share` is the fair share in threads, and `settled` tells whether the
        cost of iterations was observed. `fair` and `promised` are seconds until the end in the fair
        world, and until the one promised to the present jobs. Nothing is expected sooner than in an
        `epoch`; `threads` are those of the cluster.
        """
        column = self._table.column
        self._epoch = epoch
        known = np.isfinite(total) & (total > 0) & (share > 0)
        done = np.divide(attained, total, out=np.zeros(len(rows)), where=known)
        pace = self._pace(rows, attained, share, epoch, now)
        left = np.where(known, np.maximum(total - attained, 0.0), math.nan)
        alone, lately = (np.maximum(left / np.maximum(rate, 1e-3), epoch) for rate in (share, pace))
        base = alone ** (1 - done / 2) * lately ** (done / 2)
        mark = np.searchsorted(MARKS, np.minimum(done, 1.0), side="right") - 1
        group = 2 * mark + ~settled
        factors = self._factors[group].T
        band = factors[:3] * base
        latest = np.maximum(promised, epoch)
        # One that has passed is not stated: it cannot be kept any more.
        stated = np.where(known, np.maximum(np.maximum(factors[3], 1.0) * latest, band[1]), np.nan)
        new = known & np.isnan(column["end_at"][rows, group])
        column["end_at"][rows[new], group[new]] = now
        column["end_band"][rows[new], group[new]] = np.stack([base, latest, *band], axis=1)[new]
        young = known & (done >= MARKS[1]) & np.isnan(column["end_promised"][rows])
        column["end_promised"][rows[young]] = now + stated[young]
        column["end_threads"][rows[young]] = threads
        return Ends(fair, stated, *np.where(factors[2] > WIDEST * factors[0], math.nan, band))

    def _pace(
        self, rows: IntArray, attained: FloatArray, share: FloatArray, epoch: float, now: float
    ) -> FloatArray:
        """Return the core-seconds per second (n,) of late; the `share` of a new job."""
        column = self._table.column
        before = column["end_pace"][rows]
        pace: FloatArray = np.where(np.isnan(before), share, before)
        elapsed = now - np.nan_to_num(column["end_seen"][rows], nan=now)
        used = attained - column["end_used"][rows]
        rate = np.divide(used, elapsed, out=pace.copy(), where=elapsed > 0)
        pace = pace + (1 - np.exp(-elapsed / (PACE * epoch))) * (rate - pace)
        column["end_pace"][rows] = np.where(share > 0, pace, math.nan)
        column["end_used"][rows], column["end_seen"][rows] = attained, now
        return pace

    def learn(self, row: int, now: float) -> None:
        """Compare what was expected of the job in a `row` with its end."""
        at, band = (self._table.column[name][row] for name in ("end_at", "end_band"))
        groups = np.flatnonzero(~np.isnan(at)).tolist()
        for group in groups:
            real = now - at[group]
            base, latest, low, _, high = band[group]
            stated = latest * max(self._factors[group, 3], 1.0)
            self._quotients[group].append((float(real / base), float(real / latest)))
            level = self._levels[group]
            level[0] = np.clip(level[0] + STEP * (BAND[0] - (real < low)), 0.0, 0.4)
            level[2] = np.clip(level[2] + STEP * ((real > high) - (1 - BAND[2])), 0.6, 1.0)
            if np.isfinite(latest):
                level[3] = np.clip(level[3] + STEP * ((real > stated) - (1 - BAND[3])), 0.9, 1.0)
            self._factors[group] = self._learned(group)
        # Nobody could go by what was stated less than an epoch before the end.
        seen = (at < now - self._epoch) & (band[:, 4] <= WIDEST * band[:, 2])
        shown = [group for group in groups if seen[group]]
        if shown:
            middle = shown[(len(shown) - 1) // 2]
            _, _, low, _, high = band[middle]
            self.held.append(bool(low <= now - at[middle] <= high))

    def _learned(self, group: int) -> FloatArray:
        """Return the quotients (4,) of a group, those of ended jobs mixed with the assumed ones."""
        known = np.array(self._quotients[group])
        part = len(known) / (len(known) + PRIOR)
        *band, latest = self._levels[group]
        learned = np.append(np.quantile(known[:, 0], band), np.quantile(known[:, 1], latest))
        learned = np.maximum(learned, 1e-2)
        mixed: FloatArray = np.exp(part * np.log(learned) + (1 - part) * np.log(ASSUMED[group]))
        return mixed
