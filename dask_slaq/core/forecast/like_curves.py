"""Curves of like runs on the grid of bins: their values between bins, and concave falls."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.memory import MIDDLES, N_BINS

__all__ = ["BETWEEN", "at_iteration", "concave", "interpolate"]


def _place(iteration: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the bin left of each iteration, and the part of the way to the next one."""
    left = np.clip(np.searchsorted(MIDDLES, iteration, side="right") - 1, 0, N_BINS - 2)
    part = (iteration - MIDDLES[left]) / (MIDDLES[left + 1] - MIDDLES[left])
    return left, np.clip(part, 0.0, 1.0)


def interpolate(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return curves (n, n_bins) at iterations: (n, m), or (m,) for all curves."""
    left, part = _place(iteration)
    row = np.arange(len(curves))[:, None]
    low = curves[row, left]
    value: FloatArray = low + part * (curves[row, left + 1] - low)
    return value


def at_iteration(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return the values (n, m) of m curves per job (n, m, n_bins) at its iteration (n,)."""
    left, part = _place(iteration)
    row = np.arange(len(curves))
    low = curves[row, :, left]
    value: FloatArray = low + part[:, None] * (curves[row, :, left + 1] - low)
    return value


#: (n_bins, n_horizons): interpolation of curves at the iterations of the horizons.
BETWEEN: FloatArray = interpolate(np.eye(N_BINS), HORIZONS)


def concave(fall: FloatArray) -> FloatArray:
    """Return the least concave falls at `HORIZONS` (..., n_horizons) that are not below `fall`.

    They are nondecreasing from 0.
    """
    table = np.atleast_2d(fall)
    slope = np.diff(table, axis=1) / np.diff(HORIZONS)
    bent = (np.diff(slope, axis=1) > 1e-15 * np.abs(slope[:, :-1])).any(axis=1)
    if bent.any():
        table = table.copy()
        for i in np.flatnonzero(bent):
            table[i] = _hull(table[i])
    return table.reshape(fall.shape)


def _hull(fall: FloatArray) -> FloatArray:
    """Return the upper hull of one fall, by Andrew's monotone chain."""
    x, y = HORIZONS.tolist(), fall.tolist()
    corner: list[int] = []
    for k in range(len(x)):
        while len(corner) > 1:
            i, j = corner[-2], corner[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) > (y[k] - y[j]) * (x[j] - x[i]):
                break
            corner.pop()
        corner.append(k)
    hull: FloatArray = np.interp(HORIZONS, HORIZONS[corner], fall[corner])
    return hull
