"""Runtime model: how many iterations jobs complete on N threads, learned from what they did.

One iteration of a job costs ``W = c.S`` core-seconds (§4.1 of the paper) and runs as ``P``
parallel tasks, in ``ceil(P / N)`` waves on N threads. That is the model until a job's own times
or the other jobs' clearly speak against it; then it is Ernest's law (`scaling`).

Rule 1: a job that waits for threads is not slow. Seconds are counted while it held some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_slaq.core import scaling
from dask_slaq.core.history import Rows

__all__ = ["Runtimes", "Speeds", "waves"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Weight of the newest iteration in the running means: the last few iterations decide.
NEWEST = 0.3
#: Weight of an observation of scaling that is one epoch older: other thread counts come rarely.
MEMORY = 0.98
#: Observations that the scaling of other jobs is worth to each one.
PRIOR = 0.5
#: Observations of linear scaling with which the first jobs start, and those kept of gone jobs.
FIRST, KEPT = 2.0, 100.0
#: Ratio of thread counts from which on a job's times say something of its scaling.
SPREAD = 1.5
#: Relative error below which linear scaling is good enough, and what noise is taken for granted.
GOOD, NOISE = 0.1, 0.1
#: Observations that the noise taken for granted counts for.
NOISE_WEIGHT = 4.0
#: Noise variances by which Ernest's law must explain more: three more terms, looked at often.
CLEARLY = 20.0
#: Factor beyond the fewest and the most threads tried up to which a law is taken to hold.
GROWTH = 2.0
#: Waves; a thread count that is an average is whole but for rounding.
ROUNDING = 1e-9
#: Where in the moments are the sums of 1/N over seconds: squared, and times 1; and their number.
_SQUARED, _ONCE, _COUNT = 5, 8, 14


class Runtimes(Rows):
    """What was seen of the iterations of all jobs; a row is one job.

    Columns to read: ``work``, core-seconds of one iteration, 0 until one was seen from report to
    report; ``width``, tasks of one iteration that run in parallel, at least 1; ``attained``,
    core-seconds charged so far; ``most``, the most threads an iteration had on average;
    ``scaled``, whether Ernest's law holds for the job.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        super().__init__(
            {
                "work": number,
                "width": ((), np.float64, 1.0),
                "attained": number,
                "reports": ((), np.int64, 0),
                # Since the last report.
                "charged": number,
                "at_once": number,
                # Threads now, whether it is served at all, and seconds so far in which it was.
                "share": number,
                "served": number,
                "held": number,
                "held_at_report": number,
                # Whole iterations since they were last learned from.
                "iterations": number,
                "core_seconds": number,
                "held_seconds": number,
                "most_share": number,
                # What was learned.
                "least": ((), np.float64, np.inf),
                "most": number,
                "sums": ((15,), np.float64, 0.0),
                "wave_sums": ((2,), np.float64, 0.0),
                "law": ((scaling.N_TERMS,), np.float64, 0.0),
                "scaled": ((), np.bool_, 0.0),
            }
        )
        threads = np.array([1.0, 2.0, 4.0])  # more would deny what is seen on many
        linear = scaling.moments(threads, 1.0 / threads)
        self._gone: FloatArray = linear.mean(axis=0) * FIRST
        self._shape: FloatArray = scaling.LINEAR
        self._pool: FloatArray = self._gone

    def observe_task(self, row: int, seconds: float, at_once: float = 1.0) -> None:
        """Charge one task: its compute ``seconds``, and how many of the job's tasks that are
        worth a slot were ready or running with it."""
        column = self.column
        column["attained"][row] += seconds
        column["charged"][row] += seconds
        if at_once > column["at_once"][row]:
            column["at_once"][row] = at_once

    def observe_iteration(self, row: int, elapsed: float = 0.0) -> None:
        """End one iteration, `elapsed` seconds after the last `advance`.

        What was charged since the last report is its work. The first interval also holds start-up
        (imports, compilation, data loading), so it only counts until a second one is known.
        """
        column = self.column
        reports = column["reports"].item(row) + 1
        column["reports"][row] = reports
        charged = column["charged"].item(row)
        held = column["held"].item(row) + column["served"].item(row) * elapsed
        if charged > 0.0:
            work = column["work"].item(row)
            known = work > 0.0 and reports > 2
            column["work"][row] = work + NEWEST * (charged - work) if known else charged
            if reports > 1:
                column["iterations"][row] += 1.0
                column["core_seconds"][row] += charged
                column["held_seconds"][row] += held - column["held_at_report"].item(row)
            column["charged"][row] = 0.0
        column["held_at_report"][row] = held
        at_once = column["at_once"].item(row)
        if at_once:
            # Wide at once, narrow slowly: a barrier's last task must not shrink the estimate.
            width = column["width"].item(row)
            column["width"][row] = max(at_once, width + NEWEST * (at_once - width), 1.0)
            column["at_once"][row] = 0.0

    def advance(self, rows: IntArray, elapsed: float) -> None:
        """Let `elapsed` seconds go by with the threads that jobs hold."""
        self.column["held"][rows] += self.column["served"][rows] * elapsed

    def grant(self, rows: IntArray, share: FloatArray, tokens: FloatArray) -> None:
        """Jobs hold so many threads from now on, and are served so many core-seconds anyway."""
        column = self.column
        column["share"][rows] = share
        column["served"][rows] = (share > 0) | (tokens > 0)
        column["most_share"][rows] = np.maximum(column["most_share"][rows], share)

    def forget(self, row: int) -> None:
        """Release the row of a job that is gone; how it scaled stays known of its kind."""
        at = np.array([row])
        if self._says_something(at)[0]:
            sums = self.column["sums"][at]
            own = scaling.rescaled(sums, scaling.scale_of(sums, self._shape))[0]
            gone = self._gone + own
            self._gone = gone * min(1.0, KEPT / gone[_COUNT])
        self.release(row)

    def learn(self, rows: IntArray) -> None:
        """Learn from the iterations that `rows` ended since the last call."""
        new = rows[self.column["iterations"][rows] > 0]
        if not len(new):
            return
        new = self._observe(new)
        before = self._shape
        self._learn_population(rows)
        if not np.array_equal(before, self._shape):
            new = rows  # all of them look different now
        self._judge(new)

    def speeds(self, rows: IntArray) -> Speeds:
        """How fast jobs iterate, by what is known now."""
        column = self.column
        work, width = column["work"][rows], column["width"][rows]
        scaled = np.flatnonzero(column["scaled"][rows] & (work > 0))
        mine = rows[scaled]
        law = column["law"][mine]
        least = np.maximum(column["least"][mine] / GROWTH, 1.0)
        most = np.minimum(np.maximum(column["most"][mine] * GROWTH, 1.0), width[scaled])
        useful = width.copy()
        useful[scaled] = np.maximum(np.minimum(np.floor(scaling.optimum(law)), most), least)
        return Speeds(work, width, useful, scaled, law, least)

    def _observe(self, rows: IntArray) -> IntArray:
        """Take in the iterations since the last call as one observation; the rows that had one."""
        column = self.column
        core, held = column["core_seconds"][rows], column["held_seconds"][rows]
        most = np.maximum(column["most_share"][rows], column["width"][rows])
        seconds = core / column["iterations"][rows]
        for name in ("iterations", "core_seconds", "held_seconds"):
            column[name][rows] = 0.0
        column["most_share"][rows] = column["share"][rows]
        seen = (held > 0) & (seconds > np.finfo(float).tiny)
        rows, seconds = rows[seen], seconds[seen]
        threads = np.clip(core[seen] / held[seen], 1.0, np.maximum(most[seen], 1.0))
        seconds = seconds / threads
        column["least"][rows] = np.minimum(column["least"][rows], threads)
        column["most"][rows] = np.maximum(column["most"][rows], threads)
        column["sums"][rows] = MEMORY * column["sums"][rows] + scaling.moments(threads, seconds)
        width = column["width"][rows]
        wave = waves(width, threads) / (width * seconds)
        both = np.stack([wave * wave, wave], axis=1)
        column["wave_sums"][rows] = MEMORY * column["wave_sums"][rows] + both
        return rows

    def _says_something(self, rows: IntArray) -> BoolArray:
        column = self.column
        said: BoolArray = column["most"][rows] >= SPREAD * column["least"][rows]
        return said

    def _learn_population(self, rows: IntArray) -> None:
        """Fit the common shape to the jobs that were seen on several thread counts."""
        telling = self.column["sums"][rows[self._says_something(rows)]]
        own = scaling.rescaled(telling, scaling.scale_of(telling, self._shape))
        self._pool = self._gone + own.sum(axis=0)
        pool = self._pool[None, :]
        gram, right, count = scaling.square(pool)
        law = scaling.nnls(gram, right)
        plain = scaling.LINEAR[None, :] * scaling.scale_of(pool, scaling.LINEAR)[:, None]
        error = scaling.residual(pool, plain), scaling.residual(pool, law)
        one = law[0, 0] + law[0, 1] + law[0, 3]
        nonlinear = _clearly_better(*error, count)[0] and one > 0
        self._shape = law[0] / one if nonlinear else scaling.LINEAR

    def _judge(self, rows: IntArray) -> None:
        """Choose each job's form: the simplest that its own times and the others' support."""
        column = self.column
        sums, waved = column["sums"][rows], column["wave_sums"][rows]
        count = sums[:, _COUNT]
        simple = np.minimum(
            _error_of_one_term(sums[:, _SQUARED], sums[:, _ONCE], count),
            _error_of_one_term(waved[:, 0], waved[:, 1], count),
        )
        common = self._shape is not scaling.LINEAR
        open_ = (count > 0) & ((simple > GOOD**2 * count) | common)
        column["scaled"][rows[~open_]] = False
        rows, sums, simple, count = rows[open_], sums[open_], simple[open_], count[open_]
        if not len(rows):
            return
        law = self._with_prior(sums)
        error = scaling.residual(sums, law)
        column["law"][rows] = law
        scaled = _clearly_better(simple, error, count)
        if common:
            scaled |= ~_clearly_better(error, simple, count)
        column["scaled"][rows] = scaled & (law.max(axis=1) > 0)

    def _with_prior(self, sums: FloatArray) -> FloatArray:
        """Laws (n, 4) by the jobs' own moments and a little of the population's."""
        unit = scaling.scale_of(sums, self._shape)
        others = self._pool[None, :] * (PRIOR / self._pool[_COUNT])
        gram, right, _ = scaling.square(sums + scaling.rescaled(others, 1.0 / unit))
        return scaling.nnls(gram, right)


