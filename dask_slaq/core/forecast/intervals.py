"""Prediction intervals of future reports, per job and horizon.

The initial width depends on the noise of the reports, the disagreement of the experts and the
predicted fall. Each side is then widened or narrowed until one report in ten lies beyond it,
whatever the distribution of the errors (adaptive conformal inference, Gibbs and Candès 2021).
"""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast.experts.basis import product
from dask_slaq.core.forecast.history import Histories, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, interpolation
from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays

#: Leads (iterations ahead) at which widths are stored, and the leads at which they are learned.
LEADS = np.array([1, 5, 10, 47, 220])
LEARNING = np.array([1, 10])
#: Columns of `HORIZONS` with these leads, and all columns.
AT: IntArray = np.searchsorted(HORIZONS, LEADS)
ON_TEST: IntArray = np.searchsorted(HORIZONS, LEARNING)
EVERY: IntArray = np.arange(len(HORIZONS))
#: Learning rate of the log width at each learned lead; the farther lead is tested less often.
PACE = np.array([0.4, 0.7])
#: (n_leads, n_horizons) and (n_learning, n_horizons): linear interpolation from the leads to all
#: horizons, over the log of the horizon.
_LOG = np.log(np.maximum(HORIZONS, 1.0))
OVER_LEADS, OVER_LEARNING = (interpolation(_LOG, np.log(leads)) for leads in (LEADS, LEARNING))


class Bands(JobArrays):
    """Prediction intervals, one row per job, in raw loss units."""

    def __init__(self) -> None:
        n = len(LEARNING)
        super().__init__(
            {
                # Half widths before learning, raw or, where `in_logs`, of the log of the loss.
                "scale": ((len(LEADS),), np.float64, 0.0),
                "in_logs": ((), np.bool_, False),
                "log_factor": ((2, n), np.float32, 0.0),  # below and above
                "bounds": ((2, n), np.float64, 0.0),  # lower and upper bound under test
                "due": ((n,), np.int32, 0),  # number of the report that tests them; 0: none
            }
        )

    def store(
        self, rows: IntArray, view: NormalizedWindow, spread: FloatArray, fall: FloatArray
    ) -> None:
        """Set the initial widths for new forecasts. The learned factors stay.

        A loss that has only risen so far may rise on, or fall again, which no expert predicts.
        """
        # Half width per standard deviation of the noise, per one of the experts, and per predicted
        # fall.
        by_noise, by_experts, by_fall = 1.4, 1.3, 0.1
        model, noise = by_experts * spread + by_fall * np.maximum(fall, 0.0), view.noise[:, None]
        ago = np.minimum(LEADS, view.losses.shape[1] - 1)
        # Standard deviations of the noise beyond which a rise so far counts.
        beyond = 2.0
        rise = np.maximum.accumulate(-view.losses[:, ago], axis=1) - beyond * noise
        rise *= view.losses.max(axis=1, keepdims=True) <= beyond * noise
        # Power with which the width grows with the leads per report so far: all experts may err
        # together.
        model *= (1 + LEADS / np.maximum(view.total[:, None], 1)) ** 0.75
        scale = view.unit[:, None] * np.maximum(np.hypot(by_noise * noise, model), rise)
        self.column["scale"][rows], self.column["in_logs"][rows] = scale, view.in_logs

    def bounds(
        self, rows: IntArray, level: FloatArray, reduction: FloatArray, at: IntArray = EVERY
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds (n_jobs, n) around losses that fall by `reduction`, at columns `at`."""
        middle = level[:, None] - reduction
        scale = product(self.column["scale"][rows], OVER_LEADS[:, at])
        logs, found = self.column["in_logs"][rows], []
        for side, sign in enumerate((-1.0, 1.0)):
            log_factor = self.column["log_factor"][rows, side]
            by = sign * scale * np.exp(product(log_factor, OVER_LEARNING[:, at]))
            # Bounded, so that nothing overflows.
            by[logs] = np.clip(middle[logs], 0.0, 1e200) * np.expm1(np.clip(by[logs], -99.0, 99.0))
            found.append(middle + by)
        return found[0], found[1]

    def learn(self, rows: IntArray, history: Histories) -> None:
        """Adapt widths by the new reports in `history` for which bounds were stored."""
        column, window = self.column, history.window
        count = history.column["count"][rows]
        for lead, pace in enumerate(PACE.tolist()):
            on_test, bounds = column["due"][:, lead], column["bounds"][:, :, lead]
            due = on_test[rows]
            over = np.flatnonzero((due > 0) & (due <= count))
            came = over[count[over] - due[over] < window]  # still in the ring
            tested = rows[came]
            loss = history.column["ring"][tested, (due[came] - 1) % window]
            for side, missed in enumerate((loss < bounds[tested, 0], loss > bounds[tested, 1])):
                log_factor = column["log_factor"][:, side, lead]
                # Fraction of the reports that should lie beyond each side.
                moved = log_factor[tested] + pace * (missed - 0.1)
                log_factor[tested] = np.clip(moved, -3.0, 4.0)
            on_test[rows[over]] = 0

    def test(
        self, rows: IntArray, level: FloatArray, reduction: FloatArray, count: IntArray
    ) -> None:
        """Store bounds for later reports to test, where none are stored, after `count` reports."""
        column = self.column
        for lead, at in enumerate(ON_TEST.tolist()):
            on_test = column["due"][:, lead]
            free = np.flatnonzero(on_test[rows] == 0)
            some = rows[free]
            bounds = self.bounds(some, level[free], reduction[free, lead, None], np.array([at]))
            for side, bound in enumerate(bounds):
                column["bounds"][some, side, lead] = bound[:, 0]
            on_test[some] = count[free] + LEARNING[lead]
