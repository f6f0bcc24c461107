"""Variable projection: closed-form least-squares fits of curves from a fixed grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast.history import MOST_SPANS, NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, CurveForecast, interpolation
from dask_slaq.core.jobs.arrays import FloatArray, IntArray

#: (n_horizons // 2 + 1, n_horizons): linear interpolation from every second horizon to all.
BETWEEN = interpolation(HORIZONS, HORIZONS[::2])


class BasisCurves:
    """Grid of decreasing basis curves: exponentials e^(-rho t) and powers (1 + t/s)^-p."""

    def __init__(self, window: int, memory: float) -> None:
        rho = np.geomspace(0.25 / window, 2.0, 8)
        s = np.geomspace(2.0, 32.0 * window, 10)
        p = np.array([0.5, 1.5])
        n_powers = len(s) * len(p)
        self.rho = np.concatenate([rho, np.zeros(n_powers)])
        self.s = np.concatenate([np.full(len(rho), np.inf), np.repeat(s, len(p))])
        self.p = np.concatenate([np.zeros(len(rho)), np.tile(p, len(s))])
        self.time_scale = 1.0 / (self.rho + self.p / self.s)
        self.weight: FloatArray = memory ** np.arange(window, dtype=np.float64)
        t = -np.arange(window, dtype=np.float64)[:, None]
        reached = t > -self.s  # the pole of a power is at -s
        base = np.where(reached, 1.0 + t / self.s, 1.0)
        #: (window, n_curves), 0 beyond the pole
        self.past = np.where(reached, base**-self.p * np.exp(-self.rho * t), 0.0)
        #: (n_curves, n_horizons), fall of each curve from 1 at the present
        self.fall = -np.expm1(self.log(np.arange(len(self.rho)), HORIZONS))
        #: (n_curves, n_horizons // 2 + 1), at every second horizon
        self.coarse_fall = np.ascontiguousarray(self.fall[:, ::2])
        # Sums over the newest 0, 1, 2, … reports.
        w = self.weight[:, None]
        self.sum_w = np.maximum(_running(w), 1e-300)  # (window + 1, 1)
        self.n_effective = self.sum_w**2 / np.maximum(_running(w**2), 1e-300)
        #: (window + 1, n_curves) each
        self.mean = _running(w * self.past) / self.sum_w
        variance = _running(w * self.past**2) - self.sum_w * self.mean**2
        known = np.arange(window + 1)[:, None]
        sure = (self.s > known - 0.5) & (variance > 1e-12)
        self.per_variance = np.where(sure, 1.0 / np.where(sure, variance, 1.0), 0.0)

    def log(self, atom: IntArray, t: FloatArray) -> FloatArray:
        """Return the logs (..., k, n) of the curves `atom` (..., k) at times `t` (..., n) >= 0."""
        t = t[..., None, :]
        rho, s, p = (a[atom][..., None] for a in (self.rho, self.s, self.p))
        # Bounded below, since subnormal numbers make products many times slower.
        return np.maximum(-rho * t - p * np.log1p(t / s), -60.0)


def _running(terms: FloatArray) -> FloatArray:
    """Return the sums over the first 0, 1, 2, … rows."""
    return np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)])


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply matrices so that each row of the result depends only on that row of `left`.

    On many processors BLAS rounds the last rows differently, and blocks of equal size are also too
    small for its threads, which would wait by spinning.
    """
    rows = len(left)
    # Rows per block of a matrix product.
    block = 32
    padded = -(-rows // block) * block
    if padded != rows:
        left = np.concatenate([left, np.zeros((padded - rows, left.shape[1]))])
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty((padded, right.shape[1]))
    for i in range(0, padded, block):
        np.matmul(left[i : i + block], right, out=out[i : i + block])
    return out[:rows]


class Fit(NamedTuple):
    """Fits of loss = base + factor * curve, for every basis curve."""

    mean: FloatArray  # (n_jobs,) weighted mean of the losses: base + factor * mean of the curve
    factor: FloatArray  # (n_jobs, n_curves), >= 0, so that the curve falls
    share: FloatArray  # (n_jobs, n_curves) weight by evidence, sums to 1


def project(losses: FloatArray, known: IntArray, length: FloatArray, atoms: BasisCurves) -> Fit:
    """Fit all basis curves to the `known` (n_jobs,) columns of `losses`, in one matrix product."""
    weight = np.where(np.arange(losses.shape[1]) < known[:, None], atoms.weight, 0.0)
    mean = (weight * losses).sum(axis=1, keepdims=True) / atoms.sum_w[known]
    centred = losses - mean
    weight *= centred
    variance = (weight * centred).sum(axis=1, keepdims=True)
    cov = np.maximum(product(weight, atoms.past), 0.0)
    factor = cov * atoms.per_variance[known]
    # Maximum time scale of a basis curve, in lengths of the history: longer ones are not
    # determined.
    factor *= atoms.time_scale < 1.5 * length[:, None] + 1.0
    # Fraction of the variance explained by each curve; 0 for a curve that cannot be fitted.
    cov *= factor / np.where(variance > 0, variance, 1.0)
    unexplained = np.maximum(1.0 - cov, 1e-9)
    # Likelihood of the fit, its exponent halved because successive residuals are correlated.
    evidence = np.log(unexplained, out=unexplained)
    evidence *= -0.5 * atoms.n_effective[known]
    evidence -= evidence.max(axis=1, keepdims=True)
    share = np.exp(np.maximum(evidence, -40.0))
    share /= share.sum(axis=1, keepdims=True)
    return Fit(mean[:, 0], factor, share)


def recent(
    view: NormalizedWindow, atoms: BasisCurves, fall: FloatArray | None = None
) -> CurveForecast:
    """Forecast by a mixture of basis curves, weighted by evidence in the newest reports."""
    n = len(atoms.weight)
    known = np.minimum(view.known, n)
    fit = project(view.losses[:, :n], known, view.total.astype(np.float64), atoms)
    amount = fit.share * fit.factor
    # Each basis curve is 1 at the present.
    level = fit.mean + (amount * (1.0 - atoms.mean)[known]).sum(axis=1)
    fall = atoms.fall if fall is None else fall
    return CurveForecast(_near_newest(level, view), product(amount, fall))


def _near_newest(level: FloatArray, view: NormalizedWindow) -> FloatArray:
    """Clip levels to the range that noise explains: none on a smooth curve."""
    # Maximum distance of the level from the newest report, in standard deviations of the noise.
    most = 3.0 * view.noise
    return np.clip(level, -most, most)


def whole_run(view: NormalizedWindow, atoms: BasisCurves) -> CurveForecast:
    """Forecast by the best basis curves, weighted by evidence in means over the whole run."""
    fit = project(view.means, view.means_known, view.total / view.stride, atoms)
    # Basis curves kept per job by `whole_run`, which must evaluate them on each job's own time
    # axis.
    n_best = 2
    best = np.argpartition(-fit.share, n_best - 1, axis=1)[:, :n_best]
    share, factor = (np.take_along_axis(a, best, axis=1) for a in (fit.share, fit.factor))
    share = share / share.sum(axis=1, keepdims=True)
    # Each job has its own time axis, which is costly: compute only every second horizon.
    time = (view.age[:, None] + HORIZONS[::2]) / view.stride[:, None]
    log = atoms.log(best, time)
    amount = share * factor
    now = np.exp(log[:, :, 0])
    level = fit.mean + (amount * (now - atoms.mean[view.means_known[:, None], best])).sum(axis=1)
    fall = ((amount * now)[:, :, None] * -np.expm1(log - log[:, :, :1])).sum(axis=1)
    return CurveForecast(_near_newest(level, view), product(fall, BETWEEN))


#: Reports used by the fast expert and the regressions on drops; older ones have hardly any weight.
SHORT_REPORTS = 20


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
        self._fast = BasisCurves(min(window, SHORT_REPORTS), 0.7)
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
    losses = view.losses[:, :SHORT_REPORTS]
    drops = losses[:, 1:] - losses[:, :-1]
    age = np.arange(drops.shape[1])
    # Weight of a report in the regressions on drops, relative to a report one iteration newer.
    weight = np.where(age < view.known[:, None] - 1, 0.8**age, 0.0)
    # Drops below this fraction of the window's span are treated as rounding errors.
    falls = drops > 1e-15
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
    # Maximum log ratio of the level to the newest report.
    above, log_level = -view.zero, np.minimum(log_level, 5.0)
    fall = (above * np.exp(log_level))[:, None] * -np.expm1(-log_fall)
    bounded = view.zero > -MOST_SPANS
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
