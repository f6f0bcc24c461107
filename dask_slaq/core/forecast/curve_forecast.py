"""Forecast of one expert, and the horizons of all forecasts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.job_arrays import FloatArray

#: Horizons of every forecast, in iterations ahead: dense near the present, then roughly geometric.
HORIZONS: FloatArray = np.array(
    [
        *(0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 47, 60, 78, 100, 150, 220, 330, 500),
        *(750, 1100, 1700, 2500, 3800, 5700, 8500, 13e3, 20e3, 30e3, 45e3, 67e3, 100e3),
    ]
)


def interpolation(at: FloatArray, grid: FloatArray) -> FloatArray:
    """Return the matrix (n_grid, n_at) that interpolates values on `grid` linearly at `at`."""
    return np.stack([np.interp(at, grid, unit) for unit in np.eye(len(grid))])


class CurveForecast(NamedTuple):
    """Forecasts of several jobs by one expert, in the units of a `NormalizedWindow`."""

    level: FloatArray  # (n_jobs,) present loss
    #: (n_jobs, n_horizons) fall from `level`: 0 at horizon 0, nondecreasing, concave up to rounding
    fall: FloatArray
