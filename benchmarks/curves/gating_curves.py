"""Training curves for the gating network of the loss predictor.

Their seeds differ from those of all benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.curves import generate
from dask_slaq.lab.simulation.workload.curves import LossCurve, parse, read_curves

Array = NDArray[np.float64]

#: Seed of the curves, unlike the seeds that users are likely to choose.
SEED = 101
#: Curves must be longer than this, since shorter ones teach nothing.
SHORTEST = 20


def training_curves(trained: int, made: int, files: Sequence[str] = ()) -> list[LossCurve]:
    """Make the training curves. Curves that are too short or not finite are left out.

    There are `trained` curves of the nine algorithms, as many variants of these curves (thinned,
    averaged, started later, rescaled, shifted or noisier), `made` sums of synthetic decays with
    synthetic noise, and those of `files`.
    """
    rng = np.random.default_rng(SEED)
    curves: list[LossCurve] = []
    for line in generate.generate(SEED, trained):
        curve = parse(line)
        curves += [curve, _named(f"{curve.group}, varied", _variant(curve.loss, rng))]
    curves += [_named("made", _made(rng)) for _ in range(made)]
    curves += read_curves(files)
    return [c for c in curves if len(c.loss) > SHORTEST and _is_sound(c.loss)]


def _is_sound(loss: Array) -> bool:
    return bool(np.isfinite(loss).all() and 0.0 < np.ptp(loss) < 1e200)


def _named(group: str, loss: Array) -> LossCurve:
    noisy = bool(np.mean(np.diff(loss) > 0) > 0.3) if len(loss) > 1 else False
    return LossCurve(group, group, loss, noisy)


def _variant(loss: Array, rng: np.random.Generator) -> Array:
    """Modify a curve as another program might have reported the same run."""
    kind = int(rng.integers(6))
    if kind == 0:  # every few iterations
        return loss[:: int(rng.integers(2, 5))]
    if kind == 1:  # means over a few iterations
        size = int(rng.integers(2, 6))
        whole = len(loss) // size
        return loss[: whole * size].reshape(whole, size).mean(axis=1)
    if kind == 2:  # started later
        return loss[int(rng.integers(1, 8)) :]
    if kind == 3:  # square root of the loss
        return np.sqrt(loss) if loss.min() >= 0 else loss
    span = np.ptp(loss)
    if kind == 4:  # shifted, towards zero or past it
        if rng.random() < 0.5:
            return loss + rng.uniform(-1, 2) * span
        return loss - loss.min() + 10 ** rng.uniform(-4, 0) * span
    return loss + 10 ** rng.uniform(-3, -1) * span * rng.standard_normal(len(loss))


def _made(rng: np.random.Generator) -> Array:
    """Make a sum of decays, some with uneven drops and some with noise."""
    k = np.arange(int(rng.integers(30, 300)))
    loss = np.sum([_fall(k, rng) for _ in range(int(rng.integers(1, 4)))], axis=0)
    loss /= np.ptp(loss) or 1.0
    if rng.random() < 0.35:
        shape = 10 ** rng.uniform(-0.3, 1)
        drops = -np.diff(loss) * rng.gamma(shape, 1 / shape, len(k) - 1)
        loss = loss[0] - np.concatenate([[0.0], np.cumsum(drops)])
    bounded = rng.random() < 0.7
    loss = loss - loss.min() + (10 ** rng.uniform(-4, 1) if bounded else rng.uniform(-5, 0))
    return _with_noise(loss, rng) if rng.random() < 0.45 else loss


def _fall(k: Array, rng: np.random.Generator) -> Array:
    """Make a decay of random height: exponential, power law, sigmoid, or plateau with a cliff."""
    height, kind, n = 10 ** rng.uniform(-1, 0), int(rng.integers(4)), len(k)
    if kind == 0:
        return height * np.exp(-(10 ** rng.uniform(-2.5, -0.3)) * k)
    if kind == 1:
        return height * (1 + k / 10 ** rng.uniform(0, 1.7)) ** -rng.uniform(0.3, 3)
    if kind == 2:
        middle = rng.uniform(2, 0.5 * n)
        return height / (1 + np.exp((k - middle) / rng.uniform(1, 0.5 * middle + 1)))
    edge = int(rng.integers(5, n))
    after = 0.1 * np.exp(-np.maximum(k - edge, 0) / rng.uniform(1, 10))
    return height * np.where(k < edge, 0.15 + 0.05 * np.exp(-k / 20), after)


def _with_noise(loss: Array, rng: np.random.Generator) -> Array:
    """Add noise: additive or multiplicative, normal or heavy-tailed, some of it correlated."""
    size = 10 ** rng.uniform(-3, -0.7)
    plain = rng.random() < 0.7
    noise = rng.standard_normal(len(loss)) if plain else rng.standard_t(3, len(loss))
    if rng.random() < 0.3:
        noise = np.convolve(noise, [0.6, 0.3, 0.2], "same")
    if loss.min() > 0 and rng.random() < 0.5:
        return loss * np.exp(np.clip(2 * size * noise, -2, 2))
    return loss + size * noise
