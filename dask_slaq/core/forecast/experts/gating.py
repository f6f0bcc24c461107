"""Gating network that combines the experts' forecasts from features of each job's curve.

It is trained on curves of other jobs (`benchmarks.gate_training`). Its outputs are bounded: a
combined forecast is within a fixed factor of the experts' forecasts, a larger one under noise.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast.experts.basis import product
from dask_slaq.core.forecast.history import MOST_SPANS, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, interpolation
from dask_slaq.core.jobs.arrays import FloatArray, IntArray, JobArrays

#: Columns of the horizons at which the experts' forecasts are features.
NEXT, NEAR, FAR = (int(i) for i in np.searchsorted(HORIZONS, (1, 10, 100)))
#: Ages of the reports that are features.
AGES: IntArray = np.array([1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 30])
#: Maximum log factor on a forecast, in standard deviations of the log of the loss.
MOST_DEVIATIONS = 1.5


class Mixture(NamedTuple):
    """Outputs of the gating network, in the units of a `NormalizedWindow`."""

    weight: FloatArray  # (n_jobs, n_experts) weights of falls, sum to 1
    level_weight: FloatArray  # (n_jobs, n_experts) weights of levels, sum to 1
    factor: FloatArray  # (n_jobs,) factor on the combined fall, from 1/e to e
    shift: FloatArray  # (n_jobs,) added to the combined level
    scale: FloatArray  # (n_jobs,) factor on the loss above zero, 1 if unbounded


@cache
def trained() -> dict[str, FloatArray]:
    """Read the features' ``mean`` and ``deviation`` and both layers; see `gate_training`."""
    with files("dask_slaq.core.forecast.experts").joinpath("gating.npz").open("rb") as file:
        return dict(np.load(file))


def gate(
    by: dict[str, FloatArray], view: NormalizedWindow, curves: FloatArray, log_weight: FloatArray
) -> Mixture:
    """Return how to combine the experts' forecasts, by a network with coefficients as `trained`."""
    x = (features(view, curves, log_weight) - by["mean"]) / by["deviation"]
    # Features are clipped at this many standard deviations.
    most_unusual = 4.0
    np.clip(x, -most_unusual, most_unusual, out=x)
    hidden = np.maximum(product(x, by["inner"]) + by["inner_bias"], 0.0)
    out = product(hidden, by["outer"]) + by["outer_bias"]
    return mixture(out, log_weight, view.noise, view.log_noise)


def mixture(
    out: FloatArray, log_weight: FloatArray, noise: FloatArray, log_noise: FloatArray
) -> Mixture:
    """Convert the raw outputs (n_jobs, 2 n_experts + 3) of the network, which are unbounded."""
    n = log_weight.shape[1]
    # Maximum shift of the level, in standard deviations of the noise.
    return Mixture(
        softmax(log_weight + out[:, :n]),
        softmax(log_weight + out[:, n : 2 * n]),
        np.exp(np.tanh(out[:, 2 * n])),
        2.0 * np.tanh(out[:, 2 * n + 1]) * noise,
        np.exp(MOST_DEVIATIONS * np.tanh(out[:, 2 * n + 2]) * np.minimum(log_noise, 1.0)),
    )


def blend(curves: FloatArray, by: Mixture, zero: FloatArray) -> FloatArray:
    """Combine the experts' forecasts, as in `gate`, into one (n_jobs, 1 + n_horizons)."""
    weight = by.weight * (by.factor * by.scale)[:, None]
    mixed: FloatArray = np.einsum("je,eji->ji", weight, curves)
    level = (by.level_weight.T * curves[:, :, 0]).sum(axis=0) + by.shift
    mixed[:, 0] = level + (by.scale - 1.0) * (level - zero)
    np.minimum(mixed, MOST_SPANS, out=mixed)
    return mixed