@dataclass(frozen=True)
class Speeds:
    """How fast jobs iterate on threads. Arrays are (n_jobs,).

    Attributes
    ----------
    work : array
        Core-seconds of one iteration, 0 where not yet known.
    width : array
        Parallel tasks of one iteration, at least 1.
    useful : array
        Threads beyond which a job is not said to be faster, at least 1.
    scaled : (n_scaled,) array of int
        Jobs for which Ernest's law holds.
    law : (n_scaled, 4) array
        Their laws.
    least : (n_scaled,) array
        Threads up to which they are taken to scale linearly, at least 1: the law is known from
        there on only.
    """

    work: FloatArray
    width: FloatArray
    useful: FloatArray
    scaled: IntArray
    law: FloatArray
    least: FloatArray

    def __call__(self, threads: FloatArray) -> FloatArray:
        """Iterations a second on `threads` (n_jobs,), possibly fractional (time-shared).

        Nondecreasing and concave; 0 where the work is not known. Slots are filled task by task
        and lent at barriers, so a fraction of a wave is not lost: the upper hull of the wave
        counts, which is the straight line up to `width`.
        """
        threads = np.minimum(threads, self.useful)
        speed = np.divide(threads, self.work, out=np.zeros_like(threads), where=self.work > 0)
        if len(self.scaled):
            some = threads[self.scaled]
            seconds = scaling.fitted_seconds(self.law, np.maximum(some, self.least))
            speed[self.scaled] = np.minimum(some / self.least, 1.0) / seconds
        return speed

    def fewest(self, threads: FloatArray) -> FloatArray:
        """The fewest threads (n_jobs,) on which an iteration takes as many waves as on `threads`;
        inf where no waves were seen."""
        least: FloatArray = np.ceil(self.width / waves(self.width, threads))
        least[self.scaled] = np.inf
        return least

    def core_seconds(self, threads: FloatArray) -> FloatArray:
        """Core-seconds of one iteration on `threads` (n_jobs,); 0 where not known."""
        cost = self.work.copy()
        if len(self.scaled):
            n = np.clip(threads[self.scaled], self.least, self.useful[self.scaled])
            cost[self.scaled] = n * scaling.fitted_seconds(self.law, n)
        return cost


