"""Experts: each turns the recent losses of many jobs into forecasts of all of them at once.

Losses come in as (n_jobs, window), newest first, in units in which the window spans 1 and the
newest report is 0. An expert returns the present level it believes in, (n_jobs,), and the fall
from there, (n_jobs, n_horizons): 0 at horizon 0, nondecreasing and concave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Iterations ahead that a forecast lists: dense near the present, then by a fixed ratio.
HORIZONS: FloatArray = np.array(
    [
        *(0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 47, 60, 78, 100, 150, 220, 330, 500),
        *(750, 1100, 1700, 2500, 3800, 5700, 8500, 13e3, 20e3, 30e3, 45e3, 67e3, 100e3),
    ],
    dtype=np.float64,
)


class View(NamedTuple):
    """Scaled losses of some jobs."""

    losses: FloatArray  # (n_jobs, window), newest first
    known: IntArray  # (n_jobs,) how many of the columns are reports
    count: IntArray  # (n_jobs,) reports so far, those that left the window included


class Belief(NamedTuple):
    """What one expert says."""

    level: FloatArray  # (n_jobs,)
    fall: FloatArray  # (n_jobs, n_horizons)


def hold(view: View) -> Belief:
    """Nothing will change."""
    n = len(view.known)
    return Belief(np.zeros(n), np.zeros((n, len(HORIZONS))))


def _log_drops(view: View, memory: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return logs of the drops, their weights, and net fall over gross fall."""
    drops = view.losses[:, 1:] - view.losses[:, :-1]
    age = np.arange(drops.shape[1])
    weight = np.where(age < view.known[:, None] - 1, memory**age, 0.0)
    falls = drops > 1e-15
    gross = np.sum(weight * np.where(falls, drops, 0.0), axis=1)
    net = np.sum(weight * drops, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(falls, np.log(np.where(falls, drops, 1.0)), 0.0)
        ratio = np.where(gross > 0, np.clip(net / gross, 0.0, 1.0), 0.0)
    return logs, np.where(falls, weight, 0.0), ratio


def _line(
    x: FloatArray, y: FloatArray, weight: FloatArray, prior_slope: FloatArray | float, pull: float
) -> tuple[FloatArray, FloatArray]:
    """Weighted line through (x, y) by row, slope pulled to a prior; returns mean y at mean x."""
    total = weight.sum(axis=1) + 1e-300
    mean_x = (weight * x).sum(axis=1) / total
    mean_y = (weight * y).sum(axis=1) / total
    dx = (x - mean_x[:, None]) * (weight > 0)
    sxx = (weight * dx * dx).sum(axis=1)
    sxy = (weight * dx * (y - mean_y[:, None])).sum(axis=1)
    slope = (sxy + pull * prior_slope) / (sxx + pull)
    return mean_y - slope * mean_x, slope


def geometric(view: View, memory: float = 0.85) -> Belief:
    """Drops shrink by a constant factor an iteration: log drop = a + b t."""
    logs, weight, net = _log_drops(view, memory)
    time = np.broadcast_to(-np.arange(logs.shape[1], dtype=np.float64), logs.shape)
    a, b = _line(time, logs, weight, 0.0, 1e-9)
    b = np.minimum(b, -0.5 / view.count)[:, None]
    first = np.exp(np.minimum(a[:, None] + b, 0.0)) * net[:, None]
    return Belief(np.zeros(len(net)), first * np.expm1(b * HORIZONS) / np.expm1(b))


def power(view: View, memory: float = 0.85) -> Belief:
    """Drops shrink as a power of the iteration: log drop = a + b log i."""
    logs, weight, net = _log_drops(view, memory)
    now = view.count[:, None] - 1.0
    i = np.maximum(now - np.arange(logs.shape[1]), 1.0)
    # Relative to now, so that exp(a) is the present drop whatever the run's length.
    x = np.log(i / np.maximum(now, 1.0))
    a, b = _line(x, logs, weight, -1.5, 1e-3)
    b = np.clip(b, -20.0, -0.2)[:, None]
    present = np.exp(np.minimum(a[:, None], 0.0)) * net[:, None]
    # Sum over the coming drops as an integral by the midpoint rule.
    grown = (now + HORIZONS + 0.5) / (now + 0.5)
    q = b + 1.0
    integral = np.where(
        np.abs(q) < 1e-6, np.log(grown), np.expm1(q * np.log(grown)) / np.where(q == 0, 1.0, q)
    )
    scale = (now + 0.5) * ((now + 0.5) / np.maximum(now, 1.0)) ** b
    return Belief(np.zeros(len(net)), present * scale * integral)


class Atoms:
    """Decreasing curves with one free factor each, for variable projection.

    Exponential e^(-rho t) and power (1 + t/s)^-p, t iterations from now, negative in the past.
    Fitting loss = base + factor * atom has a closed form for each atom; its sums over the atoms
    depend only on how many reports are known, so they are tabled once.

    Parameters
    ----------
    window : int
    memory : float
        Weight of a report that is one iteration older, in (0, 1].
    """

    def __init__(self, window: int, memory: float) -> None:
        rho = np.geomspace(0.25 / window, 2.0, 18)
        s = np.geomspace(2.0, 32.0 * window, 24)
        p = np.array([0.5, 1.0, 2.0])
        self.rho = np.concatenate([rho, np.zeros(len(s) * len(p))])
        self.s = np.concatenate([np.full(len(rho), np.inf), np.repeat(s, len(p))])
        self.p = np.concatenate([np.zeros(len(rho)), np.tile(p, len(s))])
        self.weight = memory ** np.arange(window)
        past = self.values(-np.arange(window, dtype=np.float64)[:, None])
        self.past = np.nan_to_num(past)  # (window, n_atoms)
        self.future = self.values(HORIZONS[:, None])  # (n_horizons, n_atoms)
        zero = np.zeros((1, len(self.rho)))
        w = self.weight[:, None]
        self.sum_w = np.concatenate([[0.0], np.cumsum(self.weight)])
        self.sum_ww = np.concatenate([[0.0], np.cumsum(self.weight**2)])
        self.sum_f = np.concatenate([zero, np.cumsum(w * self.past, axis=0)])
        self.sum_ff = np.concatenate([zero, np.cumsum(w * self.past**2, axis=0)])

    def values(self, t: FloatArray) -> FloatArray:
        """Atoms at times `t`; nan where a power has its pole or lies beyond it."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            base = 1.0 + t / self.s
            return np.where(base > 0.02, np.where(base > 0, base, 1.0) ** -self.p, np.nan) * np.exp(
                -self.rho * t
            )


class Projection(NamedTuple):
    """Fit of every atom."""

    base: FloatArray  # (n_jobs, n_atoms)
    factor: FloatArray  # (n_jobs, n_atoms), >= 0
    share: FloatArray  # (n_jobs, n_atoms), sums to 1: weight of evidence


def project(losses: FloatArray, known: IntArray, atoms: Atoms, temper: float = 0.5) -> Projection:
    """Fit base + factor * atom by weighted least squares, all atoms of all jobs at once."""
    weight = np.where(np.arange(losses.shape[1]) < known[:, None], atoms.weight, 0.0)
    sw = atoms.sum_w[known]
    mean = (weight * losses).sum(axis=1) / sw
    centred = (losses - mean[:, None]) * weight
    variance = (centred * (losses - mean[:, None])).sum(axis=1)
    mean_f = atoms.sum_f[known] / sw[:, None]
    var_f = atoms.sum_ff[known] - sw[:, None] * mean_f**2
    cov = centred @ atoms.past
    valid = (atoms.s > known[:, None] - 1 + 0.5) & (var_f > 0)
    factor = np.where(valid, np.maximum(cov, 0.0) / np.where(valid, var_f, 1.0), 0.0)
    residual = np.maximum(variance[:, None] - factor * cov, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(variance[:, None] > 0, residual / variance[:, None], 1.0)
    n_eff = sw**2 / atoms.sum_ww[known]
    evidence = -temper * n_eff[:, None] * np.log(relative + 1e-9)
    evidence = np.where(valid, evidence, -1e9)
    share = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return Projection(mean[:, None] - factor * mean_f, factor, share)


def varpro(view: View, atoms: Atoms, *, anchored: bool) -> Belief:
    """Mixture of the atoms, each by its evidence; anchored at the newest report or not."""
    fit = project(view.losses, view.known, atoms)
    amount = fit.share * fit.factor
    # Atoms are 1 at the present, so the level of each is base + factor.
    fall = amount.sum(axis=1)[:, None] - amount @ atoms.future.T
    level = np.zeros(len(fall)) if anchored else (fit.share * (fit.base + fit.factor)).sum(axis=1)
    return Belief(level, np.maximum(fall, 0.0))
