"""Ensemble of experts, each of which forecasts the curves of many jobs at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast.experts.basis import BETWEEN, BasisCurves, product, recent, whole_run
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, CurveForecast
from dask_slaq.core.job_arrays import FloatArray

#: Drops below this fraction of the window's span are treated as rounding errors.
ROUNDING = 1e-15
#: Weight of a report in the regressions on drops, relative to a report one iteration newer.
DROP_MEMORY = 0.8
#: Maximum log ratio of the level to the newest report.
MOST_LOG = 5.0
#: Reports used by the fast expert and the regressions on drops; older ones have hardly any weight.
SHORT = 20


class Ensemble:
    """Seven experts in a fixed order.

    * *geometric*, *power*: weighted linear regression of log drops on time, or on the log of the
      iteration. Accurate on smooth curves, useless under noise.
    * *fast*, *slow*, *whole*: variable projection onto a grid of curves, fitted to recent
      reports, to a long memory, or to means over the whole run. Their curves need not pass
      through the newest report, which makes them robust to noise.
    * *fast*, *slow* *in logs*: the same fits to log losses, for losses bounded by zero.
    """

    #: Error that noise of standard deviation 1 adds to the forecast of each expert. A backtest over
    #: a few noisy reports cannot measure it.
    noise_cost: FloatArray = np.array([10.0, 10.0, 1.2, 0.3, 0.1, 1.2, 0.3])

    def __init__(self, window: int, n_means: int) -> None:
        self._fast = BasisCurves(min(window, SHORT), 0.7)
        self._slow = BasisCurves(window, 0.9)
        self._whole = BasisCurves(n_means, 0.9)

    def ask(self, view: NormalizedWindow) -> FloatArray:
        """Return forecasts (n_experts, n_jobs, 1 + n_horizons): levels, then falls."""
        drops = log_drops(view)
        slow = recent(view, self._slow)
        found = [
            geometric(view, drops),
            power(view, drops),
            recent(view, self._fast),
            slow,
            whole_run(view, self._whole),
            in_logs(view, self._fast, slow),
            in_logs(view, self._slow, slow),
        ]
        return np.stack([np.column_stack(_above_zero(curve, view)) for curve in found])


def _above_zero(curve: CurveForecast, view: NormalizedWindow) -> CurveForecast:
    """Clip a forecast at a loss of zero; `view.zero` is far below for unbounded losses."""
    level = np.maximum(curve.level, view.zero)
    return CurveForecast(level, np.minimum(curve.fall, (level - view.zero)[:, None]))


class Drops(NamedTuple):
    """Logs of the drops between successive reports, newest first."""

    log: FloatArray  # (n_jobs, window - 1)
    weight: FloatArray  # (n_jobs, window - 1), 0 where the loss did not fall
    net: FloatArray  # (n_jobs,) net fall over gross fall, in [0, 1]


def log_drops(view: NormalizedWindow) -> Drops:
    """Return the weighted logs of the drops of each job."""
    losses = view.losses[:, :SHORT]
    drops = losses[:, 1:] - losses[:, :-1]
    age = np.arange(drops.shape[1])
    weight = np.where(age < view.known[:, None] - 1, DROP_MEMORY**age, 0.0)
    falls = drops > ROUNDING
    gross = (weight * np.where(falls, drops, 0.0)).sum(axis=1)
    net = np.maximum((weight * drops).sum(axis=1), 0.0)
    # Rises have no log: they have weight 0 in the regression, and `net` lowers its result instead.
    ratio = np.divide(net, gross, out=np.zeros_like(net), where=gross > 0)
    log = np.log(np.where(falls, drops, 1.0))
    return Drops(log, np.where(falls, weight, 0.0), np.minimum(ratio, 1.0))


def geometric(view: NormalizedWindow, drops: Drops) -> CurveForecast:
    """Forecast drops that shrink by a constant factor per iteration: log drop = a + b t."""
    time = -np.arange(drops.log.shape[1], dtype=np.float64)
    a, b = _line(np.broadcast_to(time, drops.log.shape), drops, 0.0, 1e-9)
    b = np.minimum(b, -0.5 / view.total)[:, None]
    first = np.exp(np.minimum(a[:, None] + b, 0.0)) * drops.net[:, None]
    fall = first * np.expm1(b * HORIZONS) / np.expm1(b)
    return CurveForecast(np.zeros(len(fall)), fall)


def power(view: NormalizedWindow, drops: Drops) -> CurveForecast:
    """Forecast drops that shrink as a power of the iteration: log drop = a + b log i."""
    now = np.maximum(view.total[:, None] - 1.0, 1.0)
    # Relative to the present iteration, so that exp(a) is the present drop.
    x = np.log(np.maximum(now - np.arange(drops.log.shape[1]), 1.0) / now)
    a, b = _line(x, drops, -1.5, 1e-3)
    q = 1.0 + np.clip(b, -20.0, -0.2)[:, None]
    q = np.where(np.abs(q) < 1e-6, 1e-6, q)
    present = np.exp(np.minimum(a, 0.0)) * drops.net
    # Sum of the coming drops, approximated by an integral with the midpoint rule.
    middle = now + 0.5
    height = present[:, None] * middle * (middle / now) ** (q - 1.0)
    fall = height * np.expm1(q * np.log1p(HORIZONS / middle)) / q
    return CurveForecast(np.zeros(len(fall)), fall)


def in_logs(view: NormalizedWindow, atoms: BasisCurves, otherwise: CurveForecast) -> CurveForecast:
    """Forecast log losses as a mixture of basis curves, `otherwise` where zero is no bound."""
    logs = view._replace(losses=view.logs, noise=view.log_noise)
    log_level, log_fall = recent(logs, atoms, atoms.coarse_fall)
    above, log_level = -view.zero, np.minimum(log_level, MOST_LOG)
    fall = (above * np.exp(log_level))[:, None] * -np.expm1(-log_fall)
    bounded = view.zero > -MOST
    return CurveForecast(
        np.where(bounded, above * np.expm1(log_level), otherwise.level),
        np.where(bounded[:, None], product(fall, BETWEEN), otherwise.fall),
    )


def _line(x: FloatArray, drops: Drops, prior: float, pull: float) -> tuple[FloatArray, FloatArray]:
    """Return height at x = 0 and slope of a line fitted to log drops, `pull`ed towards `prior`."""
    weight = drops.weight
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean_x = (weight * x).sum(axis=1) / total
    mean_y = (weight * drops.log).sum(axis=1) / total
    pulled = weight * (x - mean_x[:, None])
    sxx = (pulled * x).sum(axis=1)
    sxy = (pulled * drops.log).sum(axis=1)
    slope = (sxy + pull * prior) / (np.maximum(sxx, 0.0) + pull)
    return mean_y - slope * mean_x, slope
