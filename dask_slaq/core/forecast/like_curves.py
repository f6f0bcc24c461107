"""Curves of like runs on the grid of bins: their values between bins."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.memory import MIDDLES, N_BINS


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
    return low + part * (curves[row, left + 1] - low)


def at_iteration(curves: FloatArray, iteration: FloatArray) -> FloatArray:
    """Return the values (n, m) of m curves per job (n, m, n_bins) at its iteration (n,)."""
    left, part = _place(iteration)
    row = np.arange(len(curves))
    low = curves[row, :, left]
    return low + part[:, None] * (curves[row, :, left + 1] - low)


#: (n_bins, n_horizons): interpolation of curves at the iterations of the horizons.
BETWEEN: FloatArray = interpolate(np.eye(N_BINS), HORIZONS)
