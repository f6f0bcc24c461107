"""Comparison of the catalogue's workloads with one machine, and of fitted models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["REFERENCES", "Agreement", "Fit", "compare", "difference", "numbers"]

LEFT = "loss above the optimum, over the whole fall to it"


class Fit(NamedTuple):
    """Trained model with its data and losses; `y` is None for unsupervised models."""

    model: Any
    X: np.ndarray
    y: Any
    losses: list[float]
    partitions: int


class Agreement(NamedTuple):
    """Disagreement with a reference by some measure; 0 is perfect.

    `left` is the share of the whole loss reduction to the optimum that is still missing, if the
    reference gives the optimum. It measures the progress of training, not its correctness.
    """

    reference: str
    measure: str
    value: float
    left: float | None = None


def compare(name: str, fit: Fit) -> Agreement:
    """Train or solve the reference of a workload, and compare the fit with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping references before convergence is intended
        return REFERENCES[name](fit)


def _left(fit: Fit, optimum: float) -> float:
    return (fit.losses[-1] - optimum) / (fit.losses[0] - optimum)


def _k_means(fit: Fit) -> Agreement:
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
    value = float(moved / abs(other.cluster_centers_).max())
    what = "largest difference of a center's coordinate, over the largest coordinate"
    return Agreement("scikit-learn KMeans from the same start", what, value)


def _logistic(fit: Fit) -> Agreement:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    other = LogisticRegression(C=1e12, tol=1e-9, max_iter=1000).fit(fit.X, fit.y)
    optimum = log_loss(fit.y, other.predict_proba(fit.X), normalize=False)
    left = _left(fit, optimum)
    return Agreement("scikit-learn LogisticRegression", LEFT, left, left)


def _linear(fit: Fit) -> Agreement:
    from scipy.linalg import lstsq

    rows = np.column_stack([fit.X, np.ones(len(fit.X))])
    solution = lstsq(rows, fit.y)[0]
    optimum = 0.5 * float(np.sum((rows @ solution - fit.y) ** 2))
    left = _left(fit, optimum)
    return Agreement("scipy.linalg.lstsq", LEFT, left, left)


def _svm(fit: Fit) -> Agreement:
    feature_map = getattr(fit.model, "feature_map_", None)
    rows = fit.X if feature_map is None else feature_map.transform(fit.X)
    sign = np.where(fit.y == fit.model.classes_[1], 1.0, -1.0)
    w = _descend(rows, sign, fit.model)
    value = float(abs(w - fit.model.coef_[0]).max() / abs(w).max())
    reference = "the same descent as a NumPy loop over all rows"
    what = "largest difference of a coefficient, over the largest coefficient"
    return Agreement(reference, what, value, _left(fit, _hinge_optimum(rows, sign, fit.model)))


def _descend(rows: np.ndarray, sign: np.ndarray, model: Any) -> np.ndarray:
    w, b = np.zeros(rows.shape[1]), 0.0
    for t in range(1, model.n_iter_ + 1):
        inside = sign * (rows @ w + b) < 1.0
        step = model.step_size / math.sqrt(t)
        w, b = (
            w + step * (sign[inside] @ rows[inside] / len(rows) - model.alpha * w),
            b + step * sign[inside].sum() / len(rows),
        )
    return w


def _hinge_optimum(rows: np.ndarray, sign: np.ndarray, model: Any) -> float:
    """Approximate the optimum with scikit-learn's averaged stochastic gradient descent."""
    from sklearn.linear_model import SGDClassifier

    passes = max(20, min(1000, 3_000_000 // len(rows)))
    other = SGDClassifier(
        alpha=model.alpha, average=True, max_iter=passes, tol=None, random_state=0
    ).fit(rows, sign)
    w = other.coef_[0]
    margin = sign * (rows @ w + other.intercept_)
    return float(np.maximum(0.0, 1.0 - margin).mean() + 0.5 * model.alpha * w @ w)


def _boosting(fit: Fit) -> Agreement:
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
    value = abs(fit.losses[-1] - loss) / (fit.losses[0] - loss)
    what = "difference of the loss on the same rows, over the reference's fall"
    return Agreement(f"scikit-learn {kind}", what, value)


def _perceptron(fit: Fit) -> Agreement:
    from sklearn.neural_network import MLPClassifier

    model = fit.model
    other = MLPClassifier(
        model.hidden_layer_sizes, activation="logistic", solver="lbfgs", alpha=model.alpha,
        max_iter=model.max_iter, tol=0.0, random_state=model.random_state,
    ).fit(fit.X, fit.y)  # fmt: skip
    value = abs(fit.losses[-1] - other.loss_) / other.loss_
    reference = "scikit-learn MLPClassifier by L-BFGS from the same start"
    return Agreement(reference, "relative difference of the loss", value)


def _lda(fit: Fit) -> Agreement:
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
    value = abs(math.exp(fit.losses[-1]) - perplexity) / perplexity
    reference = f"scikit-learn LatentDirichletAllocation, {method}"
    return Agreement(reference, "relative difference of the perplexity", value)


REFERENCES: dict[str, Callable[[Fit], Agreement]] = {
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


def numbers(model: Any) -> list[np.ndarray]:
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


def difference(one: Any, other: Any) -> float:
    """Compute the largest absolute difference of the numbers of two fitted models of one type.

    Returns 0 if they agree bit for bit, infinity if shapes differ.
    """
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    # Skip equal arrays first: unused nodes of trees may hold infinities and nan.
    return max((float(abs(a - b).max()) for a, b in pairs if not _equal(a, b)), default=0.0)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
