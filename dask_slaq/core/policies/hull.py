"""Upper concave hulls of gains that rise in steps."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import FloatArray, IntArray


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
