"""scikit-learn callback that reports the loss of each iteration of a fit.

The interface, of scikit-learn 1.9 and later, passes no loss, but a fitted copy of the estimator and
the training data, from which the callback computes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dask_slaq.adapters.observing import is_heard, publish, warn_once


class SlaqReport:
    """Callback of scikit-learn's estimators that reports each iteration of their fits.

    Set it on the estimator that iterates, which may then be part of a pipeline or of a grid or
    randomized search: each fit in a task is a trial of its own. Outside a task of a search and
    without a job nothing is computed. *n* iterations give *n* reports.

    Parameters
    ----------
    scoring : str or callable, optional
        scikit-learn's scorer, or a callable ``scoring(estimator, X, y)`` of the training data;
        higher is better, and minus the score is reported. By default the mean log-loss of a
        classifier, the mean squared error of a regressor, or minus the estimator's own score, over
        at most 1,000 evenly spaced rows of the training data.

    Raises
    ------
    ImportError
        scikit-learn is older than 1.9.

    Examples
    --------
    >>> from dask_slaq.adapters.sklearn import SlaqReport
    >>> model = LogisticRegression(max_iter=200).set_callbacks(SlaqReport())  # doctest: +SKIP
    >>> search = GridSearchCV(model, {"C": [0.01, 0.1, 1, 10]})  # doctest: +SKIP
    """

    def __init__(self, scoring: Any = None) -> None:
        try:
            import sklearn.callback  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "scikit-learn has no callbacks before 1.9: upgrade it, or call slaq.report in a "
                "loop over partial_fit"
            ) from error
        self.scoring = scoring

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    teardown = on_fit_task_begin = setup  # which the protocol wants, too

    def on_fit_task_end(
        self,
        estimator: Any,
        context: Any,
        *,
        X: Any = None,
        y: Any = None,
        metadata: Any = None,
        fitted_estimator: Any = None,
    ) -> bool:
        iterates = context.parent is not None and context.max_subtasks == 0
        if not iterates or fitted_estimator is None or X is None or not is_heard():
            return False
        try:
            loss = self._loss(fitted_estimator, X, y, metadata or {})
        except Exception as error:  # must not fail the fit
            what = f"{type(error).__name__}: {error}"
            warn_once(what, f"a loss of {type(estimator).__name__} was not computed: {what}")
            return False
        params = partial(estimator.get_params, deep=False)
        if publish(loss, trial=fit_of(context), params=params):
            return False
        if context.task_name == "lbfgs-iter":
            raise StopIteration  # to SciPy: scikit-learn 1.9 ignores what this method returns
        return True

    def _loss(self, model: Any, X: Any, y: Any, metadata: Mapping[str, Any]) -> float:
        from sklearn.base import is_classifier, is_regressor
        from sklearn.metrics import check_scoring
        from sklearn.utils import _safe_indexing

        scoring = self.scoring
        if scoring is None:
            rows = slice(None, None, -(-y.shape[0] // 1000))  # of an array, no copy
            X, y, *weights = (_safe_indexing(data, rows) for data in (X, y, *metadata.values()))
            metadata = dict(zip(metadata, weights, strict=True))
            if is_classifier(model) and y.ndim == 1 and hasattr(model, "predict_proba"):
                return log_loss(model, X, y, **metadata)
            scoring = "neg_mean_squared_error" if is_regressor(model) else None
        return -float(check_scoring(model, scoring)(model, X, y, **metadata))


def log_loss(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the mean log-loss of a classifier.

    scikit-learn's own takes as long to check its arguments as a short iteration takes. Each label
    must be in ``model.classes_``.
    """
    y = np.asarray(y)
    chance = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    losses = -np.log(np.maximum(chance, np.finfo(chance.dtype).eps))
    return float(np.average(losses, weights=sample_weight))


def fit_of(context: Any) -> str:
    """Return an identifier of the fit that an iteration belongs to, the same on all workers.

    The context of the fit is the parent of the iteration's, and in turn a child of the search's.
    """
    path = [context.root_uuid.hex[:8]]
    while (context := context.parent) is not None:
        path.insert(1, str(context.task_id))
    return "/".join(path)
