"""Training that repeats itself: runs on the data of one kind with other parameters and seeds.

A kind is an algorithm and a data set, drawn from a seed. Each of its runs has its own learning
rate, penalty or size of model, and its own start. Nothing here is fitted to what is measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RepeatedRun:
    """One run of a kind."""

    features: dict[str, float]  # parameters in orders of magnitude
    loss: Array  # after each iteration


def run_of_kind(family: str, kind: int, run: int, iterations: int) -> RepeatedRun:
    """Train one run. Its `kind` seeds the data, and `run` the parameters and the start."""
    which = list(FAMILIES).index(family)
    data, rng = np.random.default_rng([which, kind]), np.random.default_rng([which, kind, 1, run])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping before convergence is intended
        features, losses = FAMILIES[family](data, rng, iterations)
    return RepeatedRun(features, np.array(losses[:iterations], dtype=float))


def _magnitude(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a positive number, uniform in its logarithm."""
    return float(10.0 ** rng.uniform(np.log10(low), np.log10(high)))


def _classes(data: np.random.Generator, n: int, d: int) -> tuple[Array, Array]:
    middle = data.standard_normal(d) * data.uniform(0.2, 0.6)
    y = np.where(data.random(n) < 0.5, 1.0, -1.0)
    x = (data.standard_normal((n, d)) + y[:, None] * middle) * np.geomspace(
        1.0, 10.0 ** -data.uniform(0.4, 1.0), d
    )
    return x, np.where(data.random(n) < 0.05, -y, y)


def _descend(
    objective: Callable[[Array], tuple[float, Array]],
    w: Array,
    step: Callable[[int], float],
    n: int,
) -> list[float]:
    losses = []
    for t in range(1, n + 1):
        loss, slope = objective(w)
        losses.append(loss)
        w = w - step(t) * slope
    return losses


