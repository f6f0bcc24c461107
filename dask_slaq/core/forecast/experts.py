"""Experts: each turns the recent losses of many jobs into forecasts of all of them at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.basis import BETWEEN, BasisCurves, product, recent, whole_run
from dask_slaq.core.forecast.curve_forecast import HORIZONS, CurveForecast
from dask_slaq.core.forecast.smoothing import MOST, NormalizedWindow

__all__ = ["Ensemble"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Smaller drops, as a fraction of the window's span, are rounding.
ROUNDING = 1e-15
#: Memory of the regressions on drops: weight of a report one iteration older.
DROP_MEMORY = 0.8
#: Most that the level may lie above the newest report, in logs.
MOST_LOG = 5.0
#: Reports that the fast expert and the regressions on drops look at: older ones weigh nothing.
SHORT = 20


class Ensemble:
    """The experts that are asked, in a fixed order.

    * *geometric*, *power*: a weighted line through the logs of the drops, over time or over the
      log of the iteration. Sharp on smooth curves, lost in noise.
    * *fast*, *slow*, *whole*: variable projection on a grid of curves, by recent reports, by a
      long memory, and by means over the whole run. They do not pass through the newest report,
      which is what survives noise.
    * *fast*, *slow* *in logs*: the same of the logs of losses that zero bounds.

    Parameters
    ----------
    window : int
        Reports in a view.
    n_means : int
        Means of the whole run in a view.
    """

    #: Error that noise of standard deviation 1 adds to each forecast: what a backtest over a
    #: few noisy reports cannot tell apart.
    noise_cost: FloatArray = np.array([10.0, 10.0, 1.2, 0.3, 0.1, 1.2, 0.3])

    def __init__(self, window: int, n_means: int) -> None:
        self._fast = BasisCurves(min(window, SHORT), 0.7)
        self._slow = BasisCurves(window, 0.9)
        self._whole = BasisCurves(n_means, 0.9)

    def ask(self, view: NormalizedWindow) -> list[CurveForecast]:
        """Return the belief of each expert."""
        drops = log_drops(view)
        slow = recent(view, self._slow)
        beliefs = [
            geometric(view, drops),
            power(view, drops),
            recent(view, self._fast),
            slow,
            whole_run(view, self._whole),
            in_logs(view, self._fast, slow),
            in_logs(view, self._slow, slow),
        ]
        return [_above_zero(belief, view) for belief in beliefs]


def _above_zero(belief: CurveForecast, view: NormalizedWindow) -> CurveForecast:
    """End the fall at a loss of zero, if the loss has one."""
    level = np.maximum(belief.level, view.zero)
    return CurveForecast(level, np.minimum(belief.fall, (level - view.zero)[:, None]))


class Drops(NamedTuple):
    """Logs of the drops between successive reports, newest first."""

    log: FloatArray  # (n_jobs, window - 1)
    weight: FloatArray  # (n_jobs, window - 1), 0 where the loss did not fall
    net: FloatArray  # (n_jobs,) net fall over gross fall, in [0, 1]


def log_drops(view: NormalizedWindow) -> Drops:
    """Weigh the drops of each job and take their logs."""
    losses = view.losses[:, :SHORT]
    drops = losses[:, 1:] - losses[:, :-1]
    age = np.arange(drops.shape[1])
    weight = np.where(age < view.known[:, None] - 1, DROP_MEMORY**age, 0.0)
    falls = drops > ROUNDING
    gross = (weight * np.where(falls, drops, 0.0)).sum(axis=1)
    net = np.maximum((weight * drops).sum(axis=1), 0.0)
    # Rises have no log. They are left out of the line and taken off its height instead.
    ratio = np.divide(net, gross, out=np.zeros_like(net), where=gross > 0)
    log = np.log(np.where(falls, drops, 1.0))
    return Drops(log, np.where(falls, weight, 0.0), np.minimum(ratio, 1.0))


def geometric(view: NormalizedWindow, drops: Drops) -> CurveForecast:
    """Drops shrink by a constant factor an iteration: log drop = a + b t."""
    time = -np.arange(drops.log.shape[1], dtype=np.float64)
    a, b = _line(np.broadcast_to(time, drops.log.shape), drops, 0.0, 1e-9)
    b = np.minimum(b, -0.5 / view.total)[:, None]
    first = np.exp(np.minimum(a[:, None] + b, 0.0)) * drops.net[:, None]
    fall = first * np.expm1(b * HORIZONS) / np.expm1(b)
    return CurveForecast(np.zeros(len(fall)), fall)


def power(view: NormalizedWindow, drops: Drops) -> CurveForecast:
    """Drops shrink as a power of the iteration: log drop = a + b log i."""
    now = np.maximum(view.total[:, None] - 1.0, 1.0)
    # Relative to now, so that exp(a) is the present drop however long the run is.
    x = np.log(np.maximum(now - np.arange(drops.log.shape[1]), 1.0) / now)
    a, b = _line(x, drops, -1.5, 1e-3)
    q = 1.0 + np.clip(b, -20.0, -0.2)[:, None]
    q = np.where(np.abs(q) < 1e-6, 1e-6, q)
    present = np.exp(np.minimum(a, 0.0)) * drops.net
    # The sum of the coming drops, as an integral by the midpoint rule.
    middle = now + 0.5
    height = present[:, None] * middle * (middle / now) ** (q - 1.0)
    fall = height * np.expm1(q * np.log1p(HORIZONS / middle)) / q
    return CurveForecast(np.zeros(len(fall)), fall)


def in_logs(view: NormalizedWindow, atoms: BasisCurves, otherwise: CurveForecast) -> CurveForecast:
    """The log of the loss is a mixture of atoms: right where noise is in proportion to the loss.

    Losses that zero does not bound are as the belief `otherwise` has them.
    """
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
    """Weighted line through the log drops of each job: height at x = 0, and slope.

    The slope is pulled to `prior` as by `pull` units of squared deviation of x.
    """
    weight = drops.weight
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean_x = (weight * x).sum(axis=1) / total
    mean_y = (weight * drops.log).sum(axis=1) / total
    pulled = weight * (x - mean_x[:, None])
    sxx = (pulled * x).sum(axis=1)
    sxy = (pulled * drops.log).sum(axis=1)
    slope = (sxy + pull * prior) / (np.maximum(sxx, 0.0) + pull)
    return mean_y - slope * mean_x, slope
