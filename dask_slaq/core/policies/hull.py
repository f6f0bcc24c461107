"""Upper concave hulls of gains that rise in steps, as when iterations run in waves.

Between two wave counts a further thread gains nothing, so marginal gains are misleading. On the
hull, every thread from one corner to the next is worth the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_slaq.core.policies.increments import FloatArray, Gain, IntArray

#: Threads up to which every count is tabulated, and the ratio of successive counts beyond.
DENSE, RATIO = 64, 1.1


def on_hull(gain: Gain, n_jobs: int, most: float) -> Gain:
    """Tabulate the upper concave hull of a gain function from 0 to `most` threads.

    Parameters
    ----------
    gain : callable
        Maps threads (n_jobs,) to gains (n_jobs,).
    n_jobs : int
        Number of jobs.
    most : float
        Threads up to which the result is used.

    Returns
    -------
    callable
        Gain that is concave for each job: the hull of the values at all whole threads up to 64 and,
        beyond, on a grid whose steps grow by a tenth. Linear in between.

    Examples
    --------
    Four tasks per iteration run in 4, 2, 2 and 1 waves on 1, 2, 3 and 4 threads:

    >>> speed = lambda n: np.where(n > 0, 1 / np.ceil(4 / np.maximum(n, 1)), 0)
    >>> on_hull(speed, 1, 4)(np.array([3.0]))
    array([0.75])
    """
    points = list(range(min(DENSE, int(np.ceil(most))) + 1))
    while points[-1] < most:
        points.append(min(int(np.ceil(points[-1] * RATIO)), int(np.ceil(most))))
    threads = np.array(points, dtype=float)
    table = np.stack([gain(np.full(n_jobs, n)) for n in threads], axis=1)
    hull = concave_hull(threads, table)
    return _Lines(threads, hull, np.diff(hull, axis=1) / np.diff(threads))


@dataclass(frozen=True)
class _Lines:
    """Linear interpolation between the points of each job."""

    threads: FloatArray
    hull: FloatArray
    slope: FloatArray

    def __call__(self, asked: FloatArray) -> FloatArray:
        last = len(self.threads) - 2
        at = np.clip(np.searchsorted(self.threads, asked, side="right") - 1, 0, last)
        rows = np.arange(len(at))
        value: FloatArray = self.hull[rows, at] + self.slope[rows, at] * (asked - self.threads[at])
        return value

    def of(self, rows: IntArray) -> _Lines:
        """Return the same function restricted to the jobs at `rows`."""
        return _Lines(self.threads, self.hull[rows], self.slope[rows])


def concave_hull(threads: FloatArray, table: FloatArray) -> FloatArray:
    """Return the upper concave hull (n_jobs, n_points) of gains tabulated at rising `threads`.

    >>> concave_hull(np.arange(5.0), np.array([[0.0, 2.0, 2.0, 2.0, 5.0]]))
    array([[0., 2., 3., 4., 5.]])
    """
    n_jobs, n_points = table.shape
    rows = np.arange(n_jobs)
    stack = np.zeros((n_jobs, n_points), dtype=np.int64)  # corners found so far, left to right
    top = np.zeros(n_jobs, dtype=np.int64)
    for point in range(1, n_points):
        while True:
            last, before = stack[rows, top], stack[rows, np.maximum(top - 1, 0)]
            rise = (table[rows, last] - table[rows, before]) * (threads[point] - threads[last])
            run = (table[:, point] - table[rows, last]) * (threads[last] - threads[before])
            below = (top > 0) & (rise <= run)
            if not below.any():
                break
            top -= below
        top += 1
        stack[rows, top] = point
    return _between(threads, table, stack, top)


def _between(threads: FloatArray, table: FloatArray, stack: IntArray, top: IntArray) -> FloatArray:
    """Interpolate linearly between the corners in each row's stack."""
    corner = np.zeros(table.shape, dtype=np.int64)
    rows, places = np.nonzero(np.arange(table.shape[1]) <= top[:, None])
    corner[rows, stack[rows, places]] = stack[rows, places]
    left = np.maximum.accumulate(corner, axis=1)
    corner[corner == 0] = table.shape[1] - 1
    corner[:, 0] = 0
    right = np.minimum.accumulate(corner[:, ::-1], axis=1)[:, ::-1]
    span = np.maximum(threads[right] - threads[left], np.finfo(float).tiny)
    part = np.clip((threads - threads[left]) / span, 0.0, 1.0)
    below = np.take_along_axis(table, left, axis=1)
    hull: FloatArray = below + part * (np.take_along_axis(table, right, axis=1) - below)
    return hull
