"""Linear and polynomial support vector machines, trained by sub-gradient descent.

The algorithm is that of MLlib's SVMWithSGD, but each iteration uses all rows: it runs one task per
partition, and nothing in the descent is random.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem

from benchmarks.workloads.partitions import Elastic, Partitions, contiguous


class LinearSVM(Elastic):
    """Linear classifier for two classes: hinge loss, full-batch sub-gradient descent.

    Minimizes mean(max(0, 1 - s (w.x + b))) + alpha/2 |w|^2, where s is 1 for the second class and
    -1 for the first. The intercept b is not penalized. Training starts from zero, and iteration t
    takes a step of step_size / sqrt(t) down the sub-gradient. `step_size` should shrink with the
    square of the features' scale.
    """

    def __init__(self, *, alpha: float = 1e-4, step_size: float = 1.0, max_iter: int = 100) -> None:
        self.alpha = alpha
        self.step_size = step_size
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> LinearSVM:
        """Fit the model to persisted dask arrays. The workers may change between iterations."""
        parts = self._begin(X, y)
        self.classes_ = parts.labels()
        return self._descend(parts, X.shape[1])

    def _descend(self, parts: Partitions, columns: int) -> LinearSVM:
        theta = np.zeros(columns + 1)  # the intercept is last
        slope, _ = self._evaluate(parts, theta)
        for t in range(1, self.max_iter + 1):
            theta = theta - self.step_size / np.sqrt(t) * slope
            slope, goes_on = self._evaluate(parts, theta)
            if not goes_on:
                break
        self.n_iter_ = t
        self.coef_, self.intercept_ = theta[None, :-1], theta[-1:]
        return self

    def _evaluate(self, parts: Partitions, theta: np.ndarray) -> tuple[np.ndarray, bool]:
        """Record the loss at `theta`. Returns the sub-gradient and whether training goes on."""
        n = sum(parts.rows)
        loss, slope = parts.sum(_hinge, theta, self.classes_[1])
        slope = slope / n
        slope[:-1] += self.alpha * theta[:-1]
        penalty = 0.5 * self.alpha * float(theta[:-1] @ theta[:-1])
        return slope, self._record(loss / n + penalty)


class PolynomialSVM(LinearSVM):
    """`LinearSVM` on approximate features of the kernel (x.x' / n_features + 1)^degree.

    The features are approximated by the Nystroem method from a sample of `n_components` rows (all
    rows if there are fewer). Each partition is transformed once, and the workers hold the result.
    """

    def __init__(
        self,
        *,
        degree: int = 3,
        n_components: int = 100,
        alpha: float = 1e-4,
        step_size: float = 1.0,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        super().__init__(alpha=alpha, step_size=step_size, max_iter=max_iter)
        self.degree = degree
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LinearSVM:
        """Draw the sample, transform the partitions and fit the model. See `LinearSVM.fit`."""
        parts = self._begin(X, y)
        self.classes_ = parts.labels()
        sample = parts.sample(self.n_components, self.random_state)
        self.feature_map_ = Nystroem(
            "poly", coef0=1.0, degree=self.degree, n_components=len(sample), random_state=0
        ).fit(sample)
        return self._descend(parts.transform(_transform, self.feature_map_), len(sample))


def _hinge(
    x: np.ndarray, y: np.ndarray, theta: np.ndarray, positive: Any
) -> tuple[float, np.ndarray]:
    """Return the hinge loss and a sub-gradient of a partition, summed over its rows."""
    sign = np.where(y == positive, 1.0, -1.0)
    margin = sign * (x @ theta[:-1] + theta[-1])
    pull = np.where(margin < 1.0, -sign, 0.0)
    return float(np.maximum(0.0, 1.0 - margin).sum()), np.append(x.T @ pull, pull.sum())


def _transform(x: np.ndarray, feature_map: Nystroem) -> np.ndarray:
    # Arrays received inside another object may be unaligned, too.
    feature_map = copy.copy(feature_map)
    feature_map.components_ = contiguous(feature_map.components_)
    feature_map.normalization_ = contiguous(feature_map.normalization_)
    return np.ascontiguousarray(feature_map.transform(x))
