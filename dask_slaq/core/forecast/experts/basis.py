"""Variable projection: closed-form least-squares fits of curves from a fixed grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast.smoothing import NormalizedWindow
from dask_slaq.core.forecast.types import HORIZONS, CurveForecast, interpolation
from dask_slaq.core.job_arrays import FloatArray, IntArray

#: Maximum time scale of a basis curve, in lengths of the history: longer ones are not determined.
LONGEST = 1.5
#: Basis curves kept per job by `whole_run`, which must evaluate them on each job's own time axis.
BEST = 2
#: Maximum distance of the level from the newest report, in standard deviations of the noise.
LEVEL_NOISE = 3.0
#: Rows per block of a matrix product.
BLOCK = 32
#: (n_horizons // 2 + 1, n_horizons): linear interpolation from every second horizon to all.
BETWEEN = interpolation(HORIZONS, HORIZONS[::2])


class BasisCurves:
    """Grid of decreasing basis curves: exponentials e^(-rho t) and powers (1 + t/s)^-p.

    `t` is in iterations from now; a report has `memory` times the weight of the next one.
    """

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
        log: FloatArray = np.maximum(-rho * t - p * np.log1p(t / s), -60.0)
        return log


def _running(terms: FloatArray) -> FloatArray:
    """Return the sums over the first 0, 1, 2, … rows."""
    return np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)])


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply matrices so that each row of the result depends only on that row of `left`.

    On many processors BLAS rounds the last rows differently, and blocks of equal size are also too
    small for its threads, which would wait by spinning.
    """
    rows = len(left)
    padded = -(-rows // BLOCK) * BLOCK
    if padded != rows:
        left = np.concatenate([left, np.zeros((padded - rows, left.shape[1]))])
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    out = np.empty((padded, right.shape[1]))
    for i in range(0, padded, BLOCK):
        np.matmul(left[i : i + BLOCK], right, out=out[i : i + BLOCK])
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
    factor *= atoms.time_scale < LONGEST * length[:, None] + 1.0
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
    most = LEVEL_NOISE * view.noise
    return np.clip(level, -most, most)


def whole_run(view: NormalizedWindow, atoms: BasisCurves) -> CurveForecast:
    """Forecast by the best basis curves, weighted by evidence in means over the whole run."""
    fit = project(view.means, view.means_known, view.total / view.stride, atoms)
    best = np.argpartition(-fit.share, BEST - 1, axis=1)[:, :BEST]
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
