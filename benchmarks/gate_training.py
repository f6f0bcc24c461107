"""Train the gate of the loss predictor, and write its coefficients as a module of the package.

The gate is trained on what the experts said of many curves at every iteration, to make the mean
error small at several horizons: in ranges of the curve, and relative to the loss. Everything is
drawn from seeds, so a second run writes the same numbers, up to rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.gate_curves import training_curves
from benchmarks.scores import prepare
from dask_slaq.core.backtest import Backtest
from dask_slaq.core.belief import HORIZONS
from dask_slaq.core.experts import Panel
from dask_slaq.core.gate import Mixture, features, mixture
from dask_slaq.core.history import Histories
from dask_slaq.core.view import look
from dask_slaq.simulation.curves import Curve

__all__ = ["Lessons", "learn", "lessons", "main"]

Array = NDArray[np.float64]

#: Horizons that count, and how much.
AHEAD = np.array([1, 3, 5, 10, 22, 47, 100, 220])
IMPORTANCE = np.array([0.7, 0.5, 0.7, 2.0, 0.7, 0.5, 0.4, 0.4])
AT = np.searchsorted(HORIZONS, AHEAD)
#: Reports before the first lesson, and iterations that a short curve counts as.
FIRST, SHORT = 4, 30
#: A loss nearer to zero counts as this part of the curve's range.
NEAREST = 0.02
#: Every move counts alike, but for those of a smaller part of the range than this.
SMALL = 0.005
WINDOW = 32
HIDDEN, EPOCHS, BATCH, RATE, DECAY = 32, 20, 1024, 2e-3, 1e-4


class Lessons(NamedTuple):
    """Forecasts of the experts, what the gate saw, and what came; in units of the views."""

    x: Array  # (n, n_features)
    log_weight: Array  # (n, n_experts)
    level: Array  # (n, n_experts)
    fall: Array  # (n, n_experts, n_ahead)
    noise: Array  # (n,)
    zero: Array  # (n,)
    truth: Array  # (n, n_ahead)
    cost: Array  # (n, n_ahead) of an error of 1; 0 beyond the end of the curve

    def of(self, which: Any) -> Lessons:
        """Return some of the lessons."""
        return Lessons._make(array[which] for array in self)


def lessons(curves: Sequence[Curve]) -> Lessons:
    """Let the experts follow `curves`, and note what they said at every iteration."""
    trials = prepare(curves)
    losses = [trial.curve.loss for trial in trials]
    history, panel = Histories(WINDOW), Panel(WINDOW, WINDOW)
    backtest = Backtest(panel.noise_cost)
    rows = np.array([history.acquire() for _ in trials])
    for _ in trials:
        backtest.acquire()
    parts, raw = [], []
    for k in range(1, max(map(len, losses))):
        going = np.array([i for i, loss in enumerate(losses) if k < len(loss)])
        history.append(rows[going], np.array([losses[i][k - 1] for i in going]))
        view = look(history, rows[going], np.zeros(len(going), dtype=np.int64))
        backtest.score(rows[going], view)
        beliefs = panel.ask(view)
        backtest.remember(rows[going], view, beliefs)
        if k < FIRST:
            continue
        said = np.stack([np.column_stack([b.level, b.fall]) for b in beliefs])
        log_weight = backtest.log_weights(rows[going])
        came = np.array([_came(losses[i], k) for i in going])
        truth = (came - view.newest[:, None]) / view.unit[:, None]
        x = features(view, said, log_weight)
        fall = np.moveaxis(said[:, :, 1 + AT], 0, 1)
        parts.append((x, log_weight, said[:, :, 0].T, fall, view.noise, view.zero, truth))
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
    """Cost of errors: "nothing changes" has the sum of `IMPORTANCE` in each of three units."""
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
            own = unit / (unit * moved + SMALL * span)
            # Under noise single moves are chance.
            scales = (unit / span, unit / near) if kind else (unit / span, unit / near, own)
            for scale in scales:
                part = weight * scale
                cost[:, column] += IMPORTANCE[column] * part / max((part * moved).sum(), 1e-300)
    return cost * len(cost)


# Training


class Network(NamedTuple):
    """Coefficients of the gate, as `Gate` has them, but for mean and deviation."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array


def learn(some: Lessons, epochs: int = EPOCHS, seed: int = 0) -> dict[str, Array]:
    """Coefficients that make the mean cost of the errors small, by Adam.

    Parameters
    ----------
    some : Lessons
    epochs : int
        Passes over the lessons.
    seed : int
        Of the start and of the order of the lessons.
    """
    mean, deviation = some.x.mean(axis=0), some.x.std(axis=0) + 1e-6
    some = some._replace(x=np.clip((some.x - mean) / deviation, -4.0, 4.0))
    rng, n = np.random.default_rng(seed), len(some.x)
    net = _start(rng, some.x.shape[1], 2 * some.level.shape[1] + 2)
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
        print(f"epoch {epoch + 1}: {total / (n // BATCH):.4f}", file=sys.stderr, flush=True)
    return {"mean": mean, "deviation": deviation, **net._asdict()}


