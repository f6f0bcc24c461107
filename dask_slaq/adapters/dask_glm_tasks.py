"""Functions of tasks that compute losses of dask-glm's solvers.

They are nested functions, which are pickled by value, so workers do not need this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def of_block(loglike: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the task function that computes the loss of one partition for ``newton``.

    Parameters
    ----------
    loglike : callable
        The family's ``loglike(Xbeta, y)``, the negative log-likelihood.

    Returns
    -------
    callable
        ``loss(Xbeta, y)``, which returns an array of shape (1,), NaN if `loglike` raises.
    """

    def loss(Xbeta: Any, y: Any) -> Any:
        try:
            return np.array([float(loglike(Xbeta, y))])
        except Exception:
            return np.array([np.nan])

    return loss


def and_loss(update: Callable[..., Any]) -> Callable[..., tuple[Any, float]]:
    """Return the task function of ``admm`` that also evaluates the loss at ``z``.

    Parameters
    ----------
    update : callable
        dask-glm's ``local_update``.

    Returns
    -------
    callable
        Takes the arguments of `update` and returns its result and the loss of the partition,
        without the penalty and NaN if it cannot be evaluated.
    """

    def local_update(
        X: Any, y: Any, beta: Any, z: Any, u: Any, rho: Any, f: Any, **more: Any
    ) -> tuple[Any, float]:
        try:
            # `f` adds rho / 2 |beta - z + u|^2, which is zero for beta = z and u = 0.
            loss = float(f(z, X, y, z, 0 * z, rho))
        except Exception:
            loss = float("nan")
        return update(X, y, beta, z, u, rho, f, **more), loss

    return local_update
