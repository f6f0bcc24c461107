"""The gate: a small network that mixes the experts of each job by what is seen of its curve.

It was trained on curves of other jobs (`benchmarks.gate_training`). Whatever it says, a forecast
lies within a bounded factor of what the experts said, a larger one under noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.basis import product
from dask_slaq.core.forecast.curve_forecast import HORIZONS
from dask_slaq.core.forecast.gating_coefficients import COEFFICIENTS
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow

__all__ = ["GatingNetwork", "Mixture", "blend", "features", "mixture"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Columns of the horizons at which the experts' forecasts are looked at.
NEXT, NEAR, FAR = (int(i) for i in np.searchsorted(HORIZONS, (1, 10, 100)))
#: Ages of the reports that are looked at.
AGES: IntArray = np.array([1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 30])
#: Experts, the last ones, whose level is not the newest report.
PROJECTIONS = 5
#: Newest changes that are looked at.
CHANGES = 8
#: Features are cut at so many standard deviations.
MOST_UNUSUAL = 4.0
#: The level is moved by so many standard deviations of the noise at most.
MOST_SHIFT = 2.0
#: A forecast is moved by so many standard deviations of the log of the loss at most.
MOST_SCALE = 1.5


class Mixture(NamedTuple):
    """Outputs of the gate, in units of the view."""

    weight: FloatArray  # (n_jobs, n_experts) of their falls, sums to 1
    level_weight: FloatArray  # (n_jobs, n_experts) of their levels, sums to 1
    factor: FloatArray  # (n_jobs,) of the mixed fall, from 1/e to e
    shift: FloatArray  # (n_jobs,) of the mixed level
    scale: FloatArray  # (n_jobs,) of the forecast above zero, 1 where nothing bounds it


class GatingNetwork:
    """One hidden layer of rectified linear units, with coefficients that were trained before.

    Parameters
    ----------
    coefficients : mapping of str to array
        ``mean`` and ``deviation`` of the features, and weights and biases of both layers:
        ``inner`` (n_features, n_hidden), ``inner_bias``, ``outer`` (n_hidden, 2 n_experts + 3),
        ``outer_bias``. Those of the package by default.
    """

    def __init__(self, coefficients: dict[str, FloatArray] | None = None) -> None:
        self._by = COEFFICIENTS if coefficients is None else coefficients

    def mix(self, view: NormalizedWindow, said: FloatArray, log_weight: FloatArray) -> Mixture:
        """Weigh what the experts said.

        Parameters
        ----------
        view : View
        said : (n_experts, n_jobs, 1 + n_horizons) array
            Level, and fall at each horizon, in the units of the view.
        log_weight : (n_jobs, n_experts) array
            Logs of the experts' weights by their backtest, up to a constant.
        """
        by = self._by
        x = (features(view, said, log_weight) - by["mean"]) / by["deviation"]
        np.clip(x, -MOST_UNUSUAL, MOST_UNUSUAL, out=x)
        hidden = np.maximum(product(x, by["inner"]) + by["inner_bias"], 0.0)
        return mixture(
            product(hidden, by["outer"]) + by["outer_bias"], log_weight, view.noise, view.log_noise
        )


def mixture(
    out: FloatArray, log_weight: FloatArray, noise: FloatArray, log_noise: FloatArray
) -> Mixture:
    """Turn the outputs of the network, (n_jobs, 2 n_experts + 3), into a mixture."""
    n = log_weight.shape[1]
    return Mixture(
        softmax(log_weight + out[:, :n]),
        softmax(log_weight + out[:, n : 2 * n]),
        np.exp(np.tanh(out[:, 2 * n])),
        MOST_SHIFT * np.tanh(out[:, 2 * n + 1]) * noise,
        np.exp(MOST_SCALE * np.tanh(out[:, 2 * n + 2]) * np.minimum(log_noise, 1.0)),
    )


def blend(said: FloatArray, by: Mixture, zero: FloatArray) -> FloatArray:
    """Mix what the experts said, (n_experts, n_jobs, 1 + n_horizons), to one belief a job."""
    weight = by.weight * (by.factor * by.scale)[:, None]
    belief: FloatArray = np.einsum("je,eji->ji", weight, said)
    level = (by.level_weight.T * said[:, :, 0]).sum(axis=0) + by.shift
    belief[:, 0] = level + (by.scale - 1.0) * (level - zero)
    np.minimum(belief, MOST, out=belief)
    return belief


def softmax(logs: FloatArray) -> FloatArray:
    """Weights, each row summing to 1, of which `logs` are the logs up to a constant."""
    weight: FloatArray = np.exp(logs - logs.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


def features(view: NormalizedWindow, said: FloatArray, log_weight: FloatArray) -> FloatArray:
    """What the gate sees of each job: nothing that depends on the unit of its losses.

    Returns
    -------
    (n_jobs, n_features) array
    """
    fall = np.log(np.maximum(said[:, :, [1 + NEXT, 1 + NEAR, 1 + FAR]], 0.0) + 1e-4).T
    near = fall[1]
    level = said[-PROJECTIONS:, :, 0].T / (view.noise[:, None] + 1e-3)
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
