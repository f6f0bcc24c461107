"""Bounded report histories of all jobs in shared arrays, one row per job."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import FloatArray, IntArray, JobArrays

__all__ = ["Histories"]

#: Cost of a call of `_append`, and fixed cost of a call of `_append_run`, in units of the cost of
#: one report in `_append_run`, which is cheaper for many reports of few rows.
ROUND, ROW = 20, 7


class Histories(JobArrays):
    """Newest reports, coarse means of the whole run and a few extremes of each job.

    At most `window` reports are kept per job, and as many means (rounded down to an even number). A
    mean covers `stride` successive reports. When all means are in use, neighbours are merged and
    the stride doubles, so a report changes a bounded number of cells, however long the run is.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.n_means = window - window % 2
        super().__init__(
            {
                "ring": ((window,), np.float64, np.nan),
                "count": ((), np.int32, 0),
                "first": ((), np.float64, np.nan),
                "lowest": ((), np.float64, np.inf),
                "largest": ((), np.float64, 0.0),
                "means": ((self.n_means,), np.float64, 0.0),
                "filled": ((), np.int32, 0),
                "stride": ((), np.int32, 1),
                "partial": ((), np.float64, 0.0),
                "partial_count": ((), np.int32, 0),
            }
        )

    def append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append raw losses in order of arrival; `rows` (n_reports,) may repeat."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        first = np.flatnonzero(np.diff(ordered, prepend=-1))
        size = np.diff(first, append=len(ordered))
        rounds = int(size.max(initial=0))
        if ROUND * rounds > len(rows) + ROW * len(first):
            for start, n in zip(first.tolist(), size.tolist(), strict=True):
                self._append_run(ordered.item(start), losses[order[start : start + n]].tolist())
            return
        for n in range(rounds):  # the first report of each row, the second, …
            at = order[first[size > n] + n]
            self._append(rows[at], losses[at])

    def _append_run(self, row: int, losses: list[float]) -> None:
        """Append successive reports to one row, with the same result as `_append`."""
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

    def newest(self, rows: IntArray) -> FloatArray:
        """Return the newest report (n_rows,) of each row; every row must have one."""
        count = self.column["count"][rows]
        newest: FloatArray = self.column["ring"][rows, (count - 1) % self.window]
        return newest

    def recent(self, rows: IntArray, back: IntArray) -> tuple[FloatArray, IntArray]:
        """Return reports (n_rows, window) as of `back` (n_rows,) reports ago, newest first.

        Column i holds the report i iterations earlier; the second array (n_rows,) counts the
        columns that hold reports. The oldest report kept fills the rest. `back` is less than what
        is kept.
        """
        count = self.column["count"][rows]
        known = np.minimum(count, self.window) - back
        age = np.minimum(np.arange(self.window), known[:, None] - 1)
        index = ((count - back)[:, None] - 1 - age) % self.window
        return self.column["ring"][rows[:, None], index], known

    def whole(
        self, rows: IntArray, back: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
        """Return means over the whole run as of `back` (n_rows,) reports ago, newest first.

        They are (n_rows, n_means), the oldest filling the rest; then (n_rows,) each: the number of
        columns that hold means, the reports per mean, and the iterations from the middle of the
        newest mean to the newest report.
        """
        stride, partial = self.column["stride"][rows], self.column["partial_count"][rows]
        filled = self.column["filled"][rows]
        dropped = np.minimum(-((partial - back) // stride), filled - 1)
        dropped = np.maximum(dropped, 0)
        index = np.maximum((filled - dropped)[:, None] - 1 - np.arange(self.n_means), 0)
        means = self.column["means"][rows[:, None], index]
        age = partial + dropped * stride - back + 0.5 * (stride - 1.0)
        return means, filled - dropped, stride.astype(np.float64), np.maximum(age, 0.0)