def _logistic(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    x, y = _classes(data, 600, 20)
    step, penalty = _magnitude(rng, 0.05, 0.5), _magnitude(rng, 1e-4, 1e-2)
    step_size = step * 4.0 / np.linalg.norm(x, 2) ** 2 * len(x)

    def objective(w: Array) -> tuple[float, Array]:
        margin = y * (x @ w)
        loss = float(np.logaddexp(0.0, -margin).mean() + 0.5 * penalty * w @ w)
        return loss, x.T @ (-y / (1.0 + np.exp(margin))) / len(x) + penalty * w

    losses = _descend(objective, 0.3 * rng.standard_normal(20), lambda t: step_size, iterations)
    return {"step": np.log10(step), "penalty": np.log10(penalty)}, losses


def _linear(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    n, d = 500, 15
    x = data.standard_normal((n, d)) * np.geomspace(1.0, 10.0 ** -data.uniform(0.3, 0.8), d)
    y = x @ data.standard_normal(d) + data.uniform(0.1, 0.5) * data.standard_normal(n)
    step = _magnitude(rng, 0.04, 0.4)
    size = step / np.linalg.norm(x, 2) ** 2 * n

    def objective(w: Array) -> tuple[float, Array]:
        miss = x @ w - y
        return 0.5 * float((miss**2).mean()), x.T @ miss / n

    losses = _descend(objective, 0.2 * rng.standard_normal(d), lambda t: size, iterations)
    return {"step": np.log10(step)}, losses


def _svm(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    x, y = _classes(data, 600, 25)
    step, alpha = _magnitude(rng, 0.02, 0.2), _magnitude(rng, 1e-4, 1e-2)

    def objective(w: Array) -> tuple[float, Array]:
        margin = y * (x @ w)
        loss = float(np.maximum(0.0, 1.0 - margin).mean() + 0.5 * alpha * w @ w)
        return loss, -(x.T @ (y * (margin < 1.0))) / len(x) + alpha * w

    losses = _descend(objective, np.zeros(25), lambda t: step / np.sqrt(t), iterations)
    return {"step": np.log10(step), "alpha": np.log10(alpha)}, losses


def _kmeans(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    n, k = 3000, round(_magnitude(rng, 15, 60))
    middles = data.standard_normal((40, 4)) * data.uniform(0.8, 2.0)
    x = middles[data.integers(40, size=n)] + data.standard_normal((n, 4))
    centers = x[rng.choice(n, k, replace=False)]
    losses = []
    for _ in range(iterations):
        distance = ((x[:, None] - centers[None]) ** 2).sum(axis=2)
        nearest = distance.argmin(axis=1)
        losses.append(float(distance.min(axis=1).mean()))
        members = np.eye(k)[nearest]
        count = members.sum(axis=0)[:, None]
        centers = np.where(count > 0, members.T @ x / np.maximum(count, 1.0), centers)
    return {"clusters": np.log10(k)}, losses


def _boosting(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    from sklearn.ensemble import GradientBoostingRegressor

    n, d = 500, 8
    x = data.standard_normal((n, d))
    y = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * data.standard_normal(n)
    rate, depth = _magnitude(rng, 0.05, 0.3), int(rng.integers(2, 5))
    model = GradientBoostingRegressor(
        n_estimators=iterations, learning_rate=rate, max_depth=depth, subsample=0.8,
        random_state=int(rng.integers(2**31)),
    )  # fmt: skip
    losses = [float(loss) for loss in model.fit(x, y).train_score_]
    return {"rate": np.log10(rate), "depth": np.log10(depth)}, losses


def _network(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    n, d, h = 1000, 10, round(_magnitude(rng, 8, 40))
    x = data.standard_normal((n, d))
    y = (np.sin(x[:, 0] * 1.5) + x[:, 1] * x[:, 2] > 0).astype(float)
    step = _magnitude(rng, 0.2, 1.0)
    inner, outer = rng.standard_normal((d, h)) * 0.3, rng.standard_normal(h) * 0.3
    losses = []
    for _ in range(iterations):
        seen = []
        for _ in range(12):  # batches per reported iteration
            rows = rng.integers(n, size=100)
            hidden = np.tanh(x[rows] @ inner)
            score = hidden @ outer
            seen.append(float(np.mean(np.logaddexp(0.0, score) - y[rows] * score)))
            miss = (1.0 / (1.0 + np.exp(-score)) - y[rows]) / len(rows)
            back = (miss[:, None] * outer) * (1.0 - hidden**2)
            inner, outer = inner - step * x[rows].T @ back, outer - step * hidden.T @ miss
        losses.append(float(np.mean(seen)))
    return {"step": np.log10(step), "hidden": np.log10(h)}, losses


def _topics(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    n, words = 150, 200
    of_topic = data.dirichlet(np.full(words, 0.1), size=10)
    mixture = data.dirichlet(np.full(10, 0.3), size=n)
    counts = np.array([data.multinomial(100, p / p.sum()) for p in mixture @ of_topic], float)
    topics = round(_magnitude(rng, 5, 20))
    a, b = rng.dirichlet(np.ones(topics), size=n), rng.dirichlet(np.ones(words), size=topics)
    losses = []
    for _ in range(iterations):
        expected = a @ b
        losses.append(float(-np.sum(counts * np.log(expected)) / counts.sum()))
        part = counts / expected
        a, b = a * (part @ b.T) + 0.02, b * (a.T @ part) + 0.02
        a, b = a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
    return {"topics": np.log10(topics)}, losses


def _factors(data: Any, rng: Any, iterations: int) -> tuple[dict[str, float], list[float]]:
    n, m, true = 80, 60, 8
    x = data.random((n, true)) @ data.random((true, m)) + 0.05 * data.random((n, m))
    rank = round(_magnitude(rng, 4, 16))
    a, b = rng.random((n, rank)), rng.random((rank, m))
    losses = []
    for _ in range(iterations):
        a *= (x @ b.T) / (a @ b @ b.T)
        b *= (a.T @ x) / (a.T @ a @ b)
        losses.append(float(np.linalg.norm(x - a @ b)))
    return {"rank": np.log10(rank)}, losses


#: Functions that train one run: from the generators of data and run, and the iterations.
FAMILIES: dict[str, Callable[..., tuple[dict[str, float], list[float]]]] = {
    "logistic regression": _logistic,
    "linear regression": _linear,
    "SVM": _svm,
    "k-means": _kmeans,
    "boosting": _boosting,
    "neural network": _network,
    "topic model": _topics,
    "matrix factors": _factors,
}
