"""Training of scikit-learn's models by epochs, with the validation loss after each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Curve = list[float]
Split = tuple[Any, Any, Any, Any]  # X, X to validate, y, y to validate


def _loss(model: Any, X: Any, y: Any) -> float:
    """Return the validation loss of a model: log loss or mean squared error."""
    with np.errstate(all="ignore"):
        if hasattr(model, "predict_proba"):
            return log_loss(y, model.predict_proba(X))
        return squared(y, model.predict(X))


def log_loss(y: Any, found: Any) -> float:
    """Return the log loss of classes 0, 1, … with probabilities `found`, fast."""
    part = found[np.arange(len(y)), y] / found.sum(axis=1)
    return -float(np.log(np.clip(part, 1e-15, 1)).mean())


def squared(y: Any, found: Any) -> float:
    """Return the mean squared error."""
    return float(((y - found) ** 2).mean())


def epochs(
    model: Any, data: Split, steps: int, before: Callable[[int], Any] = lambda k: None
) -> Curve:
    """Train by `partial_fit`, an epoch per step, and call `before` each. Failure is divergence."""
    X, Xv, y, yv = data
    more = {"classes": np.unique(y)} if hasattr(model, "predict_proba") else {}
    losses: Curve = []
    for k in range(steps):
        try:
            before(k)
            model.partial_fit(X, y, **more)
            losses.append(_loss(model, Xv, yv))
        except ValueError:  # of weights that are not finite
            losses += [float("inf")] * (steps - len(losses))
            break
    return losses
