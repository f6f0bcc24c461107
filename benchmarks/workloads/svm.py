"""Linear and polynomial support vector machines, trained by sub-gradient descent.

The algorithm is that of MLlib's SVMWithSGD, but each iteration uses all rows: it runs one task per
partition, and nothing in the descent is random.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from dask.delayed import delayed
from sklearn.utils import check_random_state

from benchmarks.workloads.elastic import (
    PartitionedClassifier,
    Partitions,
    check_integer,
    check_number,
    contiguous,
)

__all__ = ["LinearSVM", "PolynomialSVM"]


class LinearSVM(PartitionedClassifier):
    """Linear classifier for two classes: hinge loss, full-batch sub-gradient descent.

    Minimizes mean(max(0, 1 - s (w.x + b))) + alpha/2 |w|^2, where s is 1 for the second class and
    -1 for the first. The intercept b is not penalized. Training starts from zero, and iteration t
    takes a step of step_size / sqrt(t) down the sub-gradient, as MLlib's SVMWithSGD does when each
    step uses all rows.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, >= 0. The same as MLlib's regParam and `SGDClassifier`'s alpha.
    step_size : float
        Size of the first step, > 0. It should shrink with the square of the features' scale.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Stop when (w, b) moved by at most tol * max(norm of (w, b), 1). With 0, run all iterations.
    fit_intercept : bool
        Whether to learn b, otherwise it is 0.

    Attributes
    ----------
    coef_ : array, (1, n_features)
        Weights w.
    intercept_ : array, (1,)
        Intercept b.
    classes_ : array, (2,)
        Class labels, sorted.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Number of iterations run.
    loss_ : float
        Loss of the fitted model.
    loss_curve_ : list of float, (n_iter_ + 1,)
        Loss at the start and after each iteration.
    """

    def __init__(
        self,
        *,
        alpha: float = 1e-4,
        step_size: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        fit_intercept: bool = True,
    ) -> None:
        self.alpha = alpha
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> LinearSVM:
        """Fit the model. The workers may change between iterations.

        Parameters
        ----------
        X : dask array, array_like or sparse matrix, (n_rows, n_features)
            Training data. The blocks of a dask array may be SciPy csr matrices. Persist dask
            arrays first: every iteration reads them.
        y : dask array or array_like, (n_rows,)
            Labels of two classes, split into partitions like X.

        Returns
        -------
        LinearSVM
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are invalid, or there are more than two classes.
        """
        self._check_parameters()
        parts, found = self._begin_binary(X, y)
        self._descend(parts, found.n, found.columns)
        return self

    def decision_function(self, X: Any) -> Any:
        """Compute signed distances from the hyperplane, times \\|w\\|.

        Returns
        -------
        dask array or array, (n_rows,)
            A lazy dask array if X is a dask array.
        """
        if self._fitted(X):
            return self._by_block("decision_function", X, float)
        return self._features(self._rows(X)) @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: Any) -> Any:
        """Predict class labels.

        Returns
        -------
        dask array or array, (n_rows,)
            A lazy dask array if X is a dask array.
        """
        if self._fitted(X):
            return self._by_block("predict", X, self.classes_.dtype)
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def _check_parameters(self) -> None:
        check_number("alpha", self.alpha, zero=True)
        check_number("step_size", self.step_size, zero=False)
        check_integer("max_iter", self.max_iter)
        check_number("tol", self.tol, zero=True)

    def _begin_binary(self, X: Any, y: Any) -> Any:
        parts, found = self._begin(X, y)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. "
                f"{type(self).__name__} takes two classes; y has {len(self.classes_)}: "
                f"{self.classes_[:5].tolist()}{' ...' if len(self.classes_) > 5 else ''}"
            )
        return parts, found

    def _features(self, X: Any) -> Any:
        return X

    def _descend(self, parts: Partitions, n: int, columns: int) -> None:
        theta = np.zeros(columns + 1)  # the intercept is last
        slope, _ = self._evaluate(parts, n, theta)
        for t in range(1, self.max_iter + 1):
            before, theta = theta, theta - self.step_size / np.sqrt(t) * slope
            slope, goes_on = self._evaluate(parts, n, theta)
            moved = np.linalg.norm(theta - before)
            if not goes_on or (self.tol and moved <= self.tol * max(np.linalg.norm(theta), 1.0)):
                break
        self.n_iter_ = t
        self.coef_, self.intercept_ = theta[None, :-1], theta[-1:]

    def _evaluate(self, parts: Partitions, n: int, theta: np.ndarray) -> tuple[np.ndarray, bool]:
        """Record the loss at `theta`. Returns the sub-gradient and whether training goes on."""
        loss, slope = parts.sum(_hinge, theta, self.classes_[1])
        slope = slope / n
        slope[:-1] += self.alpha * theta[:-1]
        slope[-1] *= bool(self.fit_intercept)
        penalty = 0.5 * self.alpha * float(theta[:-1] @ theta[:-1])
        return slope, self._record(loss / n + penalty)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PolynomialSVM(LinearSVM):
    """Polynomial classifier for two classes: `LinearSVM` on approximate kernel features.

    The kernel is (gamma x.x' + coef0)^degree. Its features are approximated by the Nystroem method
    (`sklearn.kernel_approximation.Nystroem`) from a sample of the rows. Each partition is
    transformed once, and the workers hold the result.

    Parameters
    ----------
    degree : int
        Degree of the kernel, >= 1.
    gamma : float, optional
        Factor of the inner product, > 0. The default is 1 / n_features.
    coef0 : float
        Constant term of the kernel, >= 0.
    n_components : int
        Number of rows in the sample (all rows if there are fewer), and of kernel features.
    alpha, step_size, max_iter, tol, fit_intercept
        See `LinearSVM`. The squared norm of a row's features is about the kernel of the row with
        itself.
    random_state : int, RandomState or None
        Seed for drawing the sample.

    Attributes
    ----------
    feature_map_ : Nystroem
        Fitted kernel approximation.
    coef_ : array, (1, n_components)
        Weights of the kernel features.
    intercept_, classes_, n_features_in_, n_iter_, loss_, loss_curve_
        See `LinearSVM`.
    """

    def __init__(
        self,
        *,
        degree: int = 3,
        gamma: float | None = None,
        coef0: float = 1.0,
        n_components: int = 100,
        alpha: float = 1e-4,
        step_size: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            alpha=alpha, step_size=step_size, max_iter=max_iter, tol=tol,
            fit_intercept=fit_intercept,
        )  # fmt: skip
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PolynomialSVM:
        """Draw the sample, transform the partitions and fit the model. See `LinearSVM.fit`."""
        self._check_parameters()
        parts, found = self._begin_binary(X, y)
        random = check_random_state(self.random_state)
        self.feature_map_ = self._map_of(parts.sample(found.rows, self.n_components, random))
        sent_once = delayed(self.feature_map_, pure=False, traverse=False)
        features = parts.transform(_transform, sent_once)
        self._descend(features, found.n, self.feature_map_.components_.shape[0])
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("degree", self.degree)
        if self.gamma is not None:
            check_number("gamma", self.gamma, zero=False)
        check_number("coef0", self.coef0, zero=True)
        check_integer("n_components", self.n_components)

    def _map_of(self, sample: Any) -> Any:
        from sklearn.kernel_approximation import Nystroem

        feature_map = Nystroem(
            "poly", gamma=self.gamma, coef0=self.coef0, degree=self.degree,
            n_components=sample.shape[0], random_state=0,
        )  # fmt: skip
        try:
            return feature_map.fit(sample)
        except ValueError as error:  # From the decomposition: the survey has checked the rows.
            raise ValueError(f"the kernel is too large, scale the features: {error}") from error

    def _features(self, X: Any) -> Any:
        return _transform(X, self.feature_map_)


def _hinge(x: Any, y: np.ndarray, theta: np.ndarray, positive: Any) -> tuple[float, np.ndarray]:
    """Return the hinge loss and a sub-gradient of a partition, summed over its rows."""
    sign = np.where(y == positive, 1.0, -1.0)
    margin = sign * (x @ theta[:-1] + theta[-1])
    pull = np.where(margin < 1.0, -sign, 0.0)
    return float(np.maximum(0.0, 1.0 - margin).sum()), np.append(x.T @ pull, pull.sum())


def _transform(x: Any, feature_map: Any) -> np.ndarray:
    if not x.shape[0]:  # scikit-learn refuses to compute a kernel without rows
        return np.empty((0, feature_map.components_.shape[0]))
    # Arrays received inside another object may be unaligned, too.
    feature_map = copy.copy(feature_map)
    feature_map.components_ = contiguous(feature_map.components_)
    feature_map.normalization_ = contiguous(feature_map.normalization_)
    return np.ascontiguousarray(feature_map.transform(x))
