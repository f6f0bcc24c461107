"""When jobs of known length end: in the fair world, by their promise, and as expected."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from dask_slaq.core.job_arrays import FloatArray, IntArray, JobArrays

__all__ = ["COLUMNS", "EndForecasts", "Ends"]

#: Parts of the work at which a job enters the next group.
MARKS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
#: Number of groups: for each part, jobs ahead of their promise and jobs that live on it.
GROUPS = 2 * len(MARKS)
#: Assumed quotients of real and expected seconds (low, middle, high) of each group, and the number
#: of ended jobs that they count for.
ASSUMED = np.array(
    [*[[0.15, 0.9, 2.5], [0.6, 1.0, 1.5]] * 4, *[[0.05, 0.6, 2.5], [0.3, 1.0, 1.7]] * 2]
)
PRIOR = 10
#: Ended jobs remembered in each group.
REMEMBERED = 200
#: Quantiles of the band, and the step by which each ended job moves the outer ones.
BAND, STEP = (0.1, 0.5, 0.9), 0.02

#: Columns in a `JobArrays`: for each group, expectation and band in seconds from ``end_at``.
COLUMNS = {
    "end_at": ((GROUPS,), np.float64, math.nan),
    "end_band": ((GROUPS, 4), np.float64, math.nan),
    # The promised end, and the threads of the cluster, when a fifth of the work was done.
    "end_promised": ((), np.float64, math.nan),
    "end_threads": ((), np.float64, math.nan),
}


class Ends(NamedTuple):
    """Seconds (n,) from now until jobs end; nan where their length is unknown."""

    fair: FloatArray  # on a cluster that shares fairly; negative for one that would have ended
    promised: FloatArray  # at the latest; inf for no promise
    low: FloatArray
    expected: FloatArray
    high: FloatArray


class EndForecasts:
    """Forecasts of the ends of the jobs in `table`, corrected by those that have ended.

    A job that lives on its promise is expected to end with it. One that is ahead of it may go on as
    fast as now or be overtaken: there the expectation is the geometric mean of the time until its
    promise and that of the work left on its fair share. How wrong this was for jobs that have ended
    gives the band, whose quantiles move until the band holds as many ends as it states (adaptive
    conformal prediction: Gibbs and Candes, NeurIPS 2021).
    """

    def __init__(self, table: JobArrays) -> None:
        self._table = table
        self._quotients: list[deque[float]] = [deque(maxlen=REMEMBERED) for _ in range(GROUPS)]
        self._levels = np.tile(BAND, (GROUPS, 1))
        self._factors = ASSUMED.copy()

    def forecast(
        self,
        rows: IntArray,
        attained: FloatArray,
        total: FloatArray,
        share: FloatArray,
        due: FloatArray,
        fair: FloatArray,
        promised: FloatArray,
        epoch: float,
        now: float,
        threads: float,
    ) -> Ends:
        """Return when jobs end, and keep what is expected of those that are new to a group.

        All arrays are (n,). `attained` and `due` are core-seconds until now, used and promised;
        `total` those of the whole job, inf if unknown; `share` is the fair share in threads. `fair`
        and `promised` are seconds until the end in the fair world, and until the promised one.
        Nothing is expected sooner than in an `epoch`; `threads` are those of the cluster.
        """
        known = np.isfinite(total) & (total > 0)
        done = np.divide(attained, total, out=np.zeros(len(rows)), where=known)
        alone = np.maximum((total - attained) / np.maximum(share, 1e-9), epoch)
        latest = np.maximum(np.where(np.isfinite(promised), promised, alone), epoch)
        behind = attained <= due
        base = np.where(known, np.where(behind, latest, np.sqrt(alone * latest)), np.nan)
        mark = np.searchsorted(MARKS, np.minimum(done, 1.0), side="right") - 1
        group = 2 * mark + behind
        band = self._factors[group].T * base
        column = self._table.column
        new = known & np.isnan(column["end_at"][rows, group])
        column["end_at"][rows[new], group[new]] = now
        column["end_band"][rows[new], group[new]] = np.stack([base, *band], axis=1)[new]
        young = known & (done >= MARKS[1]) & np.isnan(column["end_promised"][rows])
        column["end_promised"][rows[young]] = now + promised[young]
        column["end_threads"][rows[young]] = threads
        return Ends(fair, np.where(known, promised, np.nan), *band)

    def learn(self, row: int, now: float) -> None:
        """Compare what was expected of the job in a `row` with its end."""
        at, band = (self._table.column[name][row] for name in ("end_at", "end_band"))
        for group in np.flatnonzero(~np.isnan(at)).tolist():
            real = now - at[group]
            base, low, _, high = band[group]
            self._quotients[group].append(float(real / base))
            level = self._levels[group]
            level[0] = np.clip(level[0] + STEP * (BAND[0] - (real < low)), 0.0, 0.4)
            level[2] = np.clip(level[2] + STEP * ((real > high) - (1 - BAND[2])), 0.6, 1.0)
            self._factors[group] = self._learned(group)

    def _learned(self, group: int) -> FloatArray:
        """Return the quotients (3,) of a group, those of ended jobs mixed with the assumed ones."""
        known = self._quotients[group]
        part = len(known) / (len(known) + PRIOR)
        learned = np.maximum(np.quantile(known, self._levels[group]), 1e-3)
        mixed: FloatArray = np.exp(part * np.log(learned) + (1 - part) * np.log(ASSUMED[group]))
        return mixed
