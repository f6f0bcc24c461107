"""Loss curves of small trained neural networks, for the gating network of the loss predictor.

Data, network, optimizer, schedule and kind of report are random. The curves include networks that
memorize their samples, plateaus, drops of the learning rate, warm-up, losses of single batches, and
losses of held-out samples that rise again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["net_losses"]

Array = NDArray[np.float64]
#: Factor on the learning rate, by the completed fraction of the run.
Schedule = Callable[[float], float]

#: Minimum and maximum reports of a run, and maximum steps, which keep runs short.
SHORTEST, LONGEST, MOST_STEPS = 20, 320, 2500
#: Share of networks that are large for their number of samples and have correct labels.
EAGER = 0.25
KINDS = ("classes", "values", "itself", "text")
#: Maximum norm of the gradient; larger ones are clipped, so that networks rarely diverge.
CLIP = 10.0


class Task(NamedTuple):
    """Samples of a learning task; the first `trained` ones are for training."""

    x: Array  # (n, d)
    y: Array  # (n, k): classes one-hot, or values
    classes: bool
    trained: int


def net_losses(rng: np.random.Generator) -> Array:
    """Train one small network. Returns its reported losses, all finite."""
    while True:
        with np.errstate(all="ignore"):
            losses = _train(rng)
        if len(losses) >= SHORTEST and np.isfinite(losses).all() and losses[-1] < losses[0]:
            return losses


# Tasks


def _task(rng: np.random.Generator, eager: bool) -> Task:
    n = int(np.exp(rng.uniform(np.log(40), np.log(200 if eager else 500))))
    kind = "classes" if eager else rng.choice(KINDS, p=[0.3, 0.2, 0.25, 0.25])
    if kind == "text":
        return _text(rng, n)
    d, k = int(rng.integers(4, 33)), int(rng.integers(2, 11))
    x = rng.standard_normal((n, d)) @ np.diag(np.geomspace(1.0, 10 ** -rng.uniform(0, 1), d))
    if kind == "itself":
        x = np.tanh(rng.standard_normal((n, k)) @ rng.standard_normal((k, d)))
        x += 10 ** rng.uniform(-3, -0.5) * rng.standard_normal((n, d))
        return Task(x, x, False, _trained(rng, n))
    teacher = np.tanh(x @ rng.standard_normal((d, 16))) @ rng.standard_normal((16, k))
    if kind == "values":
        y = teacher + 10 ** rng.uniform(-3, 0) * rng.standard_normal((n, k))
        return Task(x, y * 10 ** rng.uniform(-1, 1), False, _trained(rng, n))
    label = teacher.argmax(axis=1)
    wrong = rng.random(n) < (0.0 if eager else rng.choice([0.0, 0.05, 0.2]))
    label = np.where(wrong, rng.integers(k, size=n), label)
    return Task(x, np.eye(k)[label], True, _trained(rng, n))


def _text(rng: np.random.Generator, n: int) -> Task:
    """Make a task of predicting the next character in a random language."""
    letters, seen = int(rng.integers(5, 25)), int(rng.integers(1, 4))
    after = rng.dirichlet(np.full(letters, rng.uniform(0.05, 0.5)), size=(letters, letters))
    text = [0, 1]
    for part in rng.random(n + seen):
        chance = after[text[-2], text[-1]].cumsum()
        text.append(min(int(np.searchsorted(chance, part)), letters - 1))
    one_hot = np.eye(letters)[text]
    x = np.hstack([one_hot[i : i + n] for i in range(seen)])
    return Task(x, one_hot[seen : seen + n], True, _trained(rng, n))


def _trained(rng: np.random.Generator, n: int) -> int:
    return max(30, int(n * rng.uniform(0.5, 0.9)))


# Networks


class Net:
    """Fully connected network whose parameters are updated in place."""

    def __init__(self, rng: np.random.Generator, task: Task, eager: bool) -> None:
        width, layers = int(2 ** rng.uniform(5 if eager else 3, 6.5)), int(rng.integers(eager, 4))
        sizes = [task.x.shape[1], *[width] * layers, task.y.shape[1]]
        scale = 10 ** rng.choice([0.0, rng.uniform(-1.0, 0.7)])
        self.classes = task.classes
        self.kind = str(rng.choice(["relu", "tanh", "sigmoid", "linear"], p=[0.5, 0.3, 0.1, 0.1]))
        self.drop = float(rng.choice([0.0, 0.0, 0.2, 0.5])) if layers and not eager else 0.0
        self.by_sample = bool(rng.random() < 0.3)  # sum over outputs, not their mean
        self.weights = [
            scale * rng.standard_normal((a, b)) * np.sqrt(2.0 / a) for a, b in pairwise(sizes)
        ]
        self.biases = [np.zeros(b) for b in sizes[1:]]

    def loss(self, x: Array, y: Array) -> float:
        """Return the mean loss of some samples, without dropout."""
        return self._loss(self._forward(x, None)[-1], y)[0]

    def slopes(
        self, x: Array, y: Array, rng: np.random.Generator
    ) -> tuple[float, list[Array], list[Array]]:
        """Return the loss of a batch, with dropout, and its derivatives by weights and biases."""
        layers = self._forward(x, rng if self.drop else None)
        loss, back = self._loss(layers[-1], y)
        weights, biases = [], []
        for i in reversed(range(len(self.weights))):
            weights.append(layers[i].T @ back)
            biases.append(back.sum(axis=0))
            if i:
                back = back @ self.weights[i].T * self._derivative(layers[i])
        return loss, weights[::-1], biases[::-1]

    def _forward(self, x: Array, rng: np.random.Generator | None) -> list[Array]:
        layers = [x]
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ w + b
            if i + 1 < len(self.weights):
                x = self._active(x)
                if rng is not None:
                    x = x * (rng.random(x.shape) >= self.drop) / (1.0 - self.drop)
            layers.append(x)
        return layers

    def _active(self, x: Array) -> Array:
        if self.kind == "relu":
            return np.maximum(x, 0.0)
        if self.kind == "tanh":
            return np.tanh(x)
        return 1.0 / (1.0 + np.exp(-np.clip(x, -40, 40))) if self.kind == "sigmoid" else x

    def _derivative(self, active: Array) -> Array:
        if self.kind == "relu":
            return (active > 0).astype(float)
        if self.kind == "tanh":
            return 1.0 - np.minimum(active**2, 1.0)
        return (
            np.maximum(active * (1.0 - active), 0.0) if self.kind == "sigmoid" else 1.0 + 0 * active
        )

    def _loss(self, out: Array, y: Array) -> tuple[float, Array]:
        if self.classes:
            log = out - out.max(axis=1, keepdims=True)
            log = log - np.log(np.exp(log).sum(axis=1, keepdims=True))
            return -float((log * y).sum()) / len(y), (np.exp(log) - y) / len(y)
        miss = out - y
        count = len(y) if self.by_sample else y.size
        return float((miss**2).sum()) / count, 2.0 * miss / count


# Training


def _train(rng: np.random.Generator) -> Array:
    eager = bool(rng.random() < EAGER)
    task = _task(rng, eager)
    net = Net(rng, task, eager)
    reports = int(np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST))))
    x, y = task.x[: task.trained], task.y[: task.trained]
    batch = min(int(2 ** rng.uniform(2, 7)), len(x)) if rng.random() < 0.85 else len(x)
    report = str(rng.choice(["running", "trained", "held-out", "batch"], p=[0.35, 0.3, 0.1, 0.25]))
    an_epoch = max(1, len(x) // batch)
    steps = an_epoch if report != "batch" else int(rng.integers(1, 11))
    steps = max(1, min(steps, MOST_STEPS // reports))
    descend, schedule = _optimizer(rng, net, eager), _schedule(rng)
    losses: list[float] = []
    if report != "running" and rng.random() < 0.5:  # before the first step
        losses.append(net.loss(x, y))
    order = np.empty(0, dtype=np.int64)
    while len(losses) < reports:
        seen = []
        for _ in range(steps):
            if len(order) < batch:
                order = rng.permutation(len(x))
            rows, order = order[:batch], order[batch:]
            loss, weights, biases = net.slopes(x[rows], y[rows], rng)
            seen.append(loss)
            descend(weights, biases, schedule(len(losses) / reports))
        if not np.isfinite(seen[-1]):
            break
        losses.append(_reported(report, net, task, seen))
    return np.array(losses)


def _reported(report: str, net: Net, task: Task, seen: list[float]) -> float:
    if report == "running":
        return float(np.mean(seen))
    if report == "batch":
        return seen[-1]
    which = slice(task.trained) if report == "trained" else slice(task.trained, None)
    return net.loss(task.x[which], task.y[which])


def _optimizer(
    rng: np.random.Generator, net: Net, eager: bool
) -> Callable[[list[Array], list[Array], float], None]:
    """Make gradient descent, momentum or Adam, with or without weight decay."""
    kind = str(rng.choice(["plain", "momentum", "adam"], p=[0.2, 0.4, 0.4]))
    rate = 10 ** (rng.uniform(-3.0, -1.3) if kind == "adam" else rng.uniform(-2.0, 0.0))
    rate *= 0.2 if kind == "momentum" else 1.0
    if eager:
        rate *= 2.0
    decay = 0.0 if eager else float(rng.choice([0.0, 0.0, 10 ** rng.uniform(-5, -2)]))
    arrays = [*net.weights, *net.biases]
    first, second = ([np.zeros_like(a) for a in arrays] for _ in range(2))
    t = 0

    def descend(weights: list[Array], biases: list[Array], factor: float) -> None:
        nonlocal t
        t += 1
        slopes = [*weights, *biases]
        norm = np.sqrt(sum(float((s * s).sum()) for s in slopes))
        short = min(1.0, CLIP / (norm + 1e-300))
        for array, slope, m, v in zip(arrays, slopes, first, second, strict=True):
            slope = short * slope + decay * array
            if kind == "adam":
                m += 0.1 * (slope - m)
                v += 0.001 * (slope * slope - v)
                root = np.sqrt(v / (1.0 - 0.999**t)) + 1e-8
                array -= rate * factor * (m / (1.0 - 0.9**t)) / root
            else:
                m *= 0.9 if kind == "momentum" else 0.0
                m += slope
                array -= rate * factor * m

    return descend


def _schedule(rng: np.random.Generator) -> Schedule:
    kind = int(rng.choice(5, p=[0.4, 0.2, 0.15, 0.1, 0.15]))
    edges, cut = np.sort(rng.uniform(0.2, 0.9, int(rng.integers(1, 4)))), rng.uniform(0.1, 0.5)
    warm = float(rng.choice([0.0, rng.uniform(0.02, 0.15)]))
    shapes: list[Schedule] = [
        lambda part: 1.0,
        lambda part: cut ** int((edges < part).sum()),
        lambda part: 0.5 * (1.0 + np.cos(np.pi * part)),
        lambda part: (1.0 + 20.0 * part) ** -0.5,
        lambda part: 1.0 - part,
    ]
    return lambda part: shapes[kind](part) * (min(1.0, (part + 1e-3) / warm) if warm else 1.0)
