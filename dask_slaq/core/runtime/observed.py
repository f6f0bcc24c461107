"""Runtime model: how many iterations jobs complete on N threads, learned from what they did.

One iteration of a job costs ``W = c.S`` core-seconds (§4.1 of the paper) and runs as ``P``
parallel tasks, in ``ceil(P / N)`` waves on N threads. That is the model until a job's own times
or the other jobs' clearly speak against it; then it is Ernest's law (`scaling`).

Rule 1: a job that waits for threads is not slow. Seconds are counted while it held some.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.rows import Rows
from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.core.runtime.prior import GOOD, Population, clearly_better
from dask_slaq.core.runtime.speed import Speeds, waves

__all__ = ["Runtimes"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Weight of the newest iteration in the running means: the last few iterations decide.
NEWEST = 0.3
#: Weight of an observation of scaling that is one epoch older: other thread counts come rarely.
MEMORY = 0.98
#: Standard deviation of the log of thread counts from which on a job's times tell how it scales.
SPREAD = 0.2
#: Factor beyond the fewest and the most threads tried up to which a job's optimum is believed.
GROWTH = 1.5
#: Seconds; nothing is learned from iterations that take less.
SHORTEST = 1e-9
#: What is forgotten with the first interval, when the second is known.
_SEEN = (
    "iterations", "core_seconds", "held_seconds", "least", "most", "sums", "wave_sums", "log_sums",
)  # fmt: skip
#: A job with so many observations is judged anew at every so-many-th decision only.
YOUNG, SELDOM = 12.0, 4
#: Numbers that wait to be taken in, three an iteration; when there are more, it is done at once.
MOST_WAITING = 300_000
#: Jobs that are judged at once: what fits in a processor's cache.
CHUNK = 2048
#: Where in the moments are the sums of 1/N over seconds: squared, and times 1; and their number.
_SQUARED, _ONCE, _COUNT = 5, 8, 14


class Runtimes(Rows):
    """What was seen of the iterations of all jobs; a row is one job.

    Columns to read as of now: ``reports`` and the last ``loss``; ``attained``, core-seconds charged
    so far. As of the last `observe_iterations`: ``work``, core-seconds of one iteration, 0 until
    one was seen from report to report; ``width``, tasks of one iteration that run in parallel, at
    least 1; ``most``, the most threads an iteration had on average; ``scaled``, whether Ernest's
    law holds for the job.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        super().__init__(
            {
                "work": number,
                "width": ((), np.float64, 1.0),
                "attained": number,
                "reports": ((), np.int64, 0),
                "loss": ((), np.float64, np.nan),  # the last one, raw
                "taken_in": ((), np.int64, 0),  # reports that `observe_iterations` took in
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
                "unjudged": ((), np.int64, 0),  # observations since its form was chosen
                # What was learned.
                "least": ((), np.float64, np.inf),
                "most": number,
                "sums": ((15,), np.float64, 0.0),
                "wave_sums": ((2,), np.float64, 0.0),
                "log_sums": ((2,), np.float64, 0.0),
                "law": ((scaling.N_TERMS,), np.float64, 0.0),
                "scaled": ((), np.bool_, 0.0),
            }
        )
        # Three numbers an iteration in one flat list: tuples would busy the garbage collector.
        self._ended: list[float] = []
        self._population = Population()

    def observe_task(self, row: int, seconds: float, at_once: float = 1.0) -> None:
        """Charge one task: its compute ``seconds``, and how many of the job's tasks that are
        worth a slot were ready or running with it."""
        column = self.column
        column["attained"][row] += seconds
        column["charged"][row] += seconds
        if at_once > column["at_once"][row]:
            column["at_once"][row] = at_once

    def end_iteration(self, row: int, elapsed: float = 0.0, loss: float = np.nan) -> None:
        """Note that an iteration ended `elapsed` seconds after the last `advance`, with which
        `loss`. O(1)."""
        column = self.column
        self._ended += (row, elapsed, column["charged"].item(row))
        column["reports"][row] += 1
        column["loss"][row] = loss
        if len(self._ended) >= MOST_WAITING:
            self.observe_iterations()

    def observe_iterations(self) -> None:
        """Take in the iterations that ended, all at once.

        Notes
        -----
        Several at once count for something else than one after another. So nothing that only reads
        may call this, or looking at a job would change what is decided.
        What was charged since the last report is the work of those ended since. The first interval
        also holds start-up (imports, compilation, data loading), so it only counts until another
        one is known.
        """
        if not self._ended:
            return
        ended = np.fromiter(self._ended, np.float64, len(self._ended)).reshape(-1, 3)
        self._ended.clear()
        column = self.column
        ended = ended[np.argsort(ended[:, 0], kind="stable")]
        start = np.flatnonzero(np.diff(ended[:, 0], prepend=-1.0))
        n = np.diff(start, append=len(ended))
        rows, first, last = ended[start, 0], ended[start, 1:], ended[start + n - 1, 1:]
        rows = rows.astype(np.int64)
        served = column["served"][rows]
        held = column["held"][rows] + served * last[:, 0]
        lasted, charged = held - column["held_at_report"][rows], last[:, 1].copy()
        start_up = (column["taken_in"][rows] == 0) & (n > 1)
        lasted[start_up] = (served * (last - first)[:, 0])[start_up]
        charged[start_up] -= first[start_up, 1]
        column["held_at_report"][rows] = held
        column["charged"][rows] -= last[:, 1]
        self._observe_work(rows, np.where(start_up, n - 1, n), lasted, charged)
        column["taken_in"][rows] += n
        at_once, width = column["at_once"][rows], column["width"][rows]
        # Wide at once, narrow slowly: a barrier's last task must not shrink the estimate.
        wider = np.maximum(np.maximum(at_once, width + NEWEST * (at_once - width)), 1.0)
        column["width"][rows] = np.where(at_once > 0, wider, width)
        column["at_once"][rows] = 0.0

    def _observe_work(
        self, rows: IntArray, n: IntArray, lasted: FloatArray, charged: FloatArray
    ) -> None:
        """Share what was charged among the `n` iterations ended, which took so long."""
        column = self.column
        some = charged > 0.0
        rows, n, lasted, charged = rows[some], n[some], lasted[some], charged[some]
        work = column["work"][rows]
        known = (work > 0.0) & (column["taken_in"][rows] >= 2)
        for name in _SEEN:
            column[name][rows[~known]] = self._fill[name]
        one = charged / n
        later = work + (1.0 - (1.0 - NEWEST) ** n) * (one - work)
        column["work"][rows] = np.where(known, later, one)
        column["iterations"][rows] += n
        column["core_seconds"][rows] += charged
        column["held_seconds"][rows] += lasted

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
        self.observe_iterations()
        at = np.array([row])
        if self._telling(at)[0]:
            self._population.remember(self.column["sums"][at], self._optima(at))
        self.release(row)

    def learn(self, rows: IntArray) -> None:
        """Learn from the iterations that `rows` ended since the last call."""
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
        """How fast jobs iterate, by what is known now; a new one as the others usually do."""
        column = self.column
        work, width = column["work"][rows], column["width"][rows]
        new = work == 0
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

    def _observe(self, rows: IntArray) -> IntArray:
        """Take in the iterations since the last call as one observation; the rows that had one."""
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
        """Threads on which those of the jobs that do not scale linearly are fastest, as far as that
        is believed."""
        rows = rows[self.column["scaled"][rows]]
        most = self.column["most"][rows] * GROWTH
        return np.minimum(scaling.optimum(self.column["law"][rows]), np.maximum(most, 1.0))

    def _telling(self, rows: IntArray) -> BoolArray:
        """Whether jobs were seen of late on thread counts that differ."""
        count = self.column["sums"][rows, _COUNT]
        squares, logs = (sums[rows] for sums in self.column["log_sums"].T)
        telling: BoolArray = squares * count - logs * logs > (SPREAD * count) ** 2
        return telling

    def _judge(self, rows: IntArray) -> None:
        """Choose each job's form: the simplest that its own times and the others' support."""
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
    """Sum of squared relative errors (n,) that the best multiple of one term leaves."""
    explained = np.divide(once * once, squared, out=np.zeros_like(once), where=squared > 0)
    left: FloatArray = np.maximum(count - explained, 0.0)
    return left
