"""Multi-layer perceptron, trained by L-BFGS on a loss and gradient that Dask computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn.utils import check_random_state

from benchmarks.workloads.elastic import (
    PartitionedClassifier,
    Partitions,
    check_integer,
    check_number,
)
from dask_slaq.core.errors import InvalidSetting

__all__ = ["MLPClassifier"]


class MLPClassifier(PartitionedClassifier):
    """Multi-layer perceptron with sigmoid layers and a softmax output, as in MLlib.

    Minimizes the mean cross-entropy + alpha / (2 n_rows) times the squared weights, where the
    intercepts are not penalized. This is the objective of scikit-learn's
    ``MLPClassifier(solver="lbfgs", activation="logistic")``. For more than two classes the starting
    point is the same, too; for two classes, scikit-learn's network has a single output and this
    one has two. Each evaluation of the loss and gradient runs one task per partition. An iteration
    of L-BFGS needs one evaluation, or a few if it does not accept the first step.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int
        Number of sigmoid units in each hidden layer.
    alpha : float
        Weight of the penalty, >= 0.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when no component of the gradient exceeds tol. With 0, stop when the loss no longer
        falls.
    random_state : int, RandomState or None
        Seed for drawing the starting point.

    Attributes
    ----------
    coefs_, intercepts_ : list of array, (n_in, n_out) and (n_out,)
        Weights and intercepts of each layer.
    classes_ : array, (n_classes,)
        Class labels, sorted.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Number of iterations run.
    loss_ : float
        Loss of the fitted model.
    loss_curve_ : list of float, (n_iter_ + 1,)
        Loss at the start and after each accepted iteration.
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        *,
        alpha: float = 1e-4,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> MLPClassifier:
        """Fit the model. The workers may change between evaluations.

        Parameters
        ----------
        X : dask array or array_like, (n_rows, n_features)
            Training data. Persist dask arrays first: every evaluation reads them.
        y : dask array or array_like, (n_rows,)
            Labels of two or more classes, split into partitions like X.

        Returns
        -------
        MLPClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are invalid.
        """
        hidden = self._check_parameters()
        parts, found = self._begin(X, y)
        sizes = (found.columns, *hidden, len(self.classes_))
        objective = _Objective(parts, found.n, sizes, self.classes_, self.alpha)
        theta = self._minimize(objective, _start(sizes, check_random_state(self.random_state)))
        self.coefs_, self.intercepts_ = map(list, zip(*_layers(theta, sizes), strict=True))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, (n_rows, n_classes). The result is lazy for a dask array."""
        if self._fitted(X):
            return self._by_block("predict_proba", X, float, len(self.classes_))
        *_, score = _forward(self._rows(X), list(zip(self.coefs_, self.intercepts_, strict=True)))
        return np.exp(log_softmax(score, axis=1))

    def predict(self, X: Any) -> Any:
        """Predict class labels, (n_rows,). The result is lazy for a dask array."""
        if self._fitted(X):
            return self._by_block("predict", X, self.classes_.dtype)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _check_parameters(self) -> tuple[int, ...]:
        """Check all parameters and return the sizes of the hidden layers."""
        sizes = self.hidden_layer_sizes
        hidden = tuple(sizes) if np.iterable(sizes) else (sizes,)
        if isinstance(sizes, str) or not hidden:
            raise InvalidSetting(f"hidden_layer_sizes must be one integer or more, not {sizes!r}")
        for size in hidden:
            check_integer("each of hidden_layer_sizes", size)
        check_number("alpha", self.alpha, zero=True)
        check_integer("max_iter", self.max_iter)
        check_number("tol", self.tol, zero=True)
        return tuple(int(size) for size in hidden)

    def _minimize(self, objective: _Objective, start: np.ndarray) -> np.ndarray:
        def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
            loss, slope = objective(theta)
            if not self.loss_curve_:  # The start; later steps are recorded once accepted.
                self._record(loss)
            return loss, slope

        def accepted(intermediate_result: Any) -> None:
            if not self._record(float(intermediate_result.fun)):
                raise StopIteration  # SciPy returns the iterate so far

        options = {
            "maxiter": self.max_iter,
            "maxfun": max(15_000, 20 * self.max_iter),
            "gtol": self.tol,
            "ftol": 0.0,
        }
        found = minimize(
            evaluate, start, method="L-BFGS-B", jac=True, callback=accepted, options=options
        )
        self.n_iter_ = int(found.nit)
        result: np.ndarray = found.x
        return result


class _Objective:
    """Penalized mean loss and its gradient as a function of the parameters."""

    def __init__(
        self, parts: Partitions, n: int, sizes: tuple[int, ...], classes: np.ndarray, alpha: float
    ) -> None:
        self.parts = parts
        self.n = n
        self.sizes = sizes
        self.classes = classes
        self.alpha = alpha

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = self.parts.sum(_backpropagate, theta, self.sizes, self.classes)
        slope = slope.copy()  # a single partition's result may be read-only
        for (weights, _), (into, _) in zip(
            _layers(theta, self.sizes), _layers(slope, self.sizes), strict=True
        ):
            loss += 0.5 * self.alpha * float(np.vdot(weights, weights))
            into += self.alpha * weights
        return loss / self.n, slope / self.n


Layers = list[tuple[np.ndarray, np.ndarray]]


def _layers(theta: np.ndarray, sizes: tuple[int, ...]) -> Layers:
    """Return the weights and intercepts of each layer, as views into `theta`."""
    return list(_cut(theta, sizes))


def _cut(theta: np.ndarray, sizes: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    at = 0
    for n_in, n_out in pairwise(sizes):
        middle, end = at + n_in * n_out, at + (n_in + 1) * n_out
        yield theta[at:middle].reshape(n_in, n_out), theta[middle:end]
        at = end


def _start(sizes: tuple[int, ...], random: np.random.RandomState) -> np.ndarray:
    """Draw uniform starting values (Glorot and Bengio 2010), in scikit-learn's order."""
    drawn = []
    for n_in, n_out in pairwise(sizes):
        bound = np.sqrt(2.0 / (n_in + n_out))
        drawn += [random.uniform(-bound, bound, n_in * n_out), random.uniform(-bound, bound, n_out)]
    return np.concatenate(drawn)


def _forward(x: Any, layers: Layers) -> list[np.ndarray]:
    """Return the input of each layer, followed by the scores of the classes."""
    flow = [x]
    for weights, intercepts in layers[:-1]:
        flow.append(expit(flow[-1] @ weights + intercepts))
    weights, intercepts = layers[-1]
    return [*flow, flow[-1] @ weights + intercepts]


def _backpropagate(
    x: Any, y: np.ndarray, theta: np.ndarray, sizes: tuple[int, ...], classes: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the cross-entropy of a partition and its gradient, summed over its rows."""
    layers = _layers(theta, sizes)
    *inputs, score = _forward(x, layers)
    truth = y[:, None] == classes
    score = log_softmax(score, axis=1)
    error = np.exp(score) - truth
    slope = np.empty_like(theta)
    slopes = _layers(slope, sizes)
    for i in reversed(range(len(layers))):
        slopes[i][0][:] = inputs[i].T @ error
        slopes[i][1][:] = error.sum(axis=0)
        if i:
            error = error @ layers[i][0].T * inputs[i] * (1.0 - inputs[i])
    return -float(score[truth].sum()), slope
