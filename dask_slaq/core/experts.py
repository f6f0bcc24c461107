"""Experts: each turns the recent losses of many jobs into forecasts of all of them at once.

A belief is the present level, (n_jobs,), and the fall from there,
(n_jobs, n_horizons): 0 at horizon 0, nondecreasing and concave up to rounding, both in the
units of the view.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.view import View

__all__ = ["HORIZONS", "Belief", "Panel"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Iterations ahead that a forecast lists: dense near the present, then by a fixed ratio.
HORIZONS: FloatArray = np.array(
    [
        *(0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 47, 60, 78, 100, 150, 220, 330, 500),
        *(750, 1100, 1700, 2500, 3800, 5700, 8500, 13e3, 20e3, 30e3, 45e3, 67e3, 100e3),
    ],
)
#: Smaller drops, as a fraction of the window's span, are rounding.
ROUNDING = 1e-15
#: Memory of the regressions on drops: weight of a report one iteration older.
DROP_MEMORY = 0.85
#: Longest time scale of an atom, in lengths of the history: little is known beyond it.
LONGEST = 1.5
#: Atoms of the whole-run expert that are kept: each job has its own time axis there.
BEST = 3
#: Rows of a matrix product that are done at a time.
BLOCK = 32


class Belief(NamedTuple):
    """What one expert says."""

    level: FloatArray  # (n_jobs,)
    fall: FloatArray  # (n_jobs, n_horizons)


class Panel:
    """The experts that are asked, in a fixed order.

    * *hold*: nothing changes.
    * *geometric*, *power*: a weighted line through the logs of the drops, over time or over the
      log of the iteration. Sharp on smooth curves, lost in noise.
    * *fast*, *slow*, *whole*: variable projection on a grid of curves, by recent reports, by a
      long memory, and by means over the whole run. They do not pass through the newest report,
      which is what survives noise.

    Parameters
    ----------
    window : int
        Reports in a view.
    n_means : int
        Means of the whole run in a view.
    """

    #: Error that noise of standard deviation 1 adds to each forecast: what a backtest over a
    #: few noisy reports cannot tell apart.
    noise_cost: FloatArray = np.array([1.0, 4.0, 4.0, 0.8, 0.3, 0.1])

    def __init__(self, window: int, n_means: int) -> None:
        self._fast = Atoms(window, 0.7)
        self._slow = Atoms(window, 0.9)
        self._whole = Atoms(n_means, 0.9)

    def ask(self, view: View) -> list[Belief]:
        """Return the belief of each expert."""
        drops = log_drops(view)
        return [
            hold(view),
            geometric(view, drops),
            power(view, drops),
            recent(view, self._fast),
            recent(view, self._slow),
            whole_run(view, self._whole),
        ]


def hold(view: View) -> Belief:
    """Nothing will change."""
    n = len(view.known)
    return Belief(np.zeros(n), np.zeros((n, len(HORIZONS))))


class Drops(NamedTuple):
    """Logs of the drops between successive reports, newest first."""

    log: FloatArray  # (n_jobs, window - 1)
    weight: FloatArray  # (n_jobs, window - 1), 0 where the loss did not fall
    net: FloatArray  # (n_jobs,) net fall over gross fall, in [0, 1]


def log_drops(view: View) -> Drops:
    """Weigh the drops of each job and take their logs."""
    drops = view.losses[:, 1:] - view.losses[:, :-1]
    age = np.arange(drops.shape[1])
    weight = np.where(age < view.known[:, None] - 1, DROP_MEMORY**age, 0.0)
    falls = drops > ROUNDING
    gross = (weight * np.where(falls, drops, 0.0)).sum(axis=1)
    net = np.maximum((weight * drops).sum(axis=1), 0.0)
    # Rises have no log. They are left out of the line and taken off its height instead.
    ratio = np.divide(net, gross, out=np.zeros_like(net), where=gross > 0)
    log = np.log(np.where(falls, drops, 1.0))
    return Drops(log, np.where(falls, weight, 0.0), np.minimum(ratio, 1.0))


def geometric(view: View, drops: Drops) -> Belief:
    """Drops shrink by a constant factor an iteration: log drop = a + b t."""
    time = -np.arange(drops.log.shape[1], dtype=np.float64)
    a, b = _line(np.broadcast_to(time, drops.log.shape), drops, 0.0, 1e-9)
    b = np.minimum(b, -0.5 / view.total)[:, None]
    first = np.exp(np.minimum(a[:, None] + b, 0.0)) * drops.net[:, None]
    fall = first * np.expm1(b * HORIZONS) / np.expm1(b)
    return Belief(np.zeros(len(fall)), fall)


def power(view: View, drops: Drops) -> Belief:
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
    return Belief(np.zeros(len(fall)), fall)


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


class Atoms:
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
        rho = np.geomspace(0.25 / window, 2.0, 14)
        s = np.geomspace(2.0, 32.0 * window, 24)
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


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Matrix product in blocks of rows, each too small for BLAS to split over threads.

    Its threads wait by spinning, which on busy cores takes far longer than the product.
    """
    out = np.empty((len(left), right.shape[1]))
    for i in range(0, len(left), BLOCK):
        np.matmul(left[i : i + BLOCK], right, out=out[i : i + BLOCK])
    return out


class Fit(NamedTuple):
    """Fit of loss = base + factor * atom for every atom."""

    mean: FloatArray  # (n_jobs,) weighted mean of the losses: base + factor * mean of the atom
    factor: FloatArray  # (n_jobs, n_atoms), >= 0, so that the curve falls
    share: FloatArray  # (n_jobs, n_atoms), sums to 1: weight of the evidence


def project(losses: FloatArray, known: IntArray, length: FloatArray, atoms: Atoms) -> Fit:
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
    cov = np.maximum(_product(weight, atoms.past), 0.0)
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


def recent(view: View, atoms: Atoms) -> Belief:
    """Mix the atoms by their evidence in the newest reports."""
    fit = project(view.losses, view.known, view.total.astype(np.float64), atoms)
    amount = fit.share * fit.factor
    # An atom is 1 at the present.
    level = fit.mean + (amount * (1.0 - atoms.mean)[view.known]).sum(axis=1)
    return Belief(level, _product(amount, atoms.fall))


def whole_run(view: View, atoms: Atoms) -> Belief:
    """Mix the best atoms by their evidence in means over the whole run."""
    fit = project(view.means, view.means_known, view.total / view.stride, atoms)
    best = np.argpartition(-fit.share, BEST - 1, axis=1)[:, :BEST]
    share, factor = (np.take_along_axis(a, best, axis=1) for a in (fit.share, fit.factor))
    share = share / share.sum(axis=1, keepdims=True)
    time = (view.age[:, None] + HORIZONS) / view.stride[:, None]
    log = atoms.log(best, time)
    amount = share * factor
    now = np.exp(log[:, :, 0])
    level = fit.mean + (amount * (now - atoms.mean[view.means_known[:, None], best])).sum(axis=1)
    fall = ((amount * now)[:, :, None] * -np.expm1(log - log[:, :, :1])).sum(axis=1)
    return Belief(level, fall)
