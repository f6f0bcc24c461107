"""Runtime model: iterations that jobs complete on N threads, learned from observations."""

from __future__ import annotations

import math

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray, JobArrays
from dask_slaq.core.jobs.reports import is_usable, next_iteration, next_stride
from dask_slaq.core.run_history import ExpectedTime
from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.core.runtime.ernest import ERROR_PART, Population, clearly_better
from dask_slaq.core.runtime.job_speeds import Speeds, waves

#: Weight of the newest iteration in running means, which are thus dominated by the last few.
NEWEST_PART = 0.3
#: Factor per observation on the weight of older ones; near 1, since thread counts rarely change.
KEPT_PART = 0.98
#: Factor beyond the fewest and the most threads tried up to which a job's optimum is trusted.
GROWTH_FACTOR = 1.5
#: Index of the count in the moments.
_COUNT = 14
#: Columns that are reset when the second interval between reports replaces the first one.
OF_START_UP = (
    *("iterations", "core_seconds", "held_seconds"),
    *("least", "most", "sums", "wave_sums", "log_sums"),
)


class Runtimes(JobArrays):
    """Observed iterations of all jobs, and the laws learned from them, one row per job.

    One iteration of a job costs ``W = c.S`` core-seconds (§4.2.1 of the paper) and runs as ``P``
    parallel tasks, in ``ceil(P / N)`` waves on N threads. If the times of a job or of the other
    jobs clearly contradict this model, the job follows Ernest's law instead (see `ernest`). A job
    that waits for threads is not slow: only seconds in which it held threads count.

    An iteration here ends with a report. If reports number their iterations, it may be several.

    Columns that are always up to date: ``reports``, ``step``, ``missed``, ``stride`` and the last
    ``loss``; ``attained``, core-seconds charged so far. As of the last `observe_iterations`:
    ``work``, core-seconds of one iteration, 0 if unknown; ``width``, parallel tasks of one
    iteration, at least 1. As of the last `learn`: ``most``, the most threads that iterations had on
    average; ``scaled``, whether the job follows Ernest's law.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        super().__init__(
            {
                "work": number,
                "width": ((), np.float64, 1.0),
                "attained": number,
                "reports": ((), np.int64, 0),
                "step": ((), np.int64, 0),  # iterations so far: reports, or as these are numbered
                "missed": ((), np.int64, 0),  # last reports without a usable loss
                "loss": ((), np.float64, np.nan),  # the last usable one, raw
                # Usable reports, the step of the last one, and the mean steps between two.
                "usable": ((), np.int64, 0),
                "usable_step": ((), np.int64, 0),
                "stride": ((), np.float64, 1.0),
                "taken_in": ((), np.int64, 0),  # reports processed by `observe_iterations`
                # Since the last report.
                "charged": number,
                "at_once": number,
                # Threads now, whether the job is served, and seconds so far in which it was.
                "share": number,
                "served": number,
                "held": number,
                "held_at_report": number,
                # Whole iterations since the last `learn`.
                "iterations": number,
                "core_seconds": number,
                "held_seconds": number,
                "most_share": number,
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
            }
        )
        self._population = Population()
        # Three numbers per iteration in one flat list: tuples would burden the garbage collector.
        self._ended: list[float] = []

    def observe_task(self, row: int, seconds: float, at_once: float = 1.0) -> None:
        """Charge one task, one of `at_once`, of `seconds` to the job in a `row`."""
        column = self.column
        column["attained"][row] += seconds
        column["charged"][row] += seconds
        if at_once > column["at_once"][row]:
            column["at_once"][row] = at_once

    def end_iteration(
        self, row: int, elapsed: float = 0.0, loss: float = np.nan, step: int | None = None
    ) -> None:
        """Record the end of an iteration `elapsed` seconds after the last `advance`."""
        column = self.column
        self._ended += (row, elapsed, column["charged"].item(row))
        column["reports"][row] += 1
        column["step"][row] = now = next_iteration(column["step"].item(row), step)
        if is_usable(loss):
            if usable := column["usable"].item(row):
                gap = now - column["usable_step"].item(row)
                column["stride"][row] = next_stride(column["stride"].item(row), usable, gap)
            column["usable"][row], column["usable_step"][row] = usable + 1, now
            column["loss"][row], column["missed"][row] = loss, 0
        else:
            column["missed"][row] += 1
        if len(self._ended) >= 3 * 100_000:  # iterations, of three numbers each
            self.observe_iterations()

    def observe_iterations(self) -> None:
        """Process the iterations that ended since the last call, all together.

        Read-only methods must not call this: the result depends on which are processed together.
        The first interval includes start-up, so it counts only until another one is known.
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
        # Widen at once, narrow slowly: the last task before a barrier must not shrink the estimate.
        wider = np.maximum(np.maximum(at_once, width + NEWEST_PART * (at_once - width)), 1.0)
        column["width"][rows] = np.where(at_once > 0, wider, width)
        column["at_once"][rows] = 0.0

    def _observe_work(
        self, rows: IntArray, n: IntArray, lasted: FloatArray, charged: FloatArray
    ) -> None:
        """Update the work per iteration from `n` iterations, which took `lasted` served seconds."""
        column = self.column
        some = charged > 0.0
        rows, n, lasted, charged = rows[some], n[some], lasted[some], charged[some]
        work = column["work"][rows]
        known = (work > 0.0) & (column["taken_in"][rows] >= 2)
        for name in OF_START_UP:
            column[name][rows[~known]] = self._fill[name]
        one = charged / n
        later = work + (1.0 - (1.0 - NEWEST_PART) ** n) * (one - work)
        column["work"][rows] = np.where(known, later, one)
        column["iterations"][rows] += n
        column["core_seconds"][rows] += charged
        column["held_seconds"][rows] += lasted

    def advance(self, rows: IntArray, elapsed: float) -> None:
        """Add `elapsed` seconds with the present grants to the served time of `rows`."""
        self.column["held"][rows] += self.column["served"][rows] * elapsed

    def grant(self, rows: IntArray, share: FloatArray, tokens: FloatArray) -> None:
        """Set `share` and `tokens` (n_jobs,) that the jobs in `rows` hold from now on."""
        column = self.column
        column["share"][rows] = share
        column["served"][rows] = (share > 0) | (tokens > 0)
        column["most_share"][rows] = np.maximum(column["most_share"][rows], share)

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
        # From so many observations on, the model of a job is chosen anew only every `seldom`
        # observations.
        young, seldom = 12.0, 4
        if self._population.nonlinear == before:
            due = self.column["unjudged"][new] >= seldom
            changed = new[due | (self.column["sums"][new, _COUNT] < young)]
        self.column["unjudged"][changed] = 0
        for some in _chunks(changed):
            self._judge(some)

    def speeds(self, rows: IntArray) -> Speeds:
        """Return the speeds of jobs; of new ones as of past runs, or else of the others."""
        column = self.column
        work, width = self._work(rows), column["width"][rows]
        new = work == 0
        past = new & (column["past_work"][rows] > 0)
        if new.any() and not new.all():
            work[new], width[new] = np.exp(np.log(work[~new]).mean()), np.median(width[~new])
        work[past] = column["past_work"][rows[past]]
        width[past] = np.maximum(column["past_width"][rows[past]], 1.0)
        useful = np.where(new, np.inf, width)
        unseen = (column["sums"][rows, _COUNT] == 0) & ~past
        useful[unseen] = np.minimum(useful[unseen], self._population.first())
        lawful = column["scaled"][rows] & ~new
        lawful[past] = column["past_law"][rows[past]].any(axis=1)
        scaled = np.flatnonzero(lawful)
        mine, by_past = rows[scaled], past[scaled]
        law = np.where(by_past[:, None], column["past_law"][mine], column["law"][mine])
        most = np.where(by_past, np.inf, self._trusted(mine))
        best = np.minimum(np.minimum(scaling.optimum(law), most), width[scaled])
        useful[scaled] = np.maximum(np.floor(best), 1.0)
        return Speeds(work, width, useful, scaled, law)

    def _work(self, rows: IntArray) -> FloatArray:
        """Return the core-seconds (n,) of one iteration, 0 if unknown.

        The running mean may rest on a single short interval, and the iteration that runs may take
        longer than any before: then that is what one takes.
        """
        column = self.column
        work, reports = column["work"][rows], column["reports"][rows]
        # Reports below which a job has few, and fraction of its mean work per report so far, with
        # its start-up, that it is then expected to take per iteration at least.
        n_few, few_mean = 5, 0.7
        so_far = few_mean * column["attained"][rows] / np.maximum(reports, 1)
        few = np.where(reports < n_few, so_far, 0.0)
        return np.where(work > 0, np.maximum(np.maximum(work, column["charged"][rows]), few), 0.0)

    def expect(self, row: int, past: ExpectedTime) -> None:
        """Expect iterations of the job in a `row` to take as long as `past` ones of its kind."""
        column = self.column
        column["past_work"][row], column["past_width"][row] = past.work, past.width
        column["past_law"][row] = 0.0 if past.law is None else past.law

    def _observe(self, rows: IntArray) -> IntArray:
        """Record one observation per job since the last call. Returns the rows that had one."""
        column = self.column
        core, held = column["core_seconds"][rows], column["held_seconds"][rows]
        most = np.maximum(column["most_share"][rows], column["width"][rows])
        seconds = core / column["iterations"][rows]
        for name in ("iterations", "core_seconds", "held_seconds"):
            column[name][rows] = 0.0
        column["most_share"][rows] = column["share"][rows]
        # Seconds; shorter iterations are ignored.
        seen = (held > 0) & (seconds > 1e-9)
        rows, seconds = rows[seen], seconds[seen]
        threads = np.clip(core[seen] / held[seen], 1.0, np.maximum(most[seen], 1.0))
        seconds = seconds / threads
        column["least"][rows] = np.minimum(column["least"][rows], threads)
        column["most"][rows] = np.maximum(column["most"][rows], threads)
        column["sums"][rows] = KEPT_PART * column["sums"][rows] + scaling.moments(threads, seconds)
        width = column["width"][rows]
        wave = waves(width, threads) / (width * seconds)
        log = np.log(threads)
        for name, value in (("wave_sums", wave), ("log_sums", log)):
            for sums, term in zip(column[name].T, (value * value, value), strict=True):
                sums[rows] = KEPT_PART * sums[rows] + term
        return rows

    def _optima(self, rows: IntArray) -> FloatArray:
        """Return the fastest thread counts of the jobs in `rows` that follow Ernest's law."""
        rows = rows[self.column["scaled"][rows]]
        return np.minimum(scaling.optimum(self.column["law"][rows]), self._trusted(rows))

    def _trusted(self, rows: IntArray) -> FloatArray:
        """Return the thread counts up to which the laws of the jobs in `rows` are trusted."""
        return np.maximum(self.column["most"][rows] * GROWTH_FACTOR, 1.0)

    def _telling(self, rows: IntArray) -> BoolArray:
        """Return which jobs were recently observed on clearly different thread counts."""
        count = self.column["sums"][rows, _COUNT]
        squares, logs = (sums[rows] for sums in self.column["log_sums"].T)
        # Standard deviation of the logs of the counts for which the scaling is identifiable.
        return squares * count - logs * logs > (0.2 * count) ** 2

    def _judge(self, rows: IntArray) -> None:
        """Choose the simplest model that the times of each job and of the others support."""
        column = self.column
        sums, waved = column["sums"][rows], column["wave_sums"][rows]
        count = sums[:, _COUNT]
        # The sum of squares of 1/N over seconds, and its sum.
        simple = np.minimum(
            _error_of_one_term(sums[:, 5], sums[:, 8], count),
            _error_of_one_term(waved[:, 0], waved[:, 1], count),
        )
        open_ = (count > 0) & ((simple > ERROR_PART**2 * count) | self._population.nonlinear)
        column["scaled"][rows[~open_]] = False
        if open_.any():
            rows, sums, simple, count = rows[open_], sums[open_], simple[open_], count[open_]
            law = self._population.laws(sums)
            error = scaling.residual(sums, law)
            least = column["least"][rows]
            law = scaling.bounded(
                law, np.minimum(least, self._population.optimum()) / GROWTH_FACTOR, least
            )
            scaled = clearly_better(simple, error, count)
            if self._population.nonlinear:
                scaled |= ~clearly_better(error, simple, count)
            column["law"][rows] = law
            column["scaled"][rows] = scaled


def _chunks(rows: IntArray) -> list[IntArray]:
    # Jobs processed together: their arrays fit in a processor's cache.
    chunk = 2048
    return [rows[start : start + chunk] for start in range(0, len(rows), chunk)]


def _error_of_one_term(squared: FloatArray, once: FloatArray, count: FloatArray) -> FloatArray:
    """Return the sum of squared relative errors (n,) that the best multiple of one term leaves."""
    explained = np.divide(once * once, squared, out=np.zeros_like(once), where=squared > 0)
    return np.maximum(count - explained, 0.0)