def waves(width: ArrayLike, threads: ArrayLike) -> FloatArray:
    """Waves in which one iteration runs on whole threads: ``ceil(P / N)``.

    Examples
    --------
    >>> waves([8, 8, 8], [8, 7, 3]).tolist()
    [1.0, 2.0, 3.0]
    """
    each = np.asarray(width, float) / np.maximum(np.asarray(threads, float), 1.0)
    value: FloatArray = np.ceil(each - ROUNDING)
    return value


def _error_of_one_term(squared: FloatArray, once: FloatArray, count: FloatArray) -> FloatArray:
    """Sum of squared relative errors (n,) that the best multiple of one term leaves."""
    explained = np.divide(once * once, squared, out=np.zeros_like(once), where=squared > 0)
    left: FloatArray = np.maximum(count - explained, 0.0)
    return left


def _clearly_better(error: FloatArray, other: FloatArray, count: FloatArray) -> BoolArray:
    """Whether `other` (n,) leaves so much less of `count` squared errors that it is no chance."""
    noise = NOISE_WEIGHT * NOISE**2 + np.minimum(error, other)
    variance = noise / (NOISE_WEIGHT + np.maximum(count - 2.0, 0.0))
    better: BoolArray = error - other > np.maximum(CLEARLY * variance, GOOD**2 * count)
    return better
