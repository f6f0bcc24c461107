"""Loss curves of running jobs on a common grid of iterations.

The grid has one bin per iteration at first and bins in geometric progression later, so that a
curve of any length takes one short row and every report is O(1).
"""

from __future__ import annotations

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays
from dask_slaq.core.run_history.runs import MOST_POINTS, PastRun

#: Number of bins.
N_BINS = MOST_POINTS


def _bin_edges() -> IntArray:
    single, last = 24, 200_000  # bins that hold one iteration each, and the end of the last one
    later = np.geomspace(single, last, N_BINS - single + 1)[1:].round().astype(np.int64)
    return np.concatenate([np.arange(1, single + 1), later])


#: Last iteration, number of iterations and middle of each bin, increasing.
EDGES: IntArray = _bin_edges()
SIZES: IntArray = np.diff(EDGES, prepend=0)
MIDDLES: FloatArray = EDGES - 0.5 * (SIZES - 1)


class Traces(JobArrays):
    """Mean losses of running jobs in the bins of the grid, one row per job."""

    def __init__(self) -> None:
        super().__init__(
            {
                "count": ((), np.int64, 0),
                # Sum of the losses in each bin over the bin's size: a plain sum could overflow.
                "sums": ((N_BINS,), np.float64, 0.0),
            }
        )

    def append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append raw losses (n_reports,) in order of arrival. Their rows may repeat."""
        order = np.argsort(rows, kind="stable")
        rows, losses = rows[order], losses[order]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        size = np.diff(first, append=len(rows))
        rank = np.arange(len(rows)) - np.repeat(first, size)
        iteration = self.column["count"][rows] + rank + 1
        at = np.searchsorted(EDGES, iteration)
        kept = at < N_BINS
        rows_kept, at = rows[kept], at[kept]
        np.add.at(self.column["sums"], (rows_kept, at), losses[kept] / SIZES[at])
        self.column["count"][rows[first]] += size

    def cut(self, row: int, most: float) -> None:
        """Cut the losses of a job that has only reported its first ones down to `most`."""
        first = slice(self.column["count"].item(row))
        self.column["sums"][row, first] = np.minimum(self.column["sums"][row, first], most)

    def means(self, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean iteration, mean loss and number of reports (n_rows, n_bins) of each bin."""
        count = self.column["count"][rows]
        n = int(np.searchsorted(EDGES, count.max(initial=1))) + 1
        edges, sizes = EDGES[:n], SIZES[:n]
        filled = np.clip(count[:, None] - (edges - sizes), 0, sizes)
        part = np.maximum(filled, 1)
        loss = self.column["sums"][rows, :n] * (sizes / part)
        iteration = edges - sizes + 0.5 * (part + 1)
        return iteration, loss, filled.astype(np.float64)

    def curve(self, row: int) -> tuple[IntArray, FloatArray]:
        """Return the iterations and the losses of the curve of one job, as in a `PastRun`."""
        iteration, loss, weight = (part[0] for part in self.means(np.array([row])))
        some = weight > 0
        return np.floor(iteration[some]).astype(np.int64), loss[some]


def shape_of(run: PastRun) -> tuple[FloatArray, FloatArray] | None:
    """Return iterations of a run, and fractions fallen, rising to 1; None if it tells nothing."""
    iteration = np.asarray(run.iteration, dtype=np.float64)
    loss = np.asarray(run.loss, dtype=np.float64)
    if len(iteration) < 2 or len(iteration) != len(loss):
        return None
    if not (np.isfinite(loss).all() and (np.diff(iteration) > 0).all() and iteration[0] >= 1):
        return None
    largest = float(np.abs(loss).max())
    if not largest > 0:
        return None
    smooth = _nonincreasing(loss / largest)
    fall = smooth[0] - smooth[-1]
    # Fraction of the largest absolute loss below which a fall counts as none.
    if not fall > 1e-9:
        return None
    return iteration, (smooth[0] - smooth) / fall


def _nonincreasing(values: FloatArray) -> FloatArray:
    """Return the nonincreasing values with the least squared distance, by pooling neighbours."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] < mean:
            before, n = means.pop(), sizes.pop()
            mean, size = (before * n + mean * size) / (n + size), n + size
        means.append(mean)
        sizes.append(size)
    return np.repeat(np.array(means), sizes)
