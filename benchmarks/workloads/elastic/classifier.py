"""Base class of the elastic classifiers: validation, loss reports and blockwise prediction.

The classifiers follow scikit-learn's conventions and accept dask arrays as well as arrays in
memory. Predictions for a dask array are lazy dask arrays.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from benchmarks.workloads.elastic.blockwise import map_rows
from benchmarks.workloads.elastic.partitions import Partitions, Survey
from dask_slaq.adapters.observing import describe_estimator, expect, publish

__all__ = ["PartitionedClassifier"]


class PartitionedClassifier(ClassifierMixin, BaseEstimator):
    """Base class of classifiers that train on `Partitions`."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, weighted if weights are passed.

        Parameters
        ----------
        X : dask array or array_like, (n_rows, n_features)
            Data to predict.
        y : dask array or array_like, (n_rows,)
            True labels.
        sample_weight : dask array or array, (n_rows,), optional
            Weights of the rows.
        """
        hit = self.predict(X) == (y if hasattr(y, "dask") else np.asarray(y))
        if sample_weight is None:
            return float(hit.mean())
        return float((hit * sample_weight).sum() / sample_weight.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _begin(self, X: Any, y: Any) -> tuple[Partitions, Survey]:
        """Validate the data and initialize the fitted attributes.

        Returns the partitions and their survey.

        Raises
        ------
        ValueError
            If the data are invalid (see `Partitions.survey`) or y does not contain class labels.
        """
        if not (hasattr(X, "dask") or hasattr(y, "dask")):
            X, y = check_X_y(X, y, accept_sparse="csr", estimator=self)
        if np.ndim(y) != 1:
            raise ValueError(f"y must have 1 dimension, one class a row, not {np.ndim(y)}")
        parts = Partitions(X, y)
        found = parts.survey(labels=True)
        assert found.labels is not None
        check_classification_targets(found.labels)
        self.classes_ = found.labels
        self.n_features_in_ = found.columns
        self.loss_curve_: list[float] = []
        expect(self.max_iter)
        describe_estimator("dask_slaq", self, X)
        return parts, found

    def _record(self, loss: float) -> bool:
        """Store and publish the loss of the starting point or of the next iteration.

        Returns False if the training was stopped.

        Raises
        ------
        ValueError
            If the loss is not finite.
        """
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} after iteration {len(self.loss_curve_)}: "
                "scale the features, or take smaller steps"
            )
        self.loss_curve_.append(float(loss))
        self.loss_ = float(loss)
        return publish(loss)

    def _rows(self, X: Any) -> Any:
        """Validate rows in memory against the columns of the training data, and return them."""
        X = check_array(X, accept_sparse="csr", ensure_min_samples=0)
        self._check_columns(X)
        return X

    def _check_columns(self, X: Any) -> None:
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[-1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )

    def _by_block(self, method: str, X: Any, dtype: Any, width: int | None = None) -> Any:
        """Apply a method of this model lazily to a dask array, with one task per partition."""
        self._check_columns(X)
        # A copy, so that fitting this model again does not change lazy predictions made before.
        model = copy.copy(self), method
        return map_rows(
            _call, X, *model, n_features=self.n_features_in_, columns=width, dtype=dtype
        )

    def _fitted(self, X: Any) -> bool:
        """Check that this model is fitted, and return whether X is a dask array."""
        check_is_fitted(self)
        return hasattr(X, "dask") and hasattr(X, "map_blocks")


def _call(block: Any, model: Any, method: str) -> Any:
    return getattr(model, method)(block)
