"""Weights of the experts: what each said before is compared with the reports that came since."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.basis import product
from dask_slaq.core.forecast.curve_forecast import HORIZONS, CurveForecast
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow
from dask_slaq.core.rows import Rows

__all__ = ["Backtest"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Horizons of a forecast that are kept for scoring.
N_KEPT = 12
#: A forecast is replaced when it has been scored over so many reports, and sooner in a young
#: job, whose experts learn most from each report: after one, and one more for each `YOUTH`.
CYCLE, YOUTH = 5, 4
#: Reports before a first forecast is kept: of fewer, all experts make the same.
FIRST = 2
#: Weight of the score so far against that of one more report.
MEMORY = 0.7
#: Weight of an expert is its score to the power of minus this.
SHARPNESS = 5.0
#: What lies beyond is as good as infinite, but can be multiplied by zero.
FAR = 1e290
#: Ahead of this many iterations nothing is scored.
FARTHEST = int(HORIZONS[N_KEPT - 1])
#: (N_KEPT, FARTHEST): linear interpolation from the kept horizons to 1, 2, …, FARTHEST.
TO_EVERY_LEAD: FloatArray = np.stack(
    [np.interp(np.arange(1, FARTHEST + 1), HORIZONS[:N_KEPT], unit) for unit in np.eye(N_KEPT)]
)


class Backtest(Rows):
    """Scores of the experts of each job; a row belongs to one job.

    Parameters
    ----------
    noise_cost : (n_experts,) array
        Error that noise of standard deviation 1 adds to the forecast of each expert.
    """

    def __init__(self, noise_cost: FloatArray) -> None:
        n = len(noise_cost)
        self._noise_cost = noise_cost
        super().__init__(
            {
                "said": ((n, N_KEPT), np.float32, 0.0),  # losses, in the units of the view then
                "newest": ((), np.float64, 0.0),  # of that view, raw
                "unit": ((), np.float64, 1.0),
                "said_at": ((), np.int32, 0),  # reports by then; 0: nothing said yet
                "seen_at": ((), np.int32, 0),  # reports scored already
                "score": ((n,), np.float32, 1.0),  # error by the mean expert's
            }
        )

    def log_weights(self, rows: IntArray) -> FloatArray:
        """Logs of the experts' weights, (n_rows, n_experts), up to a constant a row."""
        log_weight: FloatArray = -SHARPNESS * np.log(self.column["score"][rows].astype(np.float64))
        return log_weight

    def score(self, rows: IntArray, view: NormalizedWindow) -> None:
        """Score what was said by the reports that came since.

        Parameters
        ----------
        rows : (n_jobs,) array
        view : View
            The jobs as they are now.

        Notes
        -----
        The error at a lead is the mean of the signed errors up to it, so that noise of the
        reports averages out and an expert's bias does not.
        """
        column = self.column
        said_at, seen_at = column["said_at"][rows], column["seen_at"][rows]
        since = view.total - said_at
        lead = np.arange(1, min(FARTHEST, max(1, int(since.max()))) + 1)
        age = since[:, None] - lead
        held = (age >= 0) & (age < view.known[:, None]) & (said_at > 0)[:, None]
        came = np.take_along_axis(view.losses, np.where(held, age, 0), axis=1)
        with np.errstate(over="ignore"):  # the loss may have left its old range far behind
            scale = np.minimum(column["unit"][rows] / view.unit, FAR)
            shift = np.clip((column["newest"][rows] - view.newest) / view.unit, -FAR, FAR)
        said = column["said"][rows] * scale[:, None, None] + shift[:, None, None]
        flat = np.clip(said, -MOST, MOST).reshape(-1, N_KEPT)
        told = product(flat, TO_EVERY_LEAD)[:, : len(lead)].reshape(*said.shape[:2], -1)
        error = np.where(held[:, None, :], told - came[:, None, :], 0.0)
        bias = np.abs(error.cumsum(axis=2)) / np.maximum(held.cumsum(axis=1), 1)[:, None, :]
        fresh = held & (age < (view.total - seen_at)[:, None])
        n_fresh = fresh.sum(axis=1)[:, None]
        # Summed from left to right: how many leads there are depends on the other jobs.
        total = np.where(fresh[:, None, :], bias, 0.0).cumsum(axis=2)[:, :, -1]
        loss = total / np.maximum(n_fresh, 1)
        loss += self._noise_cost * view.noise[:, None]
        relative = loss / (loss.mean(axis=1, keepdims=True) + 1e-12) + 1e-3
        keep = MEMORY**n_fresh
        column["score"][rows] = keep * column["score"][rows] + (1.0 - keep) * relative
        column["seen_at"][rows] = view.total

    def remember(
        self, rows: IntArray, view: NormalizedWindow, beliefs: list[CurveForecast]
    ) -> None:
        """Keep what the experts say at `view`, where the forecasts kept before have served."""
        column = self.column
        said_at = column["said_at"][rows]
        served = view.total - said_at >= np.minimum(CYCLE, 1 + said_at // YOUTH)
        due = np.flatnonzero(served & (view.total >= FIRST))
        said = np.stack([b.level[due, None] - b.fall[due, :N_KEPT] for b in beliefs], axis=1)
        column["said"][rows[due]] = np.clip(said, -MOST, MOST)
        column["newest"][rows[due]] = view.newest[due]
        column["unit"][rows[due]] = view.unit[due]
        column["said_at"][rows[due]] = view.total[due]
        column["seen_at"][rows[due]] = view.total[due]

    def behind(self, rows: IntArray, total: IntArray) -> IntArray:
        """Reports to go back for a forecast that can be scored at once, by job; 0: no need.

        A job that is fitted for the first time, or seldom against its reports, has no recent
        forecast that its experts could be weighed by.
        """
        said_at = self.column["said_at"][rows]
        lacks = np.where(said_at == 0, total >= 2 * FIRST, total - said_at > 2 * CYCLE)
        return np.where(lacks, np.minimum(CYCLE, total // 2), 0)
