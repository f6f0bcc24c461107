"""scikit-learn callback that reports the loss of each iteration of a fit.

It follows the callback interface of scikit-learn 1.9 and later. The interface passes no loss, but a
fitted copy of the estimator and the training data, from which the callback computes one.
"""

from __future__ import annotations

from typing import Any

from dask_slaq.adapters.observing import is_heard, publish

__all__ = ["SlaqReport"]


class SlaqReport:
    """Callback of scikit-learn's estimators that reports each iteration of their fits.

    Set it on the estimator that iterates, which may then be part of a pipeline or of a grid or
    randomized search: each fit in a task is a trial of its own. Outside a task of a search and
    without a job nothing is computed. *n* iterations give *n* reports.

    Parameters
    ----------
    scoring : str or callable, optional
        scikit-learn's scorer, or a callable ``scoring(estimator, X, y)``; higher is better, and
        minus the score is reported. By default the mean log-loss of a classifier and the mean
        squared error of a regressor on its training data, and otherwise the estimator's own score.

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
        pass  # as the next two, which the protocol wants

    def teardown(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        pass

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
        score = self._scorer(estimator)(fitted_estimator, X, y, **(metadata or {}))
        if publish(-float(score), trial=fit_of(context)):
            return False
        if context.task_name == "lbfgs-iter":
            raise StopIteration  # to SciPy: scikit-learn 1.9 ignores what this method returns
        return True

    def _scorer(self, estimator: Any) -> Any:
        from sklearn.base import is_classifier, is_regressor
        from sklearn.metrics import check_scoring

        scoring = self.scoring
        if scoring is None and is_classifier(estimator) and hasattr(estimator, "predict_proba"):
            scoring = "neg_log_loss"
        elif scoring is None and is_regressor(estimator):
            scoring = "neg_mean_squared_error"
        return check_scoring(estimator, scoring)


def fit_of(context: Any) -> str:
    """Return an identifier of the fit that an iteration belongs to, the same on all workers.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        Context of the iteration. That of the fit is its parent, in turn a child of the search's.
    """
    path = [context.root_uuid.hex[:8]]
    while (context := context.parent) is not None:
        path.insert(1, str(context.task_id))
    return "/".join(path)
