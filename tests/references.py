"""Comparison of the catalogue's workloads with one machine, and of fitted models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Fit(NamedTuple):
    """Trained model with its data and losses; `y` is None for unsupervised models."""

    model: Any
    X: np.ndarray
    y: Any
    losses: list[float]
    partitions: int


def disagreement(name: str, fit: Fit) -> float:
    """Train or solve the reference of a workload, and compare; 0 is perfect.

    Returns the largest difference of a coefficient over the largest coefficient, or the relative
    difference of the loss; of `logistic-regression` and `linear-regression` what is left of
    the fall of the loss to the optimum.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping references before convergence is intended
        return REFERENCES[name](fit)


def _left(fit: Fit, optimum: float) -> float:
    return (fit.losses[-1] - optimum) / (fit.losses[0] - optimum)


def _k_means(fit: Fit) -> float:
    import dask.array as da
    from dask_ml.cluster.k_means import k_init
    from sklearn.cluster import KMeans

    model, n = fit.model, fit.model.n_clusters
    chunks = (math.ceil(len(fit.X) / fit.partitions), fit.X.shape[1])
    start = k_init(
        da.from_array(fit.X, chunks=chunks), n, init=model.init, random_state=model.random_state
    )
    other = KMeans(n, init=np.asarray(start), n_init=1, max_iter=model.max_iter, tol=0.0).fit(fit.X)
    moved = abs(other.cluster_centers_ - model.cluster_centers_).max()
    return float(moved / abs(other.cluster_centers_).max())


def _logistic(fit: Fit) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    other = LogisticRegression(C=1e12, tol=1e-9, max_iter=1000).fit(fit.X, fit.y)
    return _left(fit, log_loss(fit.y, other.predict_proba(fit.X), normalize=False))


def _linear(fit: Fit) -> float:
    from scipy.linalg import lstsq

    rows = np.column_stack([fit.X, np.ones(len(fit.X))])
    solution = lstsq(rows, fit.y)[0]
    return _left(fit, 0.5 * float(np.sum((rows @ solution - fit.y) ** 2)))


def _svm(fit: Fit) -> float:
    """Compare with the same descent as a NumPy loop over all rows."""
    model, feature_map = fit.model, getattr(fit.model, "feature_map_", None)
    rows = fit.X if feature_map is None else feature_map.transform(fit.X)
    sign = np.where(fit.y == model.classes_[1], 1.0, -1.0)
    w, b = np.zeros(rows.shape[1]), 0.0
    for t in range(1, model.n_iter_ + 1):
        inside = sign * (rows @ w + b) < 1.0
        step = model.step_size / math.sqrt(t)
        w, b = (
            w + step * (sign[inside] @ rows[inside] / len(rows) - model.alpha * w),
            b + step * sign[inside].sum() / len(rows),
        )
    return float(abs(w - model.coef_[0]).max() / abs(w).max())


def _boosting(fit: Fit) -> float:
    from sklearn import ensemble
    from sklearn.metrics import log_loss

    model, classify = fit.model, hasattr(fit.model, "classes_")
    kind = "HistGradientBoosting" + ("Classifier" if classify else "Regressor")
    other = getattr(ensemble, kind)(
        max_iter=model.max_iter, learning_rate=model.learning_rate, max_depth=model.max_depth,
        max_leaf_nodes=None, early_stopping=False, random_state=0,
    ).fit(fit.X, fit.y)  # fmt: skip
    if classify:
        loss = log_loss(fit.y, other.predict_proba(fit.X))
    else:
        loss = float(np.mean((other.predict(fit.X) - fit.y) ** 2))
    return abs(fit.losses[-1] - loss) / (fit.losses[0] - loss)


def _perceptron(fit: Fit) -> float:
    from sklearn.neural_network import MLPClassifier

    model = fit.model
    other = MLPClassifier(
        model.hidden_layer_sizes, activation="logistic", solver="lbfgs", alpha=model.alpha,
        max_iter=model.max_iter, tol=0.0, random_state=model.random_state,
    ).fit(fit.X, fit.y)  # fmt: skip
    return float(abs(fit.losses[-1] - other.loss_) / other.loss_)


def _lda(fit: Fit) -> float:
    from sklearn.decomposition import LatentDirichletAllocation

    model, method = fit.model, fit.model.learning_method
    other = LatentDirichletAllocation(
        model.n_components, learning_method=method, max_iter=model.max_iter,
        random_state=model.random_state, total_samples=len(fit.X),
    )  # fmt: skip
    if method == "batch":
        other.fit(fit.X)
    else:  # the same number of updates, each with the documents of one partition
        batches = np.array_split(fit.X, fit.partitions)
        for i in range(model.max_iter):
            other.partial_fit(batches[i % len(batches)])
    perplexity = other.perplexity(fit.X)
    return float(abs(math.exp(fit.losses[-1]) - perplexity) / perplexity)


REFERENCES: dict[str, Callable[[Fit], float]] = {
    "k-means": _k_means,
    "logistic-regression": _logistic,
    "linear-svm": _svm,
    "polynomial-svm": _svm,
    "boosting-classifier": _boosting,
    "boosting-regressor": _boosting,
    "perceptron": _perceptron,
    "lda": _lda,
    "lda-online": _lda,
    "linear-regression": _linear,
}


def same(one: Any, other: Any) -> bool:
    """Return whether the numbers of two fitted models of one type agree bit for bit."""
    pairs = zip(_numbers(one), _numbers(other), strict=True)
    # Unused nodes of trees may hold nan.
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _numbers(model: Any) -> list[np.ndarray]:
    """Return all numeric attributes that a fitted model has learned, including losses."""
    fitted = {k: v for k, v in vars(model).items() if k.endswith("_") and not k.startswith("_")}
    return [array for name in sorted(fitted) for array in _arrays(fitted[name])]


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, list | tuple):
        return [array for one in value for array in _arrays(one)]
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [array for name in value.dtype.names for array in _arrays(value[name])]
    if isinstance(value, np.ndarray | np.number | float | int):
        array = np.asarray(value)
        return [array] if array.dtype.kind in "iuf" else []
    return []
