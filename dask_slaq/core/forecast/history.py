"""Bounded report histories of all jobs in shared arrays, one row per job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray, JobArrays

#: Reports among which a huge start is looked for, and reports that must follow it.
START_REPORTS, FOLLOWING_REPORTS = 16, 4
#: A start is huge if it exceeds the highest loss that followed by more than this many times the
#: range of what followed, and this many times its size. What fell to less than this part of it, or
#: no longer changes, has converged instead.
HUGE_RANGES, HUGE_SIZES, GONE_PART = 100.0, 10.0, 1e-3
#: Factor by which losses above zero have fallen from which on they are compared by their logs.
POWERS_FACTOR = 1e3


class Histories(JobArrays):
    """Newest reports, coarse means of the whole run and a few extremes of each job.

    A mean covers `stride` reports, which doubles when all means are in use. A huge start, as of a
    network before its first step, is cut down to what followed.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.n_means = window - window % 2
        self._cut: list[int] = []  # rows whose start was cut by the present call
        super().__init__(
            {
                "ring": ((window,), np.float64, np.nan),
                "count": ((), np.int32, 0),
                "first": ((), np.float64, np.nan),
                "lowest": ((), np.float64, np.inf),
                "bounded": ((), np.bool_, True),  # by zero, as far as is known of others like it
                "largest": ((), np.float64, 0.0),
                "means": ((self.n_means,), np.float64, 0.0),
                "filled": ((), np.int32, 0),
                "stride": ((), np.int32, 1),
                "partial": ((), np.float64, 0.0),
                "partial_count": ((), np.int32, 0),
            }
        )

    def append(self, rows: IntArray, losses: FloatArray) -> IntArray:
        """Append raw losses in order of arrival. Returns the rows whose start was cut."""
        self._cut.clear()
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        size = np.diff(first, append=len(ordered))
        rounds = int(size.max(initial=0))
        # Cost of a call of `_append`, and fixed cost of a call of `_append_run`, in units of the
        # cost of one report in `_append_run`, which is cheaper for many reports of few rows.
        most_at_once, row = 20, 7
        if most_at_once * rounds > len(rows) + row * len(first):
            for start, n in zip(first.tolist(), size.tolist(), strict=True):
                self._append_run(ordered.item(start), losses[order[start : start + n]])
            return np.array(self._cut, dtype=np.int64)
        for n in range(rounds):  # the first report of each row, the second, …
            at = order[first[size > n] + n]
            self._append(rows[at], losses[at])
        return np.array(self._cut, dtype=np.int64)

    def _append_run(self, row: int, reports: FloatArray) -> None:
        """Append successive reports to one row, with the same result as `_append`."""
        young = max(START_REPORTS - self.column["count"].item(row), 0)
        for i in range(min(young, len(reports))):
            self._append(np.array([row]), reports[i : i + 1])
        if losses := reports[young:].tolist():
            self._append_later(row, losses)

    def _append_later(self, row: int, losses: list[float]) -> None:
        """Append successive reports to one row, of which none is at its start."""
        column, window = self.column, self.window
        ring, means = column["ring"][row], column["means"][row]
        count, filled = column["count"].item(row), column["filled"].item(row)
        n, mean = column["partial_count"].item(row), column["partial"].item(row)
        stride = column["stride"].item(row)
        first = column["first"].item(row) if count else losses[0]
        last = ring.item((count - 1) % window) if count else losses[0]
        largest = column["largest"].item(row)
        for loss in losses:
            largest, last = max(largest, abs(loss - last)), loss
            ring[count % window] = loss
            count += 1
            n += 1
            mean += (loss - mean) / n
            if n == stride:
                means[filled] = mean
                filled, n, mean = filled + 1, 0, 0.0
                if filled == self.n_means:
                    filled, stride = filled // 2, 2 * stride
                    means[:filled] = 0.5 * means[0::2] + 0.5 * means[1::2]
        column["first"][row], column["largest"][row] = first, largest
        column["lowest"][row] = min(column["lowest"].item(row), *losses)
        column["count"][row], column["filled"][row], column["stride"][row] = count, filled, stride
        column["partial"][row], column["partial_count"][row] = mean, n

    def _append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append one report to each of `rows`, which must be distinct."""
        column, ring = self.column, self.column["ring"]
        count = column["count"][rows]
        before = ring[rows, (count - 1) % self.window]
        change = np.where(count > 0, np.abs(losses - before), 0.0)
        column["first"][rows] = np.where(count > 0, column["first"][rows], losses)
        column["largest"][rows] = np.maximum(column["largest"][rows], change)
        column["lowest"][rows] = np.minimum(column["lowest"][rows], losses)
        ring[rows, count % self.window] = losses
        column["count"][rows] = count + 1
        self._append_to_mean(rows, losses)
        young = (count >= FOLLOWING_REPORTS) & (count < min(START_REPORTS, self.n_means - 1))
        if young.any():
            self._cut_start(rows[young])

    def _cut_start(self, rows: IntArray) -> None:
        """Cut huge first losses of `rows`, all of whose reports are in the ring."""
        column = self.column
        count = column["count"][rows, None]
        age = count - 1 - np.arange(min(START_REPORTS, self.n_means))
        losses = column["ring"][rows, : age.shape[1]]
        highest = _of_later(np.where(age >= 0, losses, -np.inf), np.maximum)
        lowest = _of_later(np.where(age >= 0, losses, np.inf), np.minimum)
        with np.errstate(invalid="ignore"):  # where nothing followed
            over = losses - highest
            huge = (over > HUGE_RANGES * (highest - lowest)) & (over > HUGE_SIZES * np.abs(highest))
        huge &= (lowest < 0) | (lowest > GONE_PART * highest)
        huge &= (age >= FOLLOWING_REPORTS) & (highest > lowest)
        for i in np.flatnonzero(huge.any(axis=1)).tolist():
            row, n = int(rows[i]), int(count[i, 0])
            end = int(np.flatnonzero(huge[i])[-1])
            ring = column["ring"][row]
            ring[: end + 1] = highest[i, end]
            column["first"][row] = ring[0]
            column["largest"][row] = np.abs(np.diff(ring[:n])).max()
            column["means"][row, :n] = ring[:n]  # one report each, so far
            self._cut.append(row)

    def _append_to_mean(self, rows: IntArray, losses: FloatArray) -> None:
        column = self.column
        n = column["partial_count"][rows] + 1
        mean = column["partial"][rows]
        mean += (losses - mean) / n  # a running mean: a sum could overflow
        whole = n == column["stride"][rows]
        column["partial"][rows] = np.where(whole, 0.0, mean)
        column["partial_count"][rows] = np.where(whole, 0, n)
        rows, mean = rows[whole], mean[whole]
        filled = column["filled"][rows]
        column["means"][rows, filled] = mean
        column["filled"][rows] = filled + 1
        full = rows[filled + 1 == self.n_means]
        if len(full):
            means, half = column["means"][full], self.n_means // 2
            column["means"][full, :half] = 0.5 * means[:, 0::2] + 0.5 * means[:, 1::2]
            column["filled"][full] = half
            column["stride"][full] *= 2

    def bounds(self, rows: IntArray) -> tuple[BoolArray, BoolArray]:
        """Return which rows (n_rows,) zero bounds, and which of these are forecast by logs."""
        column = self.column
        first, lowest, known = column["first"][rows], column["lowest"][rows], column["count"][rows]
        bounded: BoolArray = (lowest >= 0) & column["bounded"][rows]
        # By then, a huge start was cut.
        in_logs = (
            bounded & (lowest > 0) & (first / POWERS_FACTOR > lowest) & (known >= START_REPORTS)
        )
        return bounded, in_logs

    def newest(self, rows: IntArray) -> FloatArray:
        """Return the newest report (n_rows,) of each row; every row must have one."""
        count = self.column["count"][rows]
        return self.column["ring"][rows, (count - 1) % self.window]

    def recent(self, rows: IntArray, back: IntArray) -> tuple[FloatArray, IntArray]:
        """Return reports (n_rows, window) as of `back` ago, newest first, and their number."""
        count = self.column["count"][rows]
        known = np.minimum(count, self.window) - back
        age = np.minimum(np.arange(self.window), known[:, None] - 1)
        index = ((count - back)[:, None] - 1 - age) % self.window
        return self.column["ring"][rows[:, None], index], known

    def whole(
        self, rows: IntArray, back: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
        """Return means as of `back` ago, newest first; their number, reports each, and age."""
        stride, partial = self.column["stride"][rows], self.column["partial_count"][rows]
        filled = self.column["filled"][rows]
        dropped = np.minimum(-((partial - back) // stride), filled - 1)
        dropped = np.maximum(dropped, 0)
        index = np.maximum((filled - dropped)[:, None] - 1 - np.arange(self.n_means), 0)
        means = self.column["means"][rows[:, None], index]
        age = partial + dropped * stride - back + 0.5 * (stride - 1.0)
        return means, filled - dropped, stride.astype(np.float64), np.maximum(age, 0.0)


def _of_later(losses: FloatArray, of: np.ufunc) -> FloatArray:
    """Return of each loss (n_rows, n) the maximum or minimum of those after it."""
    found = of.accumulate(losses[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([found[:, 1:], found[:, -1:]], axis=1)


#: Bound on normalized values, in spans of the window, so that nothing overflows.
MOST_SPANS = 1e6


class NormalizedWindow(NamedTuple):
    """Recent losses of several jobs, scaled so that a window spans 1 and its newest report is 0."""

    losses: FloatArray  # (n_jobs, window), newest first
    known: IntArray  # (n_jobs,) number of columns that hold reports
    total: IntArray  # (n_jobs,) reports so far
    means: FloatArray  # (n_jobs, n_means) of the whole run, newest first
    means_known: IntArray  # (n_jobs,) number of columns that hold means
    stride: FloatArray  # (n_jobs,) reports per mean
    age: FloatArray  # (n_jobs,) iterations from the newest mean to the newest report
    noise: FloatArray  # (n_jobs,) standard deviation of the noise of one report
    newest: FloatArray  # (n_jobs,) raw loss that is normalized to 0
    unit: FloatArray  # (n_jobs,) raw difference that is normalized to 1
    zero: FloatArray  # (n_jobs,) the raw loss 0; -MOST_SPANS if that is no bound
    logs: FloatArray  # (n_jobs, window) of loss / newest; 0 if zero is no bound
    log_noise: FloatArray  # (n_jobs,) standard deviation of the noise of `logs`
    in_logs: BoolArray  # (n_jobs,) rows in which losses stand for their logs

    def of(self, which: IntArray | slice) -> NormalizedWindow:
        """Return the windows of some of the jobs."""
        return NormalizedWindow._make(array[which] for array in self)


def normalize_window(history: Histories, rows: IntArray, back: IntArray) -> NormalizedWindow:
    """Return the normalized windows of some jobs as of `back` (n_jobs,) reports ago."""
    losses, known = history.recent(rows, back)
    means, means_known, stride, age = history.whole(rows, back)
    bounded, in_logs = history.bounds(rows)
    for values in (losses, means):
        np.log(values, out=values, where=in_logs[:, None])
    losses = without_spikes(losses, known)
    means = without_spikes(means, means_known)
    newest = losses[:, 0].copy()
    span = losses.max(axis=1) - losses.min(axis=1)
    unit = np.where(span > 0, span, 1.0)
    losses = (losses - newest[:, None]) / unit[:, None]
    with np.errstate(over="ignore"):  # means may be any number of spans away
        means = np.clip((means - newest[:, None]) / unit[:, None], -MOST_SPANS, MOST_SPANS)
    total = history.column["count"][rows] - back
    noise = report_noise(losses, known)
    zero = np.where(bounded & ~in_logs, np.maximum(-newest / unit, -MOST_SPANS), -MOST_SPANS)
    logs = _logs(losses, zero)
    log_noise = report_noise(logs, known)
    return NormalizedWindow(
        losses, known, total, means, means_known, stride, age, noise, newest, unit, zero, logs,
        log_noise, in_logs,
    )  # fmt: skip


def _logs(losses: FloatArray, zero: FloatArray) -> FloatArray:
    """Return the logs of losses relative to the newest one; 0 if not bounded by zero."""
    bounded = zero > -MOST_SPANS
    # Lower bound on normalized losses above zero before logs are taken.
    logs = np.log(np.maximum(losses - zero[:, None], 1e-12))
    return np.where(bounded[:, None], logs - logs[:, :1], 0.0)


def without_spikes(losses: FloatArray, known: IntArray) -> FloatArray:
    """Return losses, newest first, with spikes cut down to the higher neighbour."""
    # Number of newest reports that determine the usual size of a change.
    change = np.abs(np.diff(losses[:, :17], axis=1))
    usual = _middle(change, np.maximum(known - 1, 1))
    older = losses[:, 1:]
    beside = older.copy()
    beside[:, 1:] = np.maximum(beside[:, 1:], losses[:, :-2])
    cut = losses.copy()
    cut[:, :-1] = np.where(losses[:, :-1] - beside > 10.0 * usual, beside, losses[:, :-1])
    return cut


def report_noise(losses: FloatArray, known: IntArray) -> FloatArray:
    """Estimate the standard deviation (n_jobs,) of independent noise on the reports.

    The third differences of a smooth curve have one sign, so products of neighbours are positive;
    those of noise are -15 variances on average.
    """
    # Number of newest reports that noise is estimated from.
    third = np.diff(losses[:, :27], n=3, axis=1)
    n = np.clip(known - 3, 0, third.shape[1])
    most = 4.0 * _middle(np.abs(third), n)  # a spike is not noise
    usable = np.arange(third.shape[1]) < n[:, None]
    third = np.where(usable, np.clip(third, -most, most), 0.0)
    product = (third[:, 1:] * third[:, :-1]).sum(axis=1) / np.maximum(n - 1, 1)
    return np.sqrt(np.maximum(-product, 0.0) / 15.0)


def _middle(values: FloatArray, n: IntArray) -> FloatArray:
    """Return the median of the first `n` of each row of `values` >= 0, (n_rows, 1); 0 if n is 0."""
    n = np.minimum(n, values.shape[1])[:, None]
    ranked = np.sort(np.where(np.arange(values.shape[1]) < n, values, np.inf), axis=1)
    middle = np.take_along_axis(ranked, np.maximum(n - 1, 0) // 2, axis=1)
    return np.where(n > 0, middle, 0.0)
