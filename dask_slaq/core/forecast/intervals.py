"""Bands: how far reports fall from their forecast, by job and by how far ahead.

A band starts from what is known when the forecast is made: the noise of the reports, how far
the experts disagree, and how much is forecast to change. Each side is then widened or narrowed
until one report in ten is beyond it, whatever the errors are distributed like (adaptive
conformal inference, Gibbs and Candès 2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.basis import product
from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.rows import Rows

__all__ = ["LEADS", "Bands"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Iterations ahead at which the width of a band is kept, and of those the ones that learn.
LEADS = np.array([1, 5, 10, 47, 220])
LEARNING = np.array([1, 10])
#: Columns of the horizons at which these are, and of all.
AT: IntArray = np.searchsorted(HORIZONS, LEADS)
ON_TEST: IntArray = np.searchsorted(HORIZONS, LEARNING)
EVERY: IntArray = np.arange(len(HORIZONS))
#: Share of the reports that is to fall beyond each side.
MISSED = 0.1
#: Change of the log of a width after a miss, at each of these: the farther lead is tested seldom.
PACE = np.array([0.4, 0.7])
#: Bounds of the log of that factor.
NARROWEST, WIDEST = -3.0, 4.0
#: Half a band, in standard deviations of the noise, of the experts, and in forecast falls.
BY_NOISE, BY_EXPERTS, BY_FALL = 1.4, 1.3, 0.1
#: (n_leads, n_horizons) and (n_learning, n_horizons): linear interpolation over the log of the
#: horizon.
_LOG = np.log(np.maximum(HORIZONS, 1.0))
OVER_LEADS: FloatArray = np.stack([np.interp(_LOG, np.log(LEADS), u) for u in np.eye(len(LEADS))])
OVER_LEARNING: FloatArray = np.stack(
    [np.interp(_LOG, np.log(LEARNING), u) for u in np.eye(len(LEARNING))]
)


class Bands(Rows):
    """The bands of the jobs, one a row."""

    def __init__(self) -> None:
        n = len(LEARNING)
        super().__init__(
            {
                "scale": ((len(LEADS),), np.float64, 0.0),  # half widths before learning, raw
                "log_factor": ((2, n), np.float32, 0.0),  # below and above
                "said": ((2, n), np.float64, 0.0),  # bounds on test, raw losses
                "due": ((n,), np.int32, 0),  # the report that tests them; 0: none
            }
        )

    def store(
        self, rows: IntArray, noise: FloatArray, spread: FloatArray, fall: FloatArray
    ) -> None:
        """Set the widths of new forecasts.

        Parameters
        ----------
        rows : (n_jobs,) array
        noise : (n_jobs,) array
            Standard deviation of the noise of one report, raw loss units as all here.
        spread, fall : (n_jobs, n_leads) array
            Standard deviation of the experts, and forecast fall, at `LEADS`.
        """
        model = BY_EXPERTS * spread + BY_FALL * np.maximum(fall, 0.0)
        self.column["scale"][rows] = np.hypot(BY_NOISE * noise[:, None], model)

    def bounds(
        self, rows: IntArray, level: FloatArray, reduction: FloatArray, at: IntArray = EVERY
    ) -> tuple[FloatArray, FloatArray]:
        """Bounds below and above of the loss, each like `reduction`.

        Parameters
        ----------
        rows, level : (n_jobs,) array
        reduction : (n_jobs, n) array
            Forecast falls.
        at : (n,) array
            Columns of the horizons that these are for; all by default.
        """
        middle = level[:, None] - reduction
        scale = product(self.column["scale"][rows], OVER_LEADS[:, at])
        below, above = (
            np.exp(product(self.column["log_factor"][rows, side], OVER_LEARNING[:, at]))
            for side in (0, 1)
        )
        return middle - scale * below, middle + scale * above

    def learn(self, rows: IntArray, history: Histories) -> None:
        """Compare the bounds on test with the reports that were due."""
        column, window = self.column, history.window
        count = history.column["count"][rows]
        for lead, pace in enumerate(PACE.tolist()):
            on_test, said = column["due"][:, lead], column["said"][:, :, lead]
            due = on_test[rows]
            over = np.flatnonzero((due > 0) & (due <= count))
            came = over[count[over] - due[over] < window]  # and is kept still
            tested = rows[came]
            loss = history.column["ring"][tested, (due[came] - 1) % window]
            for side, missed in enumerate((loss < said[tested, 0], loss > said[tested, 1])):
                log_factor = column["log_factor"][:, side, lead]
                moved = log_factor[tested] + pace * (missed - MISSED)
                log_factor[tested] = np.clip(moved, NARROWEST, WIDEST)
            on_test[rows[over]] = 0

    def test(
        self, rows: IntArray, level: FloatArray, reduction: FloatArray, count: IntArray
    ) -> None:
        """Put bounds on test where none are; `reduction` (n_jobs, n_learning) is that at `LEARNING`
        alone."""
        column = self.column
        for lead, at in enumerate(ON_TEST.tolist()):
            on_test = column["due"][:, lead]
            free = np.flatnonzero(on_test[rows] == 0)
            some = rows[free]
            said = self.bounds(some, level[free], reduction[free, lead, None], np.array([at]))
            for side, bound in enumerate(said):
                column["said"][some, side, lead] = bound[:, 0]
            on_test[some] = count[free] + LEARNING[lead]
