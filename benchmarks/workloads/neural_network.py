"""Multi-layer perceptron, trained by L-BFGS on a loss and gradient that Dask computes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from sklearn.utils import check_random_state

from benchmarks.workloads.partitions import Elastic

#: Weights (n_in, n_out) and intercepts (n_out,) of each layer.
Layers = list[tuple[np.ndarray, np.ndarray]]


class MLPClassifier(Elastic):
    """Multi-layer perceptron with sigmoid layers and a softmax output, as in MLlib.

    Minimizes the mean cross-entropy + alpha / (2 n_rows) times the squared weights, where the
    intercepts are not penalized. This is the objective of scikit-learn's
    ``MLPClassifier(solver="lbfgs", activation="logistic")``. For more than two classes the starting
    point is the same, too; for two classes, scikit-learn's network has a single output and this
    one has two. Each evaluation of the loss and gradient runs one task per partition. An iteration
    of L-BFGS needs one evaluation, or a few if it does not accept the first step. Training ends
    early when the loss no longer falls.
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (100,),
        *,
        alpha: float = 1e-4,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> MLPClassifier:
        """Fit the model to persisted dask arrays. The workers may change between evaluations."""
        parts = self._begin(X, y)
        self.classes_ = parts.labels()
        sizes = (X.shape[1], *self.hidden_layer_sizes, len(self.classes_))

        def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
            loss, slope = parts.sum(_backpropagate, theta, sizes, self.classes_)
            slope = slope.copy()  # a single partition's result may be read-only
            for (weights, _), (into, _) in zip(
                _layers(theta, sizes), _layers(slope, sizes), strict=True
            ):
                loss += 0.5 * self.alpha * float(np.vdot(weights, weights))
                into += self.alpha * weights
            loss, slope = loss / n, slope / n
            if not self.loss_curve_:  # the start; later steps are recorded once accepted
                self._record(loss)
            return loss, slope

        def accepted(intermediate_result: Any) -> None:
            if not self._record(intermediate_result.fun):
                raise StopIteration  # SciPy returns the iterate so far

        n = sum(parts.rows)
        options = {
            "maxiter": self.max_iter,
            "maxfun": max(15_000, 20 * self.max_iter),
            "gtol": 0.0,
            "ftol": 0.0,
        }
        start = _start(sizes, check_random_state(self.random_state))
        found = minimize(
            evaluate, start, method="L-BFGS-B", jac=True, callback=accepted, options=options
        )
        self.n_iter_ = int(found.nit)
        self.coefs_, self.intercepts_ = map(list, zip(*_layers(found.x, sizes), strict=True))
        return self


def _layers(theta: np.ndarray, sizes: tuple[int, ...]) -> Layers:
    """Return the weights and intercepts of each layer, as views into `theta`."""
    found, at = [], 0
    for n_in, n_out in pairwise(sizes):
        middle, end = at + n_in * n_out, at + (n_in + 1) * n_out
        found.append((theta[at:middle].reshape(n_in, n_out), theta[middle:end]))
        at = end
    return found


def _start(sizes: tuple[int, ...], random: np.random.RandomState) -> np.ndarray:
    """Draw uniform starting values (Glorot and Bengio 2010), in scikit-learn's order."""
    drawn = []
    for n_in, n_out in pairwise(sizes):
        bound = np.sqrt(2.0 / (n_in + n_out))
        drawn += [random.uniform(-bound, bound, n_in * n_out), random.uniform(-bound, bound, n_out)]
    return np.concatenate(drawn)


def _backpropagate(
    x: np.ndarray, y: np.ndarray, theta: np.ndarray, sizes: tuple[int, ...], classes: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the cross-entropy of a partition and its gradient, summed over its rows."""
    layers = _layers(theta, sizes)
    inputs = [x]
    for weights, intercepts in layers[:-1]:
        inputs.append(expit(inputs[-1] @ weights + intercepts))
    weights, intercepts = layers[-1]
    score = log_softmax(inputs[-1] @ weights + intercepts, axis=1)
    truth = y[:, None] == classes
    error = np.exp(score) - truth
    slope = np.empty_like(theta)
    slopes = _layers(slope, sizes)
    for i in reversed(range(len(layers))):
        slopes[i][0][:] = inputs[i].T @ error
        slopes[i][1][:] = error.sum(axis=0)
        if i:
            error = error @ layers[i][0].T * inputs[i] * (1.0 - inputs[i])
    return -float(score[truth].sum()), slope
