"""Losses of estimators that learn block by block. This code runs in tasks on workers."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np


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
    return _of_sgd(model, x, y) if _is_sgd(model) else None


def _is_sgd(model: Any) -> bool:
    from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor

    return isinstance(model, SGDClassifier | SGDRegressor | Perceptron)


def _of_sgd(model: Any, x: Any, y: Any) -> float | None:
    loss = LOSSES.get(model.loss)
    if loss is None:
        return None
    y = np.asarray(y).ravel()
    if not hasattr(model, "classes_"):
        return _mean(loss, 1 - (y - model.predict(x)), model)
    values = model.decision_function(x)
    positive = y == model.classes_[1] if values.ndim == 1 else y[:, None] == model.classes_
    return _mean(loss, np.where(positive, values, -values), model)


def _mean(loss: Callable[..., Any], margin: Any, model: Any) -> float:
    """Return the objective: mean loss over rows, summed over one-vs-rest classes, plus penalty."""
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
