"""Weights of the experts, from the errors of their earlier forecasts."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast.experts.basis import product
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, interpolation
from dask_slaq.core.job_arrays import FloatArray, IntArray, JobArrays

#: Number of horizons of a forecast that are stored for scoring, from the first.
N_KEPT = 12
#: A stored forecast is replaced after `CYCLE` reports. In a young job, whose experts learn most
#: from each report, it is replaced sooner: after one report, plus one per `YOUTH` reports so far.
CYCLE, YOUTH = 5, 4
#: Reports needed before a forecast is stored; with fewer, all experts predict the same.
FIRST = 2
#: Weight of the previous score when one report is added.
MEMORY = 0.7
#: The weight of an expert is its score to the power of minus this.
SHARPNESS = 5.0
#: Bound on rescaled values: practically infinite, but 0 when multiplied by 0.
FAR = 1e290
#: Longest lead that is scored, in iterations.
FARTHEST = int(HORIZONS[N_KEPT - 1])
#: (N_KEPT, FARTHEST): linear interpolation from the kept horizons to 1, 2, …, FARTHEST.
TO_EVERY_LEAD = interpolation(np.arange(1.0, FARTHEST + 1), HORIZONS[:N_KEPT])


class Backtest(JobArrays):
    """Scores of the experts, one row per job; `noise_cost` is what noise of 1 adds to errors."""

    def __init__(self, noise_cost: FloatArray) -> None:
        n = len(noise_cost)
        self._noise_cost = noise_cost
        super().__init__(
            {
                "losses": ((n, N_KEPT), np.float32, 0.0),  # predicted, normalized
                "newest": ((), np.float64, 0.0),  # of the window that normalizes them
                "unit": ((), np.float64, 1.0),
                "in_logs": ((), np.bool_, False),  # whether that is of logs of losses
                "forecast_at": ((), np.int32, 0),  # reports at the forecast; 0: none
                "scored_at": ((), np.int32, 0),  # reports already scored
                "score": ((n,), np.float32, 1.0),  # error relative to the mean expert's
            }
        )

    def log_weights(self, rows: IntArray) -> FloatArray:
        """Return the logs of the experts' weights, (n_rows, n_experts), up to a row constant."""
        return -SHARPNESS * np.log(self.column["score"][rows].astype(np.float64))

    def score(self, rows: IntArray, view: NormalizedWindow) -> None:
        """Score the stored forecasts by the reports that have arrived since.

        The error at a lead is the mean up to it: noise averages out, but not a bias.
        """
        column = self.column
        forecast_at, scored_at = column["forecast_at"][rows], column["scored_at"][rows]
        since = view.total - forecast_at
        lead = np.arange(1, min(FARTHEST, max(1, int(since.max()))) + 1)
        age = since[:, None] - lead
        usable = (forecast_at > 0) & (column["in_logs"][rows] == view.in_logs)
        held = (age >= 0) & (age < view.known[:, None]) & usable[:, None]
        came = np.take_along_axis(view.losses, np.where(held, age, 0), axis=1)
        with np.errstate(over="ignore"):  # if the loss is far below its old range
            scale = np.minimum(column["unit"][rows] / view.unit, FAR)
            shift = np.clip((column["newest"][rows] - view.newest) / view.unit, -FAR, FAR)
        losses = column["losses"][rows] * scale[:, None, None] + shift[:, None, None]
        flat = np.clip(losses, -MOST, MOST).reshape(-1, N_KEPT)
        losses = product(flat, TO_EVERY_LEAD)[:, : len(lead)].reshape(*losses.shape[:2], -1)
        error = np.where(held[:, None, :], losses - came[:, None, :], 0.0)
        bias = np.abs(error.cumsum(axis=2)) / np.maximum(held.cumsum(axis=1), 1)[:, None, :]
        fresh = held & (age < (view.total - scored_at)[:, None])
        n_fresh = fresh.sum(axis=1)[:, None]
        # Summed from left to right, as the number of leads depends on the other jobs: a pairwise
        # sum would make the last bits of a score depend on them too.
        total = np.where(fresh[:, None, :], bias, 0.0).cumsum(axis=2)[:, :, -1]
        loss = total / np.maximum(n_fresh, 1)
        loss += self._noise_cost * view.noise[:, None]
        relative = loss / (loss.mean(axis=1, keepdims=True) + 1e-12) + 1e-3
        keep = MEMORY**n_fresh
        column["score"][rows] = keep * column["score"][rows] + (1.0 - keep) * relative
        column["scored_at"][rows] = view.total

    def remember(self, rows: IntArray, view: NormalizedWindow, curves: FloatArray) -> None:
        """Store the experts' `curves`, as from `Ensemble.ask`, of jobs that are due for it."""
        column = self.column
        forecast_at = column["forecast_at"][rows]
        served = view.total - forecast_at >= np.minimum(CYCLE, 1 + forecast_at // YOUTH)
        due = np.flatnonzero(served & (view.total >= FIRST))
        losses = np.moveaxis(curves[:, due, :1] - curves[:, due, 1 : 1 + N_KEPT], 0, 1)
        column["losses"][rows[due]] = np.clip(losses, -MOST, MOST)
        column["newest"][rows[due]] = view.newest[due]
        column["unit"][rows[due]] = view.unit[due]
        column["in_logs"][rows[due]] = view.in_logs[due]
        column["forecast_at"][rows[due]] = view.total[due]
        column["scored_at"][rows[due]] = view.total[due]

    def behind(self, rows: IntArray, total: IntArray) -> IntArray:
        """Return how many reports (n_jobs,) to go back for a backcast that can be scored."""
        forecast_at = self.column["forecast_at"][rows]
        lacks = np.where(forecast_at == 0, total >= 2 * FIRST, total - forecast_at > 2 * CYCLE)
        return np.where(lacks, np.minimum(CYCLE, total // 2), 0)