def _start(rng: np.random.Generator, n_in: int, n_out: int) -> Network:
    inner = rng.standard_normal((n_in, HIDDEN)) * np.sqrt(1.5 / n_in)
    outer = rng.standard_normal((HIDDEN, n_out)) * 0.1 * np.sqrt(1.5 / HIDDEN)
    return Network(inner, np.zeros(HIDDEN), outer, np.zeros(n_out))


def _slopes(net: Network, some: Lessons) -> tuple[float, Network]:
    """Mean cost of some lessons, and its derivatives."""
    n = len(some.x)
    hidden = np.maximum(some.x @ net.inner + net.inner_bias, 0.0)
    out = hidden @ net.outer + net.outer_bias
    by = mixture(out, some.log_weight, some.noise)
    cost, of_out = _derivatives(out, by, some)
    of_out /= n
    of_hidden = (of_out @ net.outer.T) * (hidden > 0)
    slopes = Network(
        some.x.T @ of_hidden + DECAY * net.inner, of_hidden.sum(axis=0),
        hidden.T @ of_out + DECAY * net.outer, of_out.sum(axis=0),
    )  # fmt: skip
    return cost / n, slopes


def _derivatives(out: Array, by: Mixture, some: Lessons) -> tuple[float, Array]:
    """Cost of the errors, and its derivatives by the outputs of the network."""
    n_experts = some.level.shape[1]
    fall = np.einsum("ne,neh->nh", by.weight, some.fall)
    level = (by.level_weight * some.level).sum(axis=1) + by.shift
    said = level[:, None] - by.factor[:, None] * fall
    error = np.maximum(said, some.zero[:, None]) - some.truth
    slope = some.cost * np.sign(error) * (said > some.zero[:, None])
    of_fall, of_level = -by.factor[:, None] * slope, slope.sum(axis=1)
    of_weight = np.einsum("nh,neh->ne", of_fall, some.fall)
    of_out = np.empty_like(out)
    of_out[:, :n_experts] = _of_logs(by.weight, of_weight)
    of_out[:, n_experts:-2] = _of_logs(by.level_weight, of_level[:, None] * some.level)
    log_factor = np.tanh(out[:, -2])
    of_out[:, -2] = (of_fall * fall).sum(axis=1) * (1.0 - log_factor**2)
    most = 2.0 * some.noise
    of_out[:, -1] = of_level * most * (1.0 - np.tanh(out[:, -1]) ** 2)
    return float((some.cost * np.abs(error)).sum()), of_out


def _of_logs(weight: Array, of_weight: Array) -> Array:
    """Derivatives by the logs of weights that sum to 1."""
    slope: Array = weight * (of_weight - (weight * of_weight).sum(axis=1, keepdims=True))
    return slope


# Command line

HEADER = '''"""Coefficients of the gate, written by `benchmarks.gate_training`: not to be edited."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["COEFFICIENTS"]


def _table(text: str, *shape: int) -> NDArray[np.float64]:
    return np.array(text.split(), dtype=np.float64).reshape(shape)


COEFFICIENTS = {
'''


def module(coefficients: dict[str, Array]) -> str:
    """The module that holds `coefficients`, to three digits."""
    parts = []
    for name, array in coefficients.items():
        lines: list[str] = []
        line = ""
        for word in (f"{value:.3g}" for value in array.ravel()):
            if len(line) + len(word) > 98:
                lines, line = [*lines, line.rstrip()], ""
            line += word + " "
        text = "\n".join([*lines, line.rstrip()])
        shape = "".join(f"        {n},\n" for n in array.shape)
        parts.append(f'    "{name}": _table(\n        """\n{text}\n""",\n{shape}    ),\n')
    return HEADER + "".join(parts) + "}\n"


@click.command()
@click.option(
    "--out", type=click.File("w"), default="-", help="Module to write; - is standard output."
)
@click.option("--trained", default=1080, show_default=True, help="Curves of the nine algorithms.")
@click.option("--made", default=1000, show_default=True, help="Made-up curves.")
@click.option("--epochs", default=EPOCHS, show_default=True, help="Passes over the lessons.")
def main(out: Any, trained: int, made: int, epochs: int) -> None:
    """Train the gate; `dask_slaq/core/gate_coefficients.py` is what it wrote."""
    out.write(module(learn(lessons(training_curves(trained, made)), epochs)))


if __name__ == "__main__":
    main()
