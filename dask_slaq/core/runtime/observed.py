"""Runtime model: iterations that jobs complete on N threads, learned from observations.

One iteration of a job costs ``W = c.S`` core-seconds (§4.1 of the paper) and runs as ``P``
parallel tasks, in ``ceil(P / N)`` waves on N threads. If the times of a job or of the other jobs
clearly contradict this model, the job follows Ernest's law instead (see `ernest`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.memory import ExpectedTime
from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.core.runtime.iterations import Iterations
from dask_slaq.core.runtime.prior import GOOD, Population, clearly_better
from dask_slaq.core.runtime.speed import Speeds, waves

__all__ = ["Runtimes"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Factor per observation on the weight of older ones; near 1, since thread counts rarely change.
MEMORY = 0.98
#: Minimum standard deviation of the log thread counts of a job for its scaling to be identifiable.
SPREAD = 0.2
#: Factor beyond the fewest and the most threads tried up to which a job's optimum is trusted.
GROWTH = 1.5
#: Seconds; shorter iterations are ignored.
SHORTEST = 1e-9
#: From `YOUNG` observations on, the model of a job is chosen anew only every `SELDOM` observations.
YOUNG, SELDOM = 12.0, 4
#: Jobs processed together: their arrays fit in a processor's cache.
CHUNK = 2048
#: Indices in the moments: the sum of squares of 1/N over seconds, its sum, and the count.
_SQUARED, _ONCE, _COUNT = 5, 8, 14


class Runtimes(Iterations):
    """Observed iterations of all jobs, and the laws learned from them.

    Columns as of the last `learn`: ``most``, the most threads that iterations had on average;
    ``scaled``, whether the job follows Ernest's law.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        super().__init__(
            {
                "unjudged": ((), np.int64, 0),  # observations since the model was chosen
                # Expected from past runs, 0 if unknown.
                "past_work": number,
                "past_width": number,
                "past_law": ((scaling.N_TERMS,), np.float64, 0.0),
                # Learned.
                "least": ((), np.float64, np.inf),
                "most": number,
                "sums": ((15,), np.float64, 0.0),
                "wave_sums": ((2,), np.float64, 0.0),
                "log_sums": ((2,), np.float64, 0.0),
                "law": ((scaling.N_TERMS,), np.float64, 0.0),
                "scaled": ((), np.bool_, 0.0),
            },
            reset=("least", "most", "sums", "wave_sums", "log_sums"),
        )
        self._population = Population()

    def forget(self, row: int) -> None:
        """Release the row of a job that ended. Its scaling remains part of the prior."""
        self.observe_iterations()
        at = np.array([row])
        if self._telling(at)[0]:
            self._population.remember(self.column["sums"][at], self._optima(at))
        self.release(row)

    def learn(self, rows: IntArray) -> None:
        """Update laws and models from the iterations that `rows` ended since the last call."""
        new = rows[self.column["iterations"][rows] > 0]
        if not len(new):
            return
        new = np.concatenate([self._observe(some) for some in _chunks(new)])
        before = self._population.nonlinear
        telling = rows[self._telling(rows)]
        if len(telling):
            sums, logs = self.column["sums"][telling], self.column["log_sums"][telling]
            usual = math.exp(logs[:, 1].sum() / sums[:, _COUNT].sum())
            self._population.learn(sums, usual, self._optima(telling))
        self.column["unjudged"][new] += 1
        changed = rows
        if self._population.nonlinear == before:
            due = self.column["unjudged"][new] >= SELDOM
            changed = new[due | (self.column["sums"][new, _COUNT] < YOUNG)]
        self.column["unjudged"][changed] = 0
        for some in _chunks(changed):
            self._judge(some)

    def speeds(self, rows: IntArray) -> Speeds:
        """Return the present speeds of jobs.

        New jobs are assumed to be as past runs of their kind, or else like the other jobs.
        """
        column = self.column
        work, width = column["work"][rows], column["width"][rows]
        new = work == 0
        if new.any() and (past := new & (column["past_work"][rows] > 0)).any():
            return self._with_past(rows, past)
        if new.any() and not new.all():
            work = np.where(new, np.exp(np.log(work[~new]).mean()), work)
            width = np.where(new, np.median(width[~new]), width)
        scaled = np.flatnonzero(column["scaled"][rows] & ~new)
        mine = rows[scaled]
        law = column["law"][mine]
        unseen = column["sums"][rows, _COUNT] == 0
        useful = np.where(new, np.inf, width)
        useful[unseen] = np.minimum(useful[unseen], self._population.first())
        best = np.minimum(self._optima(mine), width[scaled])
        useful[scaled] = np.maximum(np.floor(best), 1.0)
        return Speeds(work, width, useful, scaled, law)

    def expect(self, row: int, past: ExpectedTime) -> None:
        """Expect iterations of the job in a `row` to take as long as `past` ones of its kind."""
        column = self.column
        column["past_work"][row], column["past_width"][row] = past.work, past.width
        column["past_law"][row] = 0.0 if past.law is None else past.law

    def _with_past(self, rows: IntArray, past: BoolArray) -> Speeds:
        """Return the speeds of jobs, of which those in `past` (n_jobs,) go by past runs."""
        speeds = self.speeds(rows[~past]) if not past.all() else Speeds.none()
        column, mine = self.column, rows[past]
        law = column["past_law"][mine]
        lawful = law.any(axis=1)
        work, width = column["past_work"][mine], np.maximum(column["past_width"][mine], 1.0)
        best = np.minimum(scaling.optimum(law[lawful]), width[lawful])
        useful = np.full(len(mine), np.inf)
        useful[lawful] = np.maximum(np.floor(best), 1.0)
        return speeds.merged(Speeds(work, width, useful, np.flatnonzero(lawful), law[lawful]), past)

    def _observe(self, rows: IntArray) -> IntArray:
        """Record one observation per job since the last call. Returns the rows that had one."""
        column = self.column
        core, held = column["core_seconds"][rows], column["held_seconds"][rows]
        most = np.maximum(column["most_share"][rows], column["width"][rows])
        seconds = core / column["iterations"][rows]
        for name in ("iterations", "core_seconds", "held_seconds"):
            column[name][rows] = 0.0
        column["most_share"][rows] = column["share"][rows]
        seen = (held > 0) & (seconds > SHORTEST)
        rows, seconds = rows[seen], seconds[seen]
        threads = np.clip(core[seen] / held[seen], 1.0, np.maximum(most[seen], 1.0))
        seconds = seconds / threads
        column["least"][rows] = np.minimum(column["least"][rows], threads)
        column["most"][rows] = np.maximum(column["most"][rows], threads)
        column["sums"][rows] = MEMORY * column["sums"][rows] + scaling.moments(threads, seconds)
        width = column["width"][rows]
        wave = waves(width, threads) / (width * seconds)
        log = np.log(threads)
        for name, value in (("wave_sums", wave), ("log_sums", log)):
            for sums, term in zip(column[name].T, (value * value, value), strict=True):
                sums[rows] = MEMORY * sums[rows] + term
        return rows

    def _optima(self, rows: IntArray) -> FloatArray:
        """Return the fastest thread counts of the jobs in `rows` that follow Ernest's law.

        Each is at most `GROWTH` times the most threads tried.
        """
        rows = rows[self.column["scaled"][rows]]
        most = self.column["most"][rows] * GROWTH
        return np.minimum(scaling.optimum(self.column["law"][rows]), np.maximum(most, 1.0))

    def _telling(self, rows: IntArray) -> BoolArray:
        """Return which jobs were recently observed on clearly different thread counts."""
        count = self.column["sums"][rows, _COUNT]
        squares, logs = (sums[rows] for sums in self.column["log_sums"].T)
        telling: BoolArray = squares * count - logs * logs > (SPREAD * count) ** 2
        return telling

    def _judge(self, rows: IntArray) -> None:
        """Choose the simplest model that the times of each job and of the others support."""
        column = self.column
        sums, waved = column["sums"][rows], column["wave_sums"][rows]
        count = sums[:, _COUNT]
        simple = np.minimum(
            _error_of_one_term(sums[:, _SQUARED], sums[:, _ONCE], count),
            _error_of_one_term(waved[:, 0], waved[:, 1], count),
        )
        open_ = (count > 0) & ((simple > GOOD**2 * count) | self._population.nonlinear)
        column["scaled"][rows[~open_]] = False
        if open_.any():
            rows, sums, simple, count = rows[open_], sums[open_], simple[open_], count[open_]
            law = self._population.laws(sums)
            error = scaling.residual(sums, law)
            least = column["least"][rows]
            law = scaling.bounded(
                law, np.minimum(least, self._population.optimum()) / GROWTH, least
            )
            scaled = clearly_better(simple, error, count)
            if self._population.nonlinear:
                scaled |= ~clearly_better(error, simple, count)
            column["law"][rows] = law
            column["scaled"][rows] = scaled


def _chunks(rows: IntArray) -> list[IntArray]:
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]


def _error_of_one_term(squared: FloatArray, once: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of squared relative errors (n,) that the best multiple of one term leaves."""
    explained = np.divide(once * once, squared, out=np.zeros_like(once), where=squared > 0)
    left: FloatArray = np.maximum(count - explained, 0.0)
    return left
