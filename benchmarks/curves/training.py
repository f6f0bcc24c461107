"""Training loops of the nine algorithms of the paper's Table 1, on data drawn from a seed.

Each loop takes a random generator, whether to train on mini-batches, the number of iterations
wanted, and whether the data has the shape of Table 1's, with fewer rows. It yields one loss per
iteration, either without end or until training stops by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Indices of the samples of one batch, or a slice of all samples.
Rows = Any
#: Function from parameters and samples to the loss and the direction of ascent.
Objective = Callable[[Array, Rows], tuple[float, Array]]


#: Rows and columns of data with the shape of Table 1's: Epsilon (of 400,000 rows),
#: YearPredictionMSD (of 515,345), MNIST (of 60,000), and documents and words of the Associated
#: Press (of 2,246). Fraction of MNIST's pixels that are not 0.
EPSILON, YEAR, MNIST, PRESS = (2000, 2000), (20_000, 90), (1000, 784), (1000, 10_473)
INKED = 0.19


# Data


def _size(rng: np.random.Generator, *small: tuple[int, int]) -> tuple[int, ...]:
    return tuple(int(rng.integers(*span)) for span in small)


def _integer(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _scales(rng: np.random.Generator, n_features: int) -> Array:
    """Draw scales of features. The condition number is the square of their ratio."""
    return np.geomspace(1.0, 10.0 ** -rng.uniform(0.2, 1.5), n_features)


def _two_classes(rng: np.random.Generator, n: int, n_features: int) -> tuple[Array, Array]:
    """Make samples with labels -1 and 1."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        n, n_features, n_informative=n_features // 2, n_redundant=n_features // 4,
        n_clusters_per_class=min(int(rng.integers(1, 4)), 2 ** (n_features // 2 - 1)),
        class_sep=rng.uniform(0.4, 1.5),
        flip_y=rng.uniform(0.0, 0.15), random_state=_integer(rng),
    )  # fmt: skip
    return x / x.std(axis=0), 2.0 * y - 1.0


def _regression(rng: np.random.Generator, n: int, n_features: int) -> tuple[Array, Array]:
    """Make samples, and targets with standard deviation 1 and a mean that must be learned."""
    x = rng.standard_normal((n, n_features))
    y = x @ rng.standard_normal(n_features) + rng.uniform(0, 1) * np.sin(2 * x[:, 0])
    y += rng.uniform(0.05, 1.0) * np.sqrt(n_features) * rng.standard_normal(n)
    return x, y / y.std() + rng.uniform(-1, 1)


# Training loops


def _batches(rng: np.random.Generator, n: int, minibatch: bool) -> Callable[[], list[Rows]]:
    """Make a function that draws the batches of an iteration: all samples, or mini-batches."""
    if not minibatch:
        return lambda: [slice(None)]
    size, count = int(2 ** rng.integers(4, 8)), int(rng.choice([1, 2, 8]))
    return lambda: [rng.integers(n, size=size) for _ in range(count)]


def _descend(
    objective: Objective, start: Array, step: float, rng: np.random.Generator, n: int,
    minibatch: bool,
) -> Iterator[float]:  # fmt: skip
    """Run gradient descent: plain, with shrinking steps as in MLlib, or with momentum."""
    kind = rng.choice(["plain", "shrinking", "momentum"])
    momentum = rng.uniform(0.5, 0.9) if kind == "momentum" else 0.0
    draw = _batches(rng, n, minibatch)
    if momentum:  # momentum lengthens the steps
        step *= 2.0 * (1.0 - momentum)
    if minibatch:  # batches need shorter steps than the whole set to be stable
        step *= rng.uniform(0.05, 0.5)
    where, velocity, t = start.copy(), np.zeros_like(start), 0
    while True:
        seen = []
        for rows in draw():
            t += 1
            loss, slope = objective(where, rows)
            seen.append(loss)
            size = 1.3 * step / np.sqrt(t) if kind == "shrinking" else step
            velocity = momentum * velocity - size * slope
            where = where + velocity
        yield float(np.mean(seen))


def _lbfgs(objective: Objective, start: Array, iterations: int) -> list[float]:
    from scipy.optimize import minimize

    losses = [objective(start, slice(None))[0]]

    def note(intermediate_result: Any) -> None:
        losses.append(float(intermediate_result.fun))

    minimize(
        objective, start, (slice(None),), method="L-BFGS-B", jac=True, callback=note,
        options={"maxiter": iterations, "ftol": 0.0, "gtol": 1e-9},
    )  # fmt: skip
    return losses


def _kmeans(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float]:
    """Run Lloyd's algorithm or its mini-batch form (Sculley). Loss: mean squared distance."""
    n, d, k = int(rng.integers(2000, 6000)), int(rng.integers(2, 12)), int(rng.integers(5, 60))
    middles = rng.standard_normal((int(rng.integers(3, 80)), d)) * rng.uniform(0.3, 3.0)
    x = middles[rng.integers(len(middles), size=n)] + rng.standard_normal((n, d))
    centers, seen = x[rng.choice(n, k, replace=False)], np.zeros((k, 1))
    draw = _batches(rng, n, minibatch)
    while True:
        costs = []
        for rows in draw():
            nearest, cost = _assign(x[rows], centers)
            members = np.eye(k)[nearest]
            counts, sums = members.sum(axis=0)[:, None], members.T @ x[rows]
            costs.append(cost)
            if minibatch:
                seen += counts
            step = np.divide(
                counts, seen if minibatch else counts, where=counts > 0, out=counts * 0
            )
            before = centers
            centers = centers + step * (sums / np.maximum(counts, 1.0) - centers)
        yield float(np.mean(costs))
        if not minibatch and np.array_equal(before, centers):
            return


def _assign(x: Array, centers: Array) -> tuple[NDArray[np.int64], float]:
    distance = np.sum(centers**2, axis=1) - 2.0 * (x @ centers.T)
    nearest = distance.argmin(axis=1)
    return nearest, float(np.sum((x - centers[nearest]) ** 2)) / len(x)


def _linear(
    rng: np.random.Generator, minibatch: bool, iterations: int, x: Array,
    loss: Callable[[Array, Rows], tuple[Array, Array]], curvature: float,
) -> Iterator[float] | list[float]:  # fmt: skip
    """Train a linear model; `loss` maps scores of some samples to losses and derivatives."""
    x = np.column_stack([x * _scales(rng, x.shape[1]), np.ones(len(x))])
    penalty = 10.0 ** rng.uniform(-5, -2)

    def objective(w: Array, rows: Rows) -> tuple[float, Array]:
        some = x[rows]
        value, slope = loss(some @ w, rows)
        total = float(value.mean() + 0.5 * penalty * w @ w)
        return total, some.T @ slope / len(some) + penalty * w

    start = np.zeros(x.shape[1])
    if curvature > 0 and not minibatch and rng.random() < 0.25:
        return _lbfgs(objective, start, iterations)
    largest = np.linalg.norm(x, 2) ** 2 / len(x)
    step = rng.uniform(0.3, 1.5) / (largest * (curvature or 1.0))
    return _descend(objective, start, step, rng, len(x), minibatch)


def _logistic_regression(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float] | list[float]:
    x, y = _two_classes(rng, *(EPSILON if wide else _size(rng, (500, 4000), (8, 60))))

    def loss(score: Array, rows: Rows) -> tuple[Array, Array]:
        margin = y[rows] * score
        return np.logaddexp(0.0, -margin), -y[rows] / (1.0 + np.exp(np.clip(margin, -50, 50)))

    return _linear(rng, minibatch, iterations, x, loss, curvature=0.25)


def _hinge(margin: Array, y: Array) -> tuple[Array, Array]:
    return np.maximum(0.0, 1.0 - margin), -y * (margin < 1.0)


def _linear_svm(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float] | list[float]:
    x, y = _two_classes(rng, *(EPSILON if wide else _size(rng, (500, 4000), (8, 60))))

    def loss(score: Array, rows: Rows) -> tuple[Array, Array]:
        return _hinge(y[rows] * score, y[rows])

    return _linear(rng, minibatch, iterations, x, loss, curvature=0.0)


def _linear_regression(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float] | list[float]:
    x, y = _regression(rng, *(YEAR if wide else _size(rng, (500, 4000), (8, 60))))

    def loss(score: Array, rows: Rows) -> tuple[Array, Array]:
        miss = score - y[rows]
        return 0.5 * miss**2, miss

    return _linear(rng, minibatch, iterations, x, loss, curvature=1.0)


def _kernel_svm(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float]:
    """Train on the hinge loss with a polynomial kernel and the gradient in function space."""
    from sklearn.metrics.pairwise import polynomial_kernel

    x, y = _two_classes(rng, *(MNIST if wide else _size(rng, (300, 700), (6, 20))))
    if wide:
        x = np.where(rng.random(x.shape) < INKED, x, 0.0)
    gram = polynomial_kernel(x, degree=int(rng.integers(2, 4)), gamma=1.0 / x.shape[1], coef0=1.0)
    penalty = 10.0 ** rng.uniform(-5, -2)

    def objective(a: Array, rows: Rows) -> tuple[float, Array]:
        score = gram @ a
        value, slope = _hinge(y[rows] * score[rows], y[rows])
        direction = penalty * a
        np.add.at(direction, rows, slope / len(value))
        return float(value.mean() + 0.5 * penalty * a @ score), direction

    step = rng.uniform(0.3, 3.0) * len(x) / np.trace(gram)
    return _descend(objective, np.zeros(len(x)), step, rng, len(x), minibatch)


def _mlp(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float] | list[float]:
    """Train one hidden layer of sigmoids and a softmax, like MLlib's classifier."""
    from sklearn.datasets import make_classification

    n, d = EPSILON if wide else (*_size(rng, (500, 2000)), 20)
    k, h = _size(rng, (2, 6), (8, 40))
    x, y = make_classification(
        n, d, n_informative=d // 2, n_classes=k, class_sep=rng.uniform(0.7, 1.5),
        flip_y=rng.uniform(0.0, 0.15), random_state=_integer(rng),
    )  # fmt: skip
    x, one_hot, cut = x / x.std(axis=0), np.eye(k)[y], (d + 1) * h
    penalty = 10.0 ** rng.uniform(-4, -2)

    def objective(w: Array, rows: Rows) -> tuple[float, Array]:
        inner, outer = w[:cut].reshape(d + 1, h), w[cut:].reshape(h + 1, k)
        some, truth = x[rows], one_hot[rows]
        hidden = 1.0 / (1.0 + np.exp(-np.clip(some @ inner[:d] + inner[d], -50, 50)))
        score = hidden @ outer[:h] + outer[h]
        score -= np.logaddexp.reduce(score, axis=1, keepdims=True)
        miss = (np.exp(score) - truth) / len(some)
        back = miss @ outer[:h].T * hidden * (1.0 - hidden)
        slopes = (some.T @ back, back.sum(axis=0), hidden.T @ miss, miss.sum(axis=0))
        loss = -float(np.sum(score * truth)) / len(some)
        slope = np.concatenate([part.ravel() for part in slopes]) + penalty * w
        return loss + 0.5 * penalty * float(w @ w), slope

    start = rng.standard_normal(cut + (h + 1) * k) * rng.uniform(0.05, 0.5)
    if not minibatch and rng.random() < 0.4:
        return _lbfgs(objective, start, iterations)
    return _descend(objective, start, rng.uniform(0.2, 1.5), rng, n, minibatch)


def _boosting(
    rng: np.random.Generator, minibatch: bool, iterations: int, kind: str, wide: bool
) -> list[float]:
    """Train boosted trees. With `minibatch`, each tree is trained on a part of the samples."""
    from sklearn import ensemble

    table_1 = EPSILON if kind == "Classifier" else YEAR
    n, d = table_1 if wide else _size(rng, (400, 1500), (5, 15))
    x, y = (_two_classes if kind == "Classifier" else _regression)(rng, n, d)
    model = getattr(ensemble, f"GradientBoosting{kind}")(
        n_estimators=iterations, learning_rate=10.0 ** rng.uniform(-1.7, -0.3),
        max_depth=int(rng.integers(2, 6)), max_features=int(rng.integers(2, 6)),
        subsample=rng.uniform(0.1, 0.6) if minibatch else 1.0, random_state=_integer(rng),
    )  # fmt: skip
    return [float(loss) for loss in model.fit(x, y).train_score_]


def _gbt_classifier(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> list[float]:
    return _boosting(rng, minibatch, iterations, "Classifier", wide)


def _gbt_regressor(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> list[float]:
    return _boosting(rng, minibatch, iterations, "Regressor", wide)


def _documents(rng: np.random.Generator, wide: bool) -> tuple[Array, int]:
    """Draw word counts from a topic model, and a number of topics to fit."""
    n, words = PRESS if wide else _size(rng, (150, 400), (200, 500))
    (topics,) = _size(rng, (5, 20))
    of_topic = rng.dirichlet(np.full(words, rng.uniform(0.02, 0.2)), size=topics)
    mixture = rng.dirichlet(np.full(topics, rng.uniform(0.1, 0.5)), size=n)
    lengths = rng.integers(30, 200, size=n)
    counts = [
        rng.multinomial(m, p / p.sum()) for m, p in zip(lengths, mixture @ of_topic, strict=True)
    ]
    return np.array(counts, dtype=float), int(rng.integers(4, 25))


def _lda(
    rng: np.random.Generator, minibatch: bool, iterations: int, wide: bool = False
) -> Iterator[float]:
    """Run EM with Dirichlet priors or its online form; the loss is -log-likelihood per word."""
    counts, topics = _documents(rng, wide)
    prior, offset = rng.uniform(0.01, 0.1), rng.uniform(2, 20)
    of_topic = rng.dirichlet(np.ones(counts.shape[1]), size=topics)
    mixture = rng.dirichlet(np.ones(topics), size=len(counts))
    seen = of_topic * counts.sum() / topics
    draw, t = _batches(rng, len(counts), minibatch), 0
    while True:
        costs = []
        for rows in draw():
            some, here, t = counts[rows], mixture[rows], t + 1
            for _ in range(8 if minibatch else 0):  # in online EM, documents are new to the model
                here = _normalized(here * ((some / (here @ of_topic)) @ of_topic.T) + prior)
            expected = here @ of_topic
            costs.append(float(-np.sum(some * np.log(expected)) / some.sum()))
            found = of_topic * (here.T @ (some / expected)) * (len(counts) / len(some))
            part = (t + offset) ** -0.7 if minibatch else 1.0
            seen = (1.0 - part) * seen + part * found
            mixture[rows] = _normalized(here * ((some / expected) @ of_topic.T) + prior)
            of_topic = _normalized(seen + prior)
        yield float(np.mean(costs))


def _normalized(rows: Array) -> Array:
    scaled: Array = rows / rows.sum(axis=1, keepdims=True)
    return scaled


ALGORITHMS: dict[str, Callable[..., Any]] = {
    "k-means": _kmeans,
    "logistic regression": _logistic_regression,
    "linear SVM": _linear_svm,
    "SVM, polynomial kernel": _kernel_svm,
    "linear regression": _linear_regression,
    "MLP classifier": _mlp,
    "gradient-boosted trees": _gbt_classifier,
    "gradient-boosted regression trees": _gbt_regressor,
    "LDA": _lda,
}


def _network(rng: np.random.Generator, minibatch: bool, iterations: int, data: str) -> list[float]:
    """Train a network of one to three layers, by Adam or SGD with momentum, on real data."""
    from sklearn import datasets, neural_network

    x, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    y = (y - y.mean()) / y.std() if data == "diabetes" else y
    made = neural_network.MLPRegressor if data == "diabetes" else neural_network.MLPClassifier
    model = made(
        hidden_layer_sizes=rng.integers(8, 128, size=int(rng.integers(1, 4))),
        max_iter=iterations, tol=0.0,
        solver=rng.choice(["adam", "sgd"]), learning_rate_init=10.0 ** rng.uniform(-3.3, -1.7),
        activation=rng.choice(["relu", "tanh"]), alpha=10.0 ** rng.uniform(-6, -2),
        batch_size=int(2 ** rng.integers(4, 8)) if minibatch else len(x),
        n_iter_no_change=iterations, random_state=_integer(rng),
    )  # fmt: skip
    return [float(loss) for loss in model.fit(x, y).loss_curve_]


#: Networks, by the data set of scikit-learn's that they are trained on.
NETWORKS: dict[str, Callable[..., Any]] = {
    f"network, {data}": partial(_network, data=data)
    for data in ("digits", "breast_cancer", "diabetes", "wine")
}