def softmax(logs: FloatArray) -> FloatArray:
    """Return weights with row sums of 1 from their logs, given up to a constant per row."""
    weight: FloatArray = np.exp(logs - logs.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


def features(view: NormalizedWindow, curves: FloatArray, log_weight: FloatArray) -> FloatArray:
    """Return features (n_jobs, n_features) for `gate`; none depends on the unit of the losses."""
    fall = np.log(np.maximum(curves[:, :, [1 + NEXT, 1 + NEAR, 1 + FAR]], 0.0) + 1e-4).T
    near = fall[1]
    # Number of experts, from the last, whose level can differ from the newest report.
    level = curves[-5:, :, 0].T / (view.noise[:, None] + 1e-3)
    oldest = view.losses.shape[1] - 1
    # Number of newest changes that are features.
    change = np.diff(view.losses[:, np.minimum(np.arange(8 + 1), oldest)], axis=1)
    above_zero = np.clip(-view.zero, 0.0, 1e3)
    return np.column_stack(
        [
            np.log(view.total),
            view.total**-0.5,
            np.log(view.noise + 1e-4),
            np.clip(log_weight, -25.0, 25.0),
            near,
            fall[2] - near,
            fall[0] - near,
            np.clip(level, -4.0, 4.0),
            np.clip(view.losses[:, np.minimum(AGES, oldest)], -2.0, 2.0),
            np.copysign(np.log1p(1e3 * np.abs(change)), change),
            np.log(view.log_noise + 1e-4),
            np.clip(view.logs[:, np.minimum(AGES, oldest)], -3.0, 3.0),
            np.log1p(np.maximum(view.means[:, -1], 0.0) / (above_zero + 1e-6)),
            np.log(above_zero + 1e-3),
            above_zero >= 1e3,
            np.log1p(np.maximum(view.means[:, -1], 0.0)),
        ]
    )


#: Number of horizons of a forecast that are stored for scoring, from the first.
N_KEPT_HORIZONS = 12
#: A stored forecast is replaced after so many reports.
CYCLE_REPORTS = 5
#: Reports needed before a forecast is stored; with fewer, all experts predict the same.
FEWEST_REPORTS = 2
#: Longest lead that is scored, in iterations.
FARTHEST = int(HORIZONS[N_KEPT_HORIZONS - 1])
#: (N_KEPT_HORIZONS, FARTHEST): linear interpolation from the kept horizons to 1, 2, …, FARTHEST.
TO_EVERY_LEAD = interpolation(np.arange(1.0, FARTHEST + 1), HORIZONS[:N_KEPT_HORIZONS])


class Backtest(JobArrays):
    """Scores of the experts, one row per job; `noise_cost` is what noise of 1 adds to errors."""

    def __init__(self, noise_cost: FloatArray) -> None:
        n = len(noise_cost)
        self._noise_cost = noise_cost
        super().__init__(
            {
                "losses": ((n, N_KEPT_HORIZONS), np.float32, 0.0),  # predicted, normalized
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
        # The weight of an expert is its score to the power of minus this.
        return -5.0 * np.log(self.column["score"][rows].astype(np.float64))

    def score(self, rows: IntArray, view: NormalizedWindow) -> None:
        """Score stored forecasts, by their mean error up to a lead: noise averages out."""
        column = self.column
        forecast_at, scored_at = column["forecast_at"][rows], column["scored_at"][rows]
        since = view.total - forecast_at
        lead = np.arange(1, min(FARTHEST, max(1, int(since.max()))) + 1)
        age = since[:, None] - lead
        usable = (forecast_at > 0) & (column["in_logs"][rows] == view.in_logs)
        held = (age >= 0) & (age < view.known[:, None]) & usable[:, None]
        came = np.take_along_axis(view.losses, np.where(held, age, 0), axis=1)
        # Bound on rescaled values: practically infinite, but 0 when multiplied by 0.
        bound = 1e290
        with np.errstate(over="ignore"):  # if the loss is far below its old range
            scale = np.minimum(column["unit"][rows] / view.unit, bound)
            shift = np.clip((column["newest"][rows] - view.newest) / view.unit, -bound, bound)
        losses = column["losses"][rows] * scale[:, None, None] + shift[:, None, None]
        flat = np.clip(losses, -MOST_SPANS, MOST_SPANS).reshape(-1, N_KEPT_HORIZONS)
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
        keep = 0.7**n_fresh  # the weight of the previous score per report that is added
        column["score"][rows] = keep * column["score"][rows] + (1.0 - keep) * relative
        column["scored_at"][rows] = view.total

    def remember(self, rows: IntArray, view: NormalizedWindow, curves: FloatArray) -> None:
        """Store the experts' `curves`, as from `Ensemble.ask`, of jobs that are due for it."""
        column = self.column
        forecast_at = column["forecast_at"][rows]
        # In a young job, whose experts learn most from each report, it is replaced sooner: after
        # one report, plus one per four reports so far.
        served = view.total - forecast_at >= np.minimum(CYCLE_REPORTS, 1 + forecast_at // 4)
        due = np.flatnonzero(served & (view.total >= FEWEST_REPORTS))
        losses = np.moveaxis(curves[:, due, :1] - curves[:, due, 1 : 1 + N_KEPT_HORIZONS], 0, 1)
        column["losses"][rows[due]] = np.clip(losses, -MOST_SPANS, MOST_SPANS)
        column["newest"][rows[due]] = view.newest[due]
        column["unit"][rows[due]] = view.unit[due]
        column["in_logs"][rows[due]] = view.in_logs[due]
        column["forecast_at"][rows[due]] = view.total[due]
        column["scored_at"][rows[due]] = view.total[due]

    def behind(self, rows: IntArray, total: IntArray) -> IntArray:
        """Return how many reports (n_jobs,) to go back for a backcast that can be scored."""
        forecast_at = self.column["forecast_at"][rows]
        lacks = np.where(
            forecast_at == 0, total >= 2 * FEWEST_REPORTS, total - forecast_at > 2 * CYCLE_REPORTS
        )
        return np.where(lacks, np.minimum(CYCLE_REPORTS, total // 2), 0)
