"""What a forecast is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["HORIZONS", "CurveForecast"]

FloatArray = NDArray[np.float64]

#: Iterations ahead that a forecast lists: dense near the present, then by a fixed ratio.
HORIZONS: FloatArray = np.array(
    [
        *(0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 47, 60, 78, 100, 150, 220, 330, 500),
        *(750, 1100, 1700, 2500, 3800, 5700, 8500, 13e3, 20e3, 30e3, 45e3, 67e3, 100e3),
    ],
)


class CurveForecast(NamedTuple):
    """Forecasts of some jobs by one expert, in the units of the view.

    Attributes
    ----------
    level : (n_jobs,) array
        Present loss.
    fall : (n_jobs, n_horizons) array
        From there: 0 at horizon 0, nondecreasing and concave up to rounding.
    """

    level: FloatArray
    fall: FloatArray

    def of(self, which: slice) -> CurveForecast:
        """The belief of some of the jobs."""
        return CurveForecast(self.level[which], self.fall[which])
