"""Upper concave hulls of falls that are not concave."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import FloatArray


def concave_hull(x: FloatArray, table: FloatArray) -> FloatArray:
    """Return the upper concave hull (n, n_points) of each row of `table` at rising `x` (n_points,).

    Rows that are concave up to rounding stay as they are.

    >>> concave_hull(np.arange(5.0), np.array([[0.0, 2.0, 2.0, 2.0, 5.0]]))
    array([[0., 2., 3., 4., 5.]])
    """
    slope = np.diff(table, axis=1) / np.diff(x)
    bent = (np.diff(slope, axis=1) > 1e-15 * np.abs(slope[:, :-1])).any(axis=1)
    hull = table.copy()
    for i in np.flatnonzero(bent):
        corner = _corners(x.tolist(), table[i].tolist())
        hull[i] = np.interp(x, x[corner], table[i, corner])
    return hull


def _corners(x: list[float], y: list[float]) -> list[int]:
    """Return the corners of the upper hull of one row, by Andrew's monotone chain."""
    corner: list[int] = []
    for k in range(len(x)):
        while len(corner) > 1:
            i, j = corner[-2], corner[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) > (y[k] - y[j]) * (x[j] - x[i]):
                break
            corner.pop()
        corner.append(k)
    return corner
