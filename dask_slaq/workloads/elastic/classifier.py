"""What the classifiers share: checks before training, losses, prediction block by block.

Estimators follow scikit-learn's conventions, with dask arrays as well as arrays in memory; what
they predict for a dask array is a lazy dask array.
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

from dask_slaq.adapters.observing import expect, publish
from dask_slaq.workloads.elastic.blockwise import map_rows
from dask_slaq.workloads.elastic.partitions import Partitions, Survey

__all__ = ["PartitionedClassifier"]


class PartitionedClassifier(ClassifierMixin, BaseEstimator):
    """Base of the classifiers that train over `Partitions`."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose class is predicted, weighted if there are weights.

        Parameters
        ----------
        X : dask array or array_like, (n_rows, n_features)
        y : dask array or array_like, (n_rows,)
        sample_weight : dask array or array_like, (n_rows,), optional
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
        """Look through the data before anything is trained.

        Raises
        ------
        ValueError
            See `Partitions.survey`; or y has no classes.
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
        return parts, found

    def _record(self, loss: float) -> None:
        """Keep and publish the loss of the starting point or of one more iteration.

        Raises
        ------
        ValueError
            It is not finite.
        """
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} after iteration {len(self.loss_curve_)}: "
                "scale the features, or take smaller steps"
            )
        self.loss_curve_.append(float(loss))
        self.loss_ = float(loss)
        publish(loss)

    def _rows(self, X: Any) -> Any:
        """Rows in memory, as many columns as there were in training."""
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
        """A method of this model for a dask array: lazily, one task a partition.

        Parameters
        ----------
        method : str
            Its result has a row for each row.
        X : dask array
        dtype : dtype
            Of the result.
        width : int, optional
            Columns of the result; by default it has one dimension.
        """
        self._check_columns(X)
        # A copy: fitting this model again must not change what was predicted before.
        model = copy.copy(self), method
        return map_rows(
            _call, X, *model, n_features=self.n_features_in_, columns=width, dtype=dtype
        )

    def _fitted(self, X: Any) -> bool:
        """Whether X is a dask array, for a model that is fitted."""
        check_is_fitted(self)
        return hasattr(X, "dask") and hasattr(X, "map_blocks")


def _call(block: Any, model: Any, method: str) -> Any:
    return getattr(model, method)(block)
