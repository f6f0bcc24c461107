"""Loss reports of dask-ml's ``KMeans``, ``Incremental`` and incremental searches.

For its linear models, which are fitted by dask-glm, see `dask_slaq.adapters.dask_glm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from dask_slaq.adapters.observing import (
    Loop,
    LoopObserver,
    Mailbox,
    Proxy,
    ReportSession,
    kind_of,
    kind_of_estimator,
    log_stop,
    sizes_of,
)
from dask_slaq.core.errors import StopTraining


class Lloyd(LoopObserver):
    """Observer of Lloyd's iterations of ``KMeans``, each of which is one ``compute(new_centers)``.

    The loss is the sum over rows of the squared distance to the mean of the row's cluster, after
    the means were updated. Computing it takes no distances: if cluster j has n_j rows with mean
    m_j, and S is the sum of the squared norms of all rows, then the squared distances of the rows
    to points c_j, one per cluster, sum to S - 2 sum_j n_j m_j.c_j + sum_j n_j |c_j|^2. The counts
    n_j are part of the iteration's own graph; S is summed once, in the computation of the first
    iteration. All terms are relative to an origin amid the data. Without it they would cancel to
    noise for data far from zero.
    """

    stands_in = ("compute", "da", "pairwise_distances_argmin_min")
    needs = ("X",)
    choices = ("init",)
    numbers = ("n_clusters",)

    counts: Any = None
    centers: Any = None
    origin: Any = None
    squares: Any = None
    means: Any = None
    iterations = 0

    def so_far(self) -> Any:
        X = self.arguments["X"]
        labels, distances = self.library["pairwise_distances_argmin_min"](X, self.means)
        centers = self.means.astype(X.dtype)
        return labels.astype(np.int32), distances.sum(), centers, self.iterations

    @property
    def da(self) -> Any:
        """Stand-in for ``dask.array`` that keeps the result of ``bincount``."""
        return Proxy(self.library["da"], bincount=self.bincount)

    def bincount(self, *args: Any, **kwargs: Any) -> Any:
        self.counts = self.library["da"].bincount(*args, **kwargs)
        return self.counts

    def pairwise_distances_argmin_min(self, X: Any, Y: Any, *args: Any, **kwargs: Any) -> Any:
        self.centers = Y
        return self.library["pairwise_distances_argmin_min"](X, Y, *args, **kwargs)

    def wanted(self) -> tuple[Any, ...]:
        if self.squares is not None:
            return (self.counts,)
        X = self.arguments["X"]
        self.origin = np.asarray(self.centers).mean(axis=0).astype(X.dtype)
        return self.counts, ((X - self.origin) ** 2).sum(dtype="f8")

    def computed(self, out: tuple[Any, ...], extra: tuple[Any, ...]) -> None:
        means = self.means = out[0]
        counts, *squares = extra
        self.iterations += 1
        first = self.squares is None
        if first:
            (self.squares,) = squares
        origin = self.origin.astype("f8")
        means = means - origin
        if first:
            self.report(self._inertia(counts, means, self.centers - origin))
        self.report(self._inertia(counts, means, means))

    def _inertia(self, counts: Any, means: Any, centers: Any) -> float:
        per_cluster = (centers**2).sum(axis=1) - 2 * (means * centers).sum(axis=1)
        # Rounding can make the loss of a perfect clustering slightly negative.
        return max(float(self.squares + counts @ per_cluster), 0.0)


def then_report(partial_fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return the task function of `Chain`: dask-ml's ``_partial_fit``, followed by a report.

    Where to report is a keyword; without it, nobody observes the fit. The nested function is
    pickled by value, so a worker without this package still fits.
    """

    def partial_fit_and_report(model: Any, x: Any, y: Any, kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        route = kwargs.pop("_slaq_route", None)
        if route is None:
            return partial_fit(model, x, y, kwargs)
        try:
            from dask_slaq.adapters.observing import Address, is_stopping

            if is_stopping(Address(*route)):
                return model  # without this block, and so are the blocks that follow
        except Exception:  # package not installed
            pass
        model = partial_fit(model, x, y, kwargs)
        try:
            from dask_slaq.adapters.dask_ml import loss_of_block

            loss = loss_of_block(model, x, y)
            if loss is not None:
                Address(*route).report(loss, with_result=True)
        except Exception:  # package not installed, or an estimator that only resembles a known one
            pass
        return model

    return partial_fit_and_report


class Chain(LoopObserver):
    """Observer of ``Incremental``, a chain of ``_partial_fit`` tasks: one iteration per block."""

    replaces: ClassVar = {"_partial_fit": then_report}

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        # Receives losses for as long as the fit runs.
        self.inbox = Mailbox(self._block, "dask_ml.wrappers")
        more = {"_slaq_route": self.inbox.route.fields}
        self.arguments["kwargs"] = {**self.arguments["kwargs"], **more}

    def kind(self, fit: str) -> dict[str, Any]:
        return kind_of_estimator(fit, self.given["model"], self.given["x"])


# Best score per block, since Hyperband runs several searches at once as one job.
_best: WeakKeyDictionary[ReportSession, float] = WeakKeyDictionary()


class SearchObserver(LoopObserver):
    """Observer of an incremental search, a coroutine, which reports minus the best score so far.

    It trains its models in rounds. Once per round it calls ``additional_calls(info)``, with the
    history of each model that may be trained further.
    """

    needs = ("additional_calls",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.arguments["additional_calls"] = self.additional_calls

    def kind(self, fit: str) -> dict[str, Any]:
        """Return the kind: the estimator, how many candidates there are, and size of the data."""
        given = self.given
        candidates = getattr(given.get("params"), "n_iter", None)  # ParameterSampler
        if candidates is None and hasattr(given.get("params"), "__len__"):
            candidates = len(given["params"])
        sizes = sizes_of(given.get("X_train"))
        if isinstance(given.get("X_train"), list):  # one future per chunk
            sizes = {"chunks": len(given["X_train"])}
        return kind_of(fit, (type(given.get("model")),), {**sizes, "candidates": candidates})

    def additional_calls(self, info: Any) -> Any:
        try:
            self.safely(self._scored, info)
        except StopTraining:
            log_stop(self._block, "dask_ml.model_selection")
            return dict.fromkeys(info, 0)  # train none further, and choose the best of them
        return self.given["additional_calls"](info)

    def _scored(self, info: Any) -> None:
        scores = [float(history[-1]["score"]) for history in info.values() if history]
        known = [score for score in scores if math.isfinite(score)]
        if known:
            best = _best[self._block] = max(*known, _best.get(self._block, -math.inf))
            self.report(-best)


LOOPS = (
    Loop("dask_ml.cluster.k_means", "_kmeans_single_lloyd", Lloyd, fit="dask_ml.KMeans"),
    Loop("dask_ml.wrappers", "fit", Chain, fit="dask_ml.Incremental"),
    Loop("dask_ml.model_selection._incremental", "_fit", SearchObserver, fit="dask_ml.search"),
)


def loss_of_block(model: Any, x: Any, y: Any) -> float | None:
    """Return the mean loss over the rows `x` and targets `y` that `model` has just learnt.

    It is ``loss_`` (MLPClassifier, MLPRegressor), ``inertia_`` per row (MiniBatchKMeans),
    ``train_loss`` of the last epoch (skorch), or the objective including the penalty
    (SGDClassifier, SGDRegressor, Perceptron), which takes one prediction for the block. None for
    an empty block or any other estimator.
    """
    rows = x.shape[0] if hasattr(x, "shape") else len(x)  # sparse matrices have no len()
    if rows == 0:
        return None
    for name, per in (("loss_", 1), ("inertia_", rows)):
        value = getattr(model, name, None)
        if isinstance(value, Real):
            return float(value) / per
    epochs = getattr(model, "history", None)
    if isinstance(epochs, list) and epochs and isinstance(epochs[-1], dict):
        value = epochs[-1].get("train_loss")
        return float(value) if isinstance(value, Real) else None
    from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor

    if not isinstance(model, SGDClassifier | SGDRegressor | Perceptron):
        return None
    loss = LOSSES.get(model.loss)
    return None if loss is None else _of_sgd(model, x, y, loss)


def _of_sgd(model: Any, x: Any, y: Any, loss: Callable[..., Any]) -> float:
    """Return the objective: mean loss over rows, summed over one-vs-rest classes, plus penalty."""
    y = np.asarray(y).ravel()
    if hasattr(model, "classes_"):
        values = model.decision_function(x)
        positive = y == model.classes_[1] if values.ndim == 1 else y[:, None] == model.classes_
        margin = np.where(positive, values, -values)
    else:
        margin = 1 - (y - model.predict(x))
    return float(loss(margin, model.epsilon).sum() / len(margin)) + _penalty(model)


def _penalty(model: Any) -> float:
    """Return alpha times the regularization term.

    See "Mathematical formulation" in scikit-learn's user guide on SGD.
    """
    ratios = {"l2": 0.0, "l1": 1.0, "elasticnet": model.l1_ratio}
    if model.penalty not in ratios:
        return 0.0
    l1, coef = ratios[model.penalty], model.coef_
    return float(model.alpha * (l1 * np.abs(coef).sum() + (1 - l1) / 2 * (coef**2).sum()))


def _modified_huber(z: Any, epsilon: float) -> Any:
    return np.where(z < -1, -4 * z, np.maximum(0, 1 - z) ** 2)


def _huber(z: Any, epsilon: float) -> Any:
    distance = np.abs(1 - z)
    return np.where(distance <= epsilon, distance**2 / 2, epsilon * distance - epsilon**2 / 2)


#: Losses of scikit-learn's user guide on SGD by name, as functions of the margin z and epsilon. In
#: classification z is the decision value times the sign of the class. In regression z is 1 - r for
#: a residual r, which is what a classifier with a regression loss and targets of -1 and 1 uses.
LOSSES: dict[str, Callable[[Any, float], Any]] = {
    "hinge": lambda z, epsilon: np.maximum(0, 1 - z),
    "squared_hinge": lambda z, epsilon: np.maximum(0, 1 - z) ** 2,
    "perceptron": lambda z, epsilon: np.maximum(0, -z),
    "log_loss": lambda z, epsilon: np.logaddexp(0, -z),
    "modified_huber": _modified_huber,
    "squared_error": lambda z, epsilon: (1 - z) ** 2 / 2,
    "huber": _huber,
    "epsilon_insensitive": lambda z, epsilon: np.maximum(0, np.abs(1 - z) - epsilon),
    "squared_epsilon_insensitive": lambda z, e: np.maximum(0, np.abs(1 - z) - e) ** 2,
}
