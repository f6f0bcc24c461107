"""Training examples for the gating network of the loss predictor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasting.scores import prepare
from dask_slaq.core.forecast.experts.basis import Ensemble
from dask_slaq.core.forecast.experts.gating import Backtest, features
from dask_slaq.core.forecast.history import Histories, normalize_window
from dask_slaq.core.forecast.types import HORIZONS
from dask_slaq.lab.simulation.workload.curves import LossCurve

Array = NDArray[np.float64]

#: Horizons in the cost, and their weights.
AHEAD = np.array([1, 3, 5, 10, 22, 47, 100, 220])
IMPORTANCE = np.array([0.7, 0.5, 0.7, 2.0, 0.7, 0.5, 0.4, 0.4])
AT = np.searchsorted(HORIZONS, AHEAD)
#: Reports before the first lesson, and the minimum length with which a curve is weighted.
FIRST, SHORT = 4, 30
#: Minimum absolute loss in relative errors, as a fraction of the curve's range.
NEAREST = 1e-4
#: Relative errors of a curve are divided by max(its mean relative change, LEAST_MOVE) ** EVENNESS.
#: Otherwise the few curves that end near zero would dominate.
LEAST_MOVE, EVENNESS = 0.01, 0.75
#: Changes count equally, except those much smaller than this fraction of the range.
SMALL = 0.005
WINDOW = 32


class Lessons(NamedTuple):
    """Lessons: inputs of the network, forecasts of the experts, and true losses, normalized.

    The cost of an error is the sum of the error relative to the range of the curve, relative to the
    loss and, for smooth curves, relative to the true change.
    """

    x: Array  # (n, n_features)
    log_weight: Array  # (n, n_experts)
    level: Array  # (n, n_experts)
    fall: Array  # (n, n_experts, n_ahead)
    noise: Array  # (n,)
    zero: Array  # (n,)
    log_noise: Array  # (n,)
    truth: Array  # (n, n_ahead)
    cost: Array  # (n, n_ahead), per unit of error; 0 beyond the end of the curve

    def of(self, which: Any) -> Lessons:
        """Select some of the lessons."""
        return Lessons._make(array[which] for array in self)


def lessons(curves: Sequence[LossCurve]) -> Lessons:
    """Run the experts on all curves, and record their forecasts at every iteration."""
    trials = prepare(curves)
    losses = [trial.curve.loss for trial in trials]
    history, panel = Histories(WINDOW), Ensemble(WINDOW, WINDOW)
    backtest = Backtest(panel.noise_cost)
    rows = np.array([history.acquire() for _ in trials])
    for _ in trials:
        backtest.acquire()
    parts, raw = [], []
    for k in range(1, max(map(len, losses))):
        going = np.array([i for i, loss in enumerate(losses) if k < len(loss)])
        history.append(rows[going], np.array([losses[i][k - 1] for i in going]))
        view = normalize_window(history, rows[going], np.zeros(len(going), dtype=np.int64))
        backtest.score(rows[going], view)
        said = panel.ask(view)
        backtest.remember(rows[going], view, said)
        if k < FIRST:
            continue
        log_weight = backtest.log_weights(rows[going])
        came = np.array([_came(losses[i], k) for i in going])
        truth = (came - view.newest[:, None]) / view.unit[:, None]
        x = features(view, said, log_weight)
        fall = np.moveaxis(said[:, :, 1 + AT], 0, 1)
        parts.append(
            (x, log_weight, said[:, :, 0].T, fall, view.noise, view.zero, view.log_noise, truth)
        )
        raw.append((going, view.unit, came))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    which, unit, came = (np.concatenate(column) for column in zip(*raw, strict=True))
    cost = _costs(trials, which, unit, came, columns[-1])
    columns[-1] = np.nan_to_num(columns[-1])
    return Lessons._make([*columns, cost])


def _came(loss: Array, k: int) -> Array:
    at = k - 1 + AHEAD
    return np.where(at < len(loss), loss[np.minimum(at, len(loss) - 1)], np.nan)


def _costs(trials: Any, which: Array, unit: Array, came: Array, truth: Array) -> Array:
    """Compute costs such that "no change" costs `IMPORTANCE` in each unit and kind of curve."""
    span = np.array([np.ptp(trial.curve.loss) for trial in trials])[which]
    noisy = np.array([trial.curve.noisy for trial in trials])[which]
    counts = np.bincount(which, minlength=len(trials))[which]
    cost = np.zeros(truth.shape)
    for kind in (False, True):
        for column in range(len(AHEAD)):
            known = (noisy == kind) & ~np.isnan(truth[:, column])
            weight = np.where(known, 1.0 / np.maximum(counts, SHORT), 0.0)
            moved = np.abs(np.nan_to_num(truth[:, column]))
            near = np.maximum(np.abs(np.nan_to_num(came[:, column])), NEAREST * span)
            relative = unit / near / _usual_move(which, known, unit / near * moved) ** EVENNESS
            own = unit / (unit * moved + SMALL * span)
            # In noisy curves, single changes are random.
            scales = (unit / span, relative) if kind else (unit / span, relative, own)
            for scale in scales:
                part = weight * scale
                cost[:, column] += IMPORTANCE[column] * part / max((part * moved).sum(), 1e-300)
    return cost * len(cost)


def _usual_move(which: Array, known: Array, moved: Array) -> Array:
    """Return the mean relative change of each lesson's curve."""
    total, count = np.bincount(which, known * moved), np.bincount(which, known)
    mean: Array = np.maximum(total / np.maximum(count, 1), LEAST_MOVE)[which]
    return mean
