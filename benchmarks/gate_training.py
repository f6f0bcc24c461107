"""Training of the gating network of the loss predictor, on the experts' forecasts of many curves.

It minimizes the mean error at several horizons, relative to the range of the curve and to the loss.
All randomness is seeded, so a second run writes the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.results import say
from benchmarks.curves.gating_curves import training_curves
from benchmarks.curves.gating_lessons import Lessons, lessons
from dask_slaq.core.forecast.experts.gating import MOST_DEVIATIONS, Mixture, mixture

Array = NDArray[np.float64]

HIDDEN, EPOCHS, BATCH, RATE, DECAY = 48, 24, 1024, 2e-3, 1e-4
#: Number of networks that are trained and averaged, since each errs differently on new curves.
NETWORKS = 2


# Training


class Network(NamedTuple):
    """Coefficients of the gating network without the mean and deviation of its inputs."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array


def learn(some: Lessons, epochs: int = EPOCHS, seed: int = 0) -> dict[str, Array]:
    """Train one network with Adam to minimize the mean cost of the errors."""
    mean, deviation = some.x.mean(axis=0), some.x.std(axis=0) + 1e-6
    some = some._replace(x=np.clip((some.x - mean) / deviation, -4.0, 4.0))
    rng, n = np.random.default_rng(seed), len(some.x)
    net = _start(rng, some.x.shape[1], 2 * some.level.shape[1] + 3)
    first, second = ([np.zeros_like(array) for array in net] for _ in range(2))
    steps, t = epochs * (n // BATCH), 0
    for epoch in range(epochs):
        order, total = rng.permutation(n), 0.0
        for start in range(0, n - BATCH + 1, BATCH):
            cost, slopes = _slopes(net, some.of(order[start : start + BATCH]))
            total, t = total + cost, t + 1
            rate = RATE * 0.5 * (1.0 + np.cos(np.pi * t / steps))
            for array, slope, m, v in zip(net, slopes, first, second, strict=True):
                m += 0.1 * (slope - m)
                v += 0.001 * (slope**2 - v)
                root = np.sqrt(v / (1.0 - 0.999**t)) + 1e-8
                array -= rate * m / (1.0 - 0.9**t) / root
        say(f"epoch {epoch + 1}: {total / (n // BATCH):.4f}")
    return {"mean": mean, "deviation": deviation, **net._asdict()}


def average(networks: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Merge networks that were trained on the same lessons into one that outputs their mean."""
    wide = {
        name: np.concatenate([by[name] for by in networks], axis=axis)
        for name, axis in (("inner", 1), ("inner_bias", 0), ("outer", 0))
    }
    wide["outer"] /= len(networks)
    bias = np.mean([by["outer_bias"] for by in networks], axis=0)
    return {**networks[0], **wide, "outer_bias": bias}


def _start(rng: np.random.Generator, n_in: int, n_out: int) -> Network:
    inner = rng.standard_normal((n_in, HIDDEN)) * np.sqrt(1.5 / n_in)
    outer = rng.standard_normal((HIDDEN, n_out)) * 0.1 * np.sqrt(1.5 / HIDDEN)
    return Network(inner, np.zeros(HIDDEN), outer, np.zeros(n_out))


def _slopes(net: Network, some: Lessons) -> tuple[float, Network]:
    """Compute the mean cost of some lessons, and its derivatives by the coefficients."""
    n = len(some.x)
    hidden = np.maximum(some.x @ net.inner + net.inner_bias, 0.0)
    out = hidden @ net.outer + net.outer_bias
    by = mixture(out, some.log_weight, some.noise, some.log_noise)
    cost, of_out = _derivatives(out, by, some)
    of_out /= n
    of_hidden = (of_out @ net.outer.T) * (hidden > 0)
    slopes = Network(
        some.x.T @ of_hidden + DECAY * net.inner, of_hidden.sum(axis=0),
        hidden.T @ of_out + DECAY * net.outer, of_out.sum(axis=0),
    )  # fmt: skip
    return cost / n, slopes


def _derivatives(out: Array, by: Mixture, some: Lessons) -> tuple[float, Array]:
    """Compute the cost of the errors, and its derivatives by the outputs of the network."""
    n_experts, zero = some.level.shape[1], some.zero[:, None]
    fall = np.einsum("ne,neh->nh", by.weight, some.fall)
    level = (by.level_weight * some.level).sum(axis=1) + by.shift
    above = by.scale[:, None] * (level[:, None] - by.factor[:, None] * fall - zero)
    error = np.maximum(above, 0.0) + zero - some.truth
    slope = some.cost * np.sign(error) * (above > 0)
    of_scale = (slope * above).sum(axis=1)  # by the log of the scale
    slope *= by.scale[:, None]
    of_fall, of_level = -by.factor[:, None] * slope, slope.sum(axis=1)
    of_weight = np.einsum("nh,neh->ne", of_fall, some.fall)
    of_out = np.empty_like(out)
    of_out[:, :n_experts] = _of_logs(by.weight, of_weight)
    of_out[:, n_experts:-3] = _of_logs(by.level_weight, of_level[:, None] * some.level)
    log_factor = np.tanh(out[:, -3])
    of_out[:, -3] = (of_fall * fall).sum(axis=1) * (1.0 - log_factor**2)
    most = 2.0 * some.noise
    of_out[:, -2] = of_level * most * (1.0 - np.tanh(out[:, -2]) ** 2)
    most = MOST_DEVIATIONS * np.minimum(some.log_noise, 1.0)
    of_out[:, -1] = of_scale * most * (1.0 - np.tanh(out[:, -1]) ** 2)
    return float((some.cost * np.abs(error)).sum()), of_out


def _of_logs(weight: Array, of_weight: Array) -> Array:
    """Convert derivatives by weights that sum to 1 into derivatives by their logs."""
    slope: Array = weight * (of_weight - (weight * of_weight).sum(axis=1, keepdims=True))
    return slope


# Command line


def write(file: Any, coefficients: dict[str, Array]) -> None:
    """Write coefficients, rounded to three digits, as the ``.npz`` file that the package reads."""
    rounded = {
        name: np.array([float(f"{value:.3g}") for value in array.ravel()]).reshape(array.shape)
        for name, array in coefficients.items()
    }
    np.savez_compressed(file, **rounded)


@click.command()
@click.option(
    "--out", type=click.File("wb"), default="gating.npz", show_default=True, help="File to write."
)
@click.option("--trained", default=1080, show_default=True, help="Curves of the nine algorithms.")
@click.option("--made", default=1000, show_default=True, help="Synthetic curves.")
@click.option(
    "--curves",
    "files",
    multiple=True,
    help="File of JSON lines with id and loss, such as curves of networks (repeatable).",
)
@click.option("--epochs", default=EPOCHS, show_default=True, help="Passes over the lessons.")
def main(out: Any, trained: int, made: int, files: tuple[str, ...], epochs: int) -> None:
    """Train the gating network of the loss predictor, and write its coefficients.

    The package reads the coefficients from `dask_slaq/core/forecast/experts/gating.npz`.
    """
    some = lessons(training_curves(trained, made, files))
    write(out, average([learn(some, epochs, seed) for seed in range(NETWORKS)]))


if __name__ == "__main__":
    main()
