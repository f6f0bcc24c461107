"""Batched loss predictor: bounded memory per job, one fit for all jobs that reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan

import numpy as np

from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.forecast.cache import ForecastCache
from dask_slaq.core.forecast.corrections import unchanged
from dask_slaq.core.forecast.experts.basis import Ensemble
from dask_slaq.core.forecast.experts.gating import Backtest, blend, gate, trained
from dask_slaq.core.forecast.from_past_runs import FromPastRuns
from dask_slaq.core.forecast.history import Histories, NormalizedWindow, normalize_window
from dask_slaq.core.forecast.intervals import AT, ON_TEST, Bands
from dask_slaq.core.forecast.types import HORIZONS, Forecast, Predictor
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.jobs.reports import MAX_LOSS, is_usable
from dask_slaq.core.run_history import Kind, PastRuns

#: Reports kept per job.
WINDOW_REPORTS = 32
ALLOWED = f"it must be a finite number between -{MAX_LOSS:g} and {MAX_LOSS:g}"
#: Jobs processed together outside of fits, which bounds the memory for temporary arrays.
MOST_JOBS = 4096
#: Maximum number of refits per decision, or one per this many jobs if that is more. The jobs of
#: highest priority are fitted and the other forecasts rolled forward, to bound a decision's time.
MOST_FITS, JOBS_PER_FIT = 256, 16


def _batches(rows: IntArray, size: int) -> Iterator[IntArray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


class LossPredictor:
    """Default loss predictor: a weighted ensemble of experts per job. See `Predictor`.

    Several experts forecast each curve. A gating network weights them by the accuracy of their
    earlier forecasts and by features of the curve. With a `past_runs`, jobs are also compared with
    past runs of like kind. Memory is bounded: only the newest reports, the first loss, extremes and
    coarse means of a run are kept.

    Rule 1: predictions change only in `fit`; `report` stores the loss and does nothing else. Of a
    `Forecast`, only `start` and `largest_change` may already include reports after the last fit.
    Rule 2: a failed fit is marked by a status, not by nan.
    Rule 3: scaling the losses of a job changes only the units of its forecast. Adding a constant
    shifts the forecast, unless the losses were never negative: these are assumed to be bounded by
    zero.
    """

    def __init__(self, past_runs: PastRuns | None = None) -> None:
        self._row: dict[str, int] = {}
        self._asked: tuple[tuple[str, ...], IntArray] | None = None
        # Row and loss of each report in one flat list: cheapest to extend and to convert.
        self._new: list[float] = []
        self._history = Histories(WINDOW_REPORTS)
        self._cache = ForecastCache()
        self._bands = Bands()
        self._past_runs = None if past_runs is None else FromPastRuns(past_runs, self._cache)
        self._experts = Ensemble(WINDOW_REPORTS, self._history.n_means)
        self._backtest = Backtest(self._experts.noise_cost)
        self._gate = trained()

    def add(self, job: str, *, target: float | None = None, kind: Kind | None = None) -> None:
        """Follow `job`, whose target is the asymptote while its curve is too short."""
        if job in self._row:
            raise DuplicateJob(f"job {job!r} is running already; each job needs its own name")
        _check_target(job, target)
        row = self._history.acquire()
        # All tables acquire and release rows together, so a job has the same row in each.
        for table in (self._backtest, self._cache, self._bands):
            table.acquire()
        self._cache.column["target"][row] = np.nan if target is None else target
        self._row[job] = row
        self._asked = None
        if self._past_runs is not None and kind is not None:
            self._cache.expect(row, self._past_runs.add(row, kind))

    def set_target(self, job: str, target: float) -> None:
        """Change the target of `job`."""
        _check_target(job, target)
        self._cache.column["target"][self._find(job)] = target

    def remove(self, job: str) -> None:
        """Forget `job`. See `Predictor.remove`."""
        row = self._find(job)
        del self._row[job]
        self._asked = None
        self._take_in()
        self._cache.column["reported"][row] = False
        if self._past_runs is not None:
            self._past_runs.remove(row)
        for table in (self._history, self._backtest, self._cache, self._bands):
            table.release(row)

    def report(self, job: str, loss: float) -> None:
        """Store the loss of the next iteration of `job`. See `Predictor.report`."""
        row = self._find(job)
        try:
            value = float(loss)
        except (TypeError, ValueError, OverflowError):
            value = nan
        if not is_usable(value):
            raise NonFiniteLoss(f"job {job!r} reported the loss {loss!r}; {ALLOWED}")
        self._new += (row, value)
        if len(self._new) >= 2 * 100_000:  # reports, of two numbers each
            self._take_in()

    def fit(self) -> int:
        """Update the forecasts of all jobs that reported. Returns the number of jobs refitted."""
        self._take_in()
        rows = np.flatnonzero(self._cache.column["reported"])
        due = self._due(rows)
        for some in _batches(rows[~due], MOST_JOBS):
            self._cache.roll_forward(some, self._history)
        # Jobs fitted together: their arrays fit in a processor's cache.
        for some in _batches(rows[due], 512):
            self._fit(some)
        now = self._cache.column
        for some in _batches(rows, MOST_JOBS):
            fall = now["reduction"][some[:, None], ON_TEST]
            self._bands.test(some, now["level"][some], fall, now["total"][some])
        now["reported"][rows] = False
        return int(due.sum())

    def _due(self, rows: IntArray) -> BoolArray:
        """Return which jobs are refitted now, and test the widths of intervals by the way."""
        refit_priority = np.empty(len(rows))
        for some in _batches(np.arange(len(rows)), MOST_JOBS):
            self._bands.learn(rows[some], self._history)
            refit_priority[some] = self._cache.refit_priority(rows[some], self._history)
        due: BoolArray = refit_priority >= 1.0
        most = max(MOST_FITS, len(self._row) // JOBS_PER_FIT)
        over = len(rows) - most
        if due.sum() > most:
            due[np.argpartition(refit_priority, over)[:over]] = False
            due[np.isinf(refit_priority)] = True
        return due

    def _fit(self, rows: IntArray) -> None:
        """Fit the jobs of some rows together, and store their forecasts."""
        view, curves = self._weigh(rows)
        self._backtest.remember(rows, view, curves)
        mix = gate(self._gate, view, curves, self._backtest.log_weights(rows))
        mixed = blend(curves, mix, view.zero)
        self._cache.store(rows, view, self._history, mixed)
        if self._past_runs is not None:
            self._past_runs.mix(rows)
        ahead = (curves[:, :, 1 + AT] - curves[:, :, :1]) - (mixed[:, 1 + AT] - mixed[:, :1])
        spread = np.sqrt((mix.weight.T[:, :, None] * ahead**2).sum(axis=0))
        self._bands.store(rows, view, spread, mixed[:, 1 + AT])

    def _weigh(self, rows: IntArray) -> tuple[NormalizedWindow, FloatArray]:
        """Return normalized windows and experts' forecasts, also backcasts to be scored."""
        back = self._backtest.behind(rows, self._history.column["count"][rows])
        some = np.flatnonzero(back)
        again = rows[some]
        now, then = slice(len(rows)), slice(len(rows), None)
        both = normalize_window(
            self._history,
            np.concatenate([rows, again]),
            np.concatenate([np.zeros_like(back), back[some]]),
        )
        curves, view = self._experts.ask(both), both.of(now)
        self._backtest.score(rows, view)
        if len(again):
            self._backtest.remember(again, both.of(then), curves[:, then])
            self._backtest.score(again, view.of(some))
        return view, np.ascontiguousarray(curves[:, now])

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of `jobs` as of the last fit. See `Predictor.forecast`."""
        rows = self._rows_of(jobs)
        history, cache = self._history.column, self._cache.column
        return Forecast(
            horizons=HORIZONS,
            reduction=cache["reduction"][rows],
            start=history["first"][rows],
            level=cache["level"][rows],
            remaining=cache["remaining"][rows],
            largest_change=history["largest"][rows],
            noise=cache["noise"][rows],
            n_reports=cache["total"][rows],
            status=cache["status"][rows],
        )

    def band(self, jobs: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """Return 80 % intervals of the losses of `jobs`: two arrays (n_jobs, n_horizons), raw."""
        rows = self._rows_of(jobs)
        cache, history = self._cache.column, self._history.column
        level = cache["level"][rows]
        lower, upper = self._bands.bounds(rows, level, cache["reduction"][rows])
        same = np.flatnonzero((history["largest"][rows] == 0) & (history["count"][rows] > 0))
        if len(same):
            width = unchanged(level[same], history["count"][rows[same]])
            lower[same] = np.fmin(lower[same], level[same, None] - width)
            upper[same] = np.fmax(upper[same], level[same, None] + width)
        bounded, _ = self._history.bounds(rows)
        bounded &= (level != 0) | (history["largest"][rows] > 0)  # 0 alone has no sign
        lower[bounded] = np.fmax(lower[bounded], 0.0)
        return lower, upper

    def set_kind(self, job: str, kind: Kind) -> None:
        """Compare `job` with past runs of a kind, if it has not made more reports than are kept."""
        row = self._find(job)
        if self._past_runs is None:
            return
        self._take_in()
        history = self._history.column
        count = history["count"].item(row)
        if count > WINDOW_REPORTS:
            return
        self._past_runs.remove(row)
        fall = self._past_runs.add(row, kind)
        if count:
            self._past_runs.append(np.full(count, row), history["ring"][row, :count])
        else:
            self._cache.expect(row, fall)

    def unbound(self, jobs: Sequence[str]) -> None:
        """Let losses of `jobs` fall below zero, as those of others like them do."""
        rows = self._rows_of(jobs)
        rows = rows[self._history.column["bounded"][rows]]
        self._history.column["bounded"][rows] = False
        self._cache.column["fitted"][rows] = 0  # so they are fitted anew
        self._cache.column["reported"][rows] |= self._history.column["count"][rows] > 0

    def likeness(self, job: str) -> int:
        """Return the number of past runs on which the forecast of `job` rests."""
        row = self._find(job)
        return 0 if self._past_runs is None else self._past_runs.likeness(row)

    def curve(self, job: str) -> tuple[IntArray, FloatArray] | None:
        """Return the thinned loss curve of `job` as in a `PastRun`; None without kind."""
        row = self._find(job)
        if self._past_runs is None:
            return None
        self._take_in()
        return self._past_runs.curve(row)

    def _take_in(self) -> None:
        """Move all waiting reports into the histories."""
        new = np.fromiter(self._new, np.float64, len(self._new))
        self._new.clear()
        rows, losses = new[::2].astype(np.int64), new[1::2]
        cut = self._history.append(rows, losses)
        if self._past_runs is not None:
            self._past_runs.append(rows, losses)
            first = self._history.column["first"]
            for row in cut.tolist():
                self._past_runs.cut(row, first.item(row))
        self._cache.column["reported"][rows] = True

    def _rows_of(self, jobs: Sequence[str]) -> IntArray:
        """Return the rows of `jobs`. The last tuple's are cached until a job comes or goes."""
        if self._asked is not None and jobs is self._asked[0]:
            return self._asked[1]
        rows = np.array([self._find(job) for job in jobs], dtype=np.int64)
        if isinstance(jobs, tuple):
            self._asked = (jobs, rows)
        return rows

    def _find(self, job: str) -> int:
        try:
            return self._row[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not running") from None


def _check_target(job: str, target: float | None) -> None:
    if target is not None and not abs(target) <= MAX_LOSS:
        raise NonFiniteLoss(f"the target of job {job!r} is {target!r}; {ALLOWED}")


def predictor_named(name: str | None, past_runs: PastRuns | None) -> Predictor:
    """Return a new predictor: the default for None, or "paper"."""
    if name is None:
        return LossPredictor(past_runs)
    if name != "paper":
        raise InvalidSetting(f"predictor must be paper or None, not {name!r}")
    from dask_slaq.core.forecast.paper import PaperPredictor  # few schedulers use it

    return PaperPredictor()
