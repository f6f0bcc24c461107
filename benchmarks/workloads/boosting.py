"""Gradient-boosted trees with one task per partition and tree level.

The cluster holds the binned features, which never change, and the scores of the rows. A task sums
gradients per bin for the nodes of one level, and the process that called `fit` chooses the splits.
Nothing is tied to a worker, unlike in xgboost and lightgbm, whose workers are fixed while they
train.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import dask
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from benchmarks.workloads.elastic import Partitions, Survey, as_dask, dense, map_rows
from benchmarks.workloads.hist_boosting import (
    LogLoss,
    Rounds,
    Softmax,
    SquaredError,
    TreeParams,
    bins_of,
    labels_of,
    probabilities_of,
    scores_of,
    thresholds_of,
)
from dask_slaq.adapters.observing import describe_estimator, expect, publish

__all__ = ["GradientBoostingClassifier", "GradientBoostingRegressor"]

#: Limit of `max_depth`: each level doubles the size of the histograms that are sent.
MAX_DEPTH = 12


class GradientBoosting(BaseEstimator):
    """Base class of the gradient-boosting classifier and regressor.

    `fit` reads `X` three times (validation, sample of rows, binning) and `y` twice. Persist both
    first to load them once. The iterations read only the bins.

    Parameters
    ----------
    max_iter : int
        Number of iterations. Each adds one tree, or one tree per class for more than two classes.
    learning_rate : float
        Factor applied to the leaf values, > 0.
    max_depth : int
        Levels of splits, 1 to 12. Each level doubles the size of the histograms that are sent.
    max_bins : int
        Maximum number of bins per feature, 2 to 255.
    l2_regularization : float
        Penalty on squared leaf values, >= 0.
    min_samples_leaf : int
        Minimum number of rows per leaf.
    subsample : int
        Number of rows to draw for the quantiles that bound the bins. All rows are used if there
        are no more than that.
    random_state : int, RandomState or None
        Seed for drawing the sample. The split of rows into partitions changes the result only by
        rounding.

    Attributes
    ----------
    trees_ : array of NODE, (n_iter_, n_outputs, n_nodes)
        See `benchmarks.workloads.hist_boosting.trees`.
    start_ : array, (n_outputs,)
        Scores before the first tree.
    loss_curve_ : list of float, (n_iter_ + 1,)
        Reported loss at the start and after each iteration.
    n_iter_ : int
        Number of iterations run.
    n_features_in_ : int
        Number of columns of `X`.
    """

    def __init__(
        self,
        max_iter: int = 100,
        *,
        learning_rate: float = 0.1,
        max_depth: int = 3,
        max_bins: int = 255,
        l2_regularization: float = 0.0,
        min_samples_leaf: int = 20,
        subsample: int = 20_000,
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.max_bins = max_bins
        self.l2_regularization = l2_regularization
        self.min_samples_leaf = min_samples_leaf
        self.subsample = subsample
        self.random_state = random_state

    def _fit(self, X: Any, y: Any) -> None:
        self._check()
        X, y = as_dask(X, "X", 2), as_dask(y, "y", 1)
        raw = Partitions(X, y)
        found = raw.survey(labels=isinstance(self, ClassifierMixin))
        objective = self._objective(found)
        thresholds = thresholds_of(self._sample(raw, found), self.max_bins)
        bins = map_rows(
            bins_of, X, thresholds, n_features=found.columns, columns=found.columns, dtype=np.uint8
        )
        describe_estimator("dask_slaq", self, X)
        held = Partitions(*dask.persist(bins, self._targets(y)))
        self._train(Rounds(held, objective, thresholds, self._growth(), found.n))
        self.n_features_in_ = found.columns

    def _train(self, rounds: Rounds) -> None:
        self.loss_curve_: list[float] = []
        expect(self.max_iter)
        for iteration in range(self.max_iter + 1):
            self.loss_curve_.append(rounds.look(last=iteration == self.max_iter))
            if not publish(self.loss_curve_[-1]) and iteration:
                break
            if iteration < self.max_iter:
                rounds.grow()
        self.start_, self.trees_ = rounds.start, np.array(rounds.ensemble)
        self.n_iter_ = iteration

    def _sample(self, raw: Partitions, found: Survey) -> np.ndarray:
        """Draw rows in their order; the draw does not depend on how the rows are split."""
        if found.n > self.subsample:
            seed = check_random_state(self.random_state).randint(2**31)
            drawn = np.random.default_rng(seed).choice(found.n, self.subsample, replace=False)
            rows = np.sort(drawn)
        else:
            rows = np.arange(found.n)
        return dense(raw.take(found.rows, rows))

    def _growth(self) -> TreeParams:
        return TreeParams(
            self.max_depth,
            self.max_bins,
            self.min_samples_leaf,
            self.learning_rate,
            self.l2_regularization,
        )

    def _apply(self, function: Any, X: Any, *more: Any, **shape: Any) -> Any:
        check_is_fitted(self)
        model = self.start_, self.trees_, *more
        return map_rows(function, X, *model, n_features=self.n_features_in_, **shape)

    def _check(self) -> None:
        limits = {"max_depth": (1, MAX_DEPTH), "max_bins": (2, 255)}
        for name in ("max_iter", "max_depth", "max_bins", "min_samples_leaf", "subsample"):
            value, (low, high) = getattr(self, name), limits.get(name, (1, np.inf))
            if not isinstance(value, Integral) or not low <= value <= high:
                words = f"from {low} to {high}" if name in limits else f"of at least {low}"
                raise ValueError(f"{name} must be a whole number {words}, not {value!r}")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(f"learning_rate must be greater than 0, not {self.learning_rate!r}")
        if not 0 <= self.l2_regularization < np.inf:
            raise ValueError(
                f"l2_regularization must be at least 0, not {self.l2_regularization!r}"
            )


class GradientBoostingClassifier(ClassifierMixin, GradientBoosting):
    """Gradient-boosted classification trees: log loss for two classes, softmax for more.

    Each iteration reports the mean negative log-likelihood per row, in nats. See
    `GradientBoosting` for the parameters and the other attributes.

    Attributes
    ----------
    classes_ : array, (n_classes,)
        Class labels, sorted.
    """

    def fit(self, X: Any, y: Any) -> GradientBoostingClassifier:
        """Fit the boosted trees.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_rows, n_features)
            Training data. Blocks may be sparse, but their bins are dense.
        y : dask array or array_like, (n_rows,)
            Labels, split into partitions like `X`.

        Returns
        -------
        GradientBoostingClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of range, shapes do not match, a partition is empty, a value is
            not finite, or there is only one class.
        """
        self._fit(X, y)
        return self

    def decision_function(self, X: Any) -> Any:
        """Compute scores: log-odds for two classes, else one score per class.

        Returns
        -------
        dask array or array, (n_rows,) for two classes, else (n_rows, n_classes)
            Lazy if `X` is.
        """
        check_is_fitted(self)
        columns = len(self.start_) if len(self.start_) > 1 else None
        return self._apply(scores_of, X, columns=columns)

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, (n_rows, n_classes). The result is lazy if `X` is."""
        check_is_fitted(self)
        return self._apply(probabilities_of, X, columns=len(self.classes_))

    def predict(self, X: Any) -> Any:
        """Predict class labels, (n_rows,). The result is lazy if `X` is."""
        check_is_fitted(self)
        return self._apply(labels_of, X, self.classes_, dtype=self.classes_.dtype)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_rows, n_features)
            Data to predict.
        y : dask array or array_like, (n_rows,)
            True labels.
        """
        return float(accuracy_score(*dask.compute(y, self.predict(X))))

    def _objective(self, found: Any) -> Any:
        check_classification_targets(found.labels)
        self.classes_ = found.labels
        n = len(found.labels)
        return LogLoss() if n == 2 else Softmax(n)

    def _targets(self, y: Any) -> Any:
        return y.map_blocks(_codes, self.classes_, dtype=np.intp)


class GradientBoostingRegressor(RegressorMixin, GradientBoosting):
    """Gradient-boosted regression trees with squared error.

    Each iteration reports the mean squared error. See `GradientBoosting` for the parameters and
    attributes.
    """

    def fit(self, X: Any, y: Any) -> GradientBoostingRegressor:
        """Fit the boosted trees to numeric `y`. See `GradientBoostingClassifier.fit`."""
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Predict targets, (n_rows,). The result is lazy if `X` is."""
        return self._apply(scores_of, X)

    def score(self, X: Any, y: Any) -> float:
        """Return the coefficient of determination, R^2.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_rows, n_features)
            Data to predict.
        y : dask array or array_like, (n_rows,)
            True targets.
        """
        return float(r2_score(*dask.compute(y, self.predict(X))))

    def _objective(self, found: Any) -> Any:
        return SquaredError()

    def _targets(self, y: Any) -> Any:
        return y.astype(float)


def _codes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    return np.searchsorted(classes, y)
