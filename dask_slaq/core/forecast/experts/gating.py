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
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS
from dask_slaq.core.job_arrays import FloatArray, IntArray

#: Columns of the horizons at which the experts' forecasts are features.
NEXT, NEAR, FAR = (int(i) for i in np.searchsorted(HORIZONS, (1, 10, 100)))
#: Ages of the reports that are features.
AGES: IntArray = np.array([1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 30])
#: Number of experts, from the last, whose level can differ from the newest report.
PROJECTIONS = 5
#: Number of newest changes that are features.
CHANGES = 8
#: Features are clipped at this many standard deviations.
MOST_UNUSUAL = 4.0
#: Maximum shift of the level, in standard deviations of the noise.
MOST_SHIFT = 2.0
#: Maximum log factor on a forecast, in standard deviations of the log of the loss.
MOST_SCALE = 1.5


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
    np.clip(x, -MOST_UNUSUAL, MOST_UNUSUAL, out=x)
    hidden = np.maximum(product(x, by["inner"]) + by["inner_bias"], 0.0)
    out = product(hidden, by["outer"]) + by["outer_bias"]
    return mixture(out, log_weight, view.noise, view.log_noise)


def mixture(
    out: FloatArray, log_weight: FloatArray, noise: FloatArray, log_noise: FloatArray
) -> Mixture:
    """Convert the raw outputs (n_jobs, 2 n_experts + 3) of the network, which are unbounded."""
    n = log_weight.shape[1]
    return Mixture(
        softmax(log_weight + out[:, :n]),
        softmax(log_weight + out[:, n : 2 * n]),
        np.exp(np.tanh(out[:, 2 * n])),
        MOST_SHIFT * np.tanh(out[:, 2 * n + 1]) * noise,
        np.exp(MOST_SCALE * np.tanh(out[:, 2 * n + 2]) * np.minimum(log_noise, 1.0)),
    )


def blend(curves: FloatArray, by: Mixture, zero: FloatArray) -> FloatArray:
    """Combine the experts' forecasts, as in `gate`, into one (n_jobs, 1 + n_horizons)."""
    weight = by.weight * (by.factor * by.scale)[:, None]
    mixed: FloatArray = np.einsum("je,eji->ji", weight, curves)
    level = (by.level_weight.T * curves[:, :, 0]).sum(axis=0) + by.shift
    mixed[:, 0] = level + (by.scale - 1.0) * (level - zero)
    np.minimum(mixed, MOST, out=mixed)
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
    level = curves[-PROJECTIONS:, :, 0].T / (view.noise[:, None] + 1e-3)
    oldest = view.losses.shape[1] - 1
    change = np.diff(view.losses[:, np.minimum(np.arange(CHANGES + 1), oldest)], axis=1)
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
