"""Variable projection: fits of curves from a grid, in closed form but for the grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.curve_forecast import HORIZONS, CurveForecast
from dask_slaq.core.forecast.smoothing import NormalizedWindow

__all__ = ["BETWEEN", "BasisCurves", "product", "recent", "whole_run"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Longest time scale of an atom, in lengths of the history: little is known beyond it.
LONGEST = 1.5
#: Atoms of the whole-run expert that are kept: each job has its own time axis there.
BEST = 2
#: The newest report lies within so many standard deviations of the level.
LEVEL_NOISE = 3.0
#: Rows of a matrix product that are done at a time.
BLOCK = 32


class BasisCurves:
    """Decreasing curves on a grid: exponentials e^(-rho t) and powers (1 + t/s)^-p.

    `t` is in iterations from now, negative in the past. Fitting loss = base + factor * atom has
    a closed form, and its sums over the atoms depend only on how many reports are known, so
    they are tabled here once.

    Parameters
    ----------
    window : int
    memory : float
        Weight of a report that is one iteration older, in (0, 1].
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
        reached = t > -self.s  # a power has its pole at -s
        base = np.where(reached, 1.0 + t / self.s, 1.0)
        #: (window, n_atoms), 0 beyond the pole
        self.past = np.where(reached, base**-self.p * np.exp(-self.rho * t), 0.0)
        #: (n_atoms, n_horizons), from 1 at the present
        self.fall = -np.expm1(self.log(np.arange(len(self.rho)), HORIZONS))
        #: (n_atoms, n_horizons // 2 + 1), at every second horizon
        self.coarse_fall = np.ascontiguousarray(self.fall[:, ::2])
        # Sums over the newest 0, 1, 2, … reports.
        w = self.weight[:, None]
        self.sum_w = np.maximum(_running(w), 1e-300)  # (window + 1, 1)
        self.n_effective = self.sum_w**2 / np.maximum(_running(w**2), 1e-300)
        #: (window + 1, n_atoms) each
        self.mean = _running(w * self.past) / self.sum_w
        variance = _running(w * self.past**2) - self.sum_w * self.mean**2
        known = np.arange(window + 1)[:, None]
        sure = (self.s > known - 0.5) & (variance > 1e-12)
        self.per_variance = np.where(sure, 1.0 / np.where(sure, variance, 1.0), 0.0)

    def log(self, atom: IntArray, t: FloatArray) -> FloatArray:
        """Logs of atoms `atom`, (..., k), at times `t` >= 0, (..., n): (..., k, n)."""
        t = t[..., None, :]
        rho, s, p = (a[atom][..., None] for a in (self.rho, self.s, self.p))
        # Bounded below: subnormal numbers would make products many times slower.
        log: FloatArray = np.maximum(-rho * t - p * np.log1p(t / s), -60.0)
        return log


def _running(terms: FloatArray) -> FloatArray:
    """Sums over the first 0, 1, 2, … rows."""
    return np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)])


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply matrices in blocks of as many rows, so that a row of the product is the same to the
    last bit wherever it stands and whatever the others are.

    BLAS rounds the rows at the end of a matrix differently from others on many processors, and a
    decision must not depend on which row a job has. The blocks are too small for BLAS to split
    over threads: these wait by spinning, which on busy cores takes far longer than the product.
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
    """Fit of loss = base + factor * atom for every atom."""

    mean: FloatArray  # (n_jobs,) weighted mean of the losses: base + factor * mean of the atom
    factor: FloatArray  # (n_jobs, n_atoms), >= 0, so that the curve falls
    share: FloatArray  # (n_jobs, n_atoms), sums to 1: weight of the evidence


def project(losses: FloatArray, known: IntArray, length: FloatArray, atoms: BasisCurves) -> Fit:
    """Fit all atoms to all jobs by weighted least squares, in one matrix product.

    Parameters
    ----------
    losses : (n_jobs, window) array
    known : (n_jobs,) array
    length : (n_jobs,) array
        Length of the whole history, in columns of `losses`.
    atoms : Atoms
    """
    weight = np.where(np.arange(losses.shape[1]) < known[:, None], atoms.weight, 0.0)
    mean = (weight * losses).sum(axis=1, keepdims=True) / atoms.sum_w[known]
    centred = losses - mean
    weight *= centred
    variance = (weight * centred).sum(axis=1, keepdims=True)
    cov = np.maximum(product(weight, atoms.past), 0.0)
    factor = cov * atoms.per_variance[known]
    factor *= atoms.time_scale < LONGEST * length[:, None] + 1.0
    # Share of the variance that each atom explains; an atom that cannot be fitted explains none.
    cov *= factor / np.where(variance > 0, variance, 1.0)
    unexplained = np.maximum(1.0 - cov, 1e-9)
    # Likelihood of the best fit, its exponent halved: neighbours' residuals are not independent.
    evidence = np.log(unexplained, out=unexplained)
    evidence *= -0.5 * atoms.n_effective[known]
    evidence -= evidence.max(axis=1, keepdims=True)
    share = np.exp(np.maximum(evidence, -40.0))
    share /= share.sum(axis=1, keepdims=True)
    return Fit(mean[:, 0], factor, share)


def recent(
    view: NormalizedWindow, atoms: BasisCurves, fall: FloatArray | None = None
) -> CurveForecast:
    """Mix the atoms by their evidence in the newest reports.

    Parameters
    ----------
    view : View
    atoms : Atoms
    fall : (n_atoms, n) array, optional
        Their falls at the horizons that are wanted; at all of them by default.
    """
    n = len(atoms.weight)
    known = np.minimum(view.known, n)
    fit = project(view.losses[:, :n], known, view.total.astype(np.float64), atoms)
    amount = fit.share * fit.factor
    # An atom is 1 at the present.
    level = fit.mean + (amount * (1.0 - atoms.mean)[known]).sum(axis=1)
    fall = atoms.fall if fall is None else fall
    return CurveForecast(_near_newest(level, view), product(amount, fall))


def _near_newest(level: FloatArray, view: NormalizedWindow) -> FloatArray:
    """Levels within what noise can hide: a smooth curve is where its newest report is."""
    most = LEVEL_NOISE * view.noise
    return np.clip(level, -most, most)


def whole_run(view: NormalizedWindow, atoms: BasisCurves) -> CurveForecast:
    """Mix the best atoms by their evidence in means over the whole run."""
    fit = project(view.means, view.means_known, view.total / view.stride, atoms)
    best = np.argpartition(-fit.share, BEST - 1, axis=1)[:, :BEST]
    share, factor = (np.take_along_axis(a, best, axis=1) for a in (fit.share, fit.factor))
    share = share / share.sum(axis=1, keepdims=True)
    # Each job has its own time axis here: only every second horizon is computed.
    time = (view.age[:, None] + HORIZONS[::2]) / view.stride[:, None]
    log = atoms.log(best, time)
    amount = share * factor
    now = np.exp(log[:, :, 0])
    level = fit.mean + (amount * (now - atoms.mean[view.means_known[:, None], best])).sum(axis=1)
    fall = ((amount * now)[:, :, None] * -np.expm1(log - log[:, :, :1])).sum(axis=1)
    return CurveForecast(_near_newest(level, view), product(fall, BETWEEN))


#: (n_horizons // 2 + 1, n_horizons): linear interpolation from every second horizon to all.
BETWEEN: FloatArray = np.stack(
    [np.interp(HORIZONS, HORIZONS[::2], unit) for unit in np.eye(len(HORIZONS[::2]))]
)
