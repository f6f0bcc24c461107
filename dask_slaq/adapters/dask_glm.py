"""Loss reports of dask-glm's solvers, which also fit dask-ml's generalized linear models.

The loss is a sum over rows, computed on the columns as dask-glm normalizes them, plus the penalty
if the solver has one. Each observer reads it from a computation that the solver makes anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_slaq.adapters.observing import Loop, LoopObserver, Proxy

MODULE = "dask_glm.algorithms"


class Solver(LoopObserver):
    """Observer of a solver of dask-glm."""

    choices = ("family", "regularizer")
    numbers = ("lamduh", "rho")
    beta: Any = None  # of the latest iterate

    def so_far(self) -> Any:
        return self.beta

    def like_loop(self, beta: Any) -> Any:
        """Return NumPy coefficients, (n_features,), as the kind of array that the loop returns."""
        convert = self.library.get("maybe_to_cupy", lambda beta, X: beta)
        return convert(beta, self.arguments["X"])

    def penalty(self, beta: Any) -> Any:
        """Return the penalty of coefficients, (n_features,)."""
        regularizer = self.library["Regularizer"].get(self.arguments["regularizer"])
        return self.arguments["lamduh"] * regularizer.f(beta)


class GradientDescent(Solver):
    """Observer of ``gradient_descent``.

    Each iteration ends in ``compute(stepSize, lf, func, grad)``, which returns the loss before the
    step (``lf``) and after it (``func``).
    """

    stands_in = ("compute", "persist")

    started = False

    def persist(self, *args: Any, **kwargs: Any) -> Any:
        out = self.library["persist"](*args, **kwargs)
        self.beta = out[0]
        return out

    def computed(self, out: tuple[Any, ...], extra: tuple[Any, ...]) -> None:
        step, before, after, gradient = out
        self.beta = self.beta - step * gradient  # as the loop does next
        if not self.started:
            self.started = True
            self.report(before)
        # If no step helped, the iterate did not move, and `after` belongs to the last trial step.
        self.report(before if step == 0 else after)


class ProximalGrad(Solver):
    """Observer of ``proximal_grad``.

    Each iteration begins with ``persist(Xbeta, func, gradient)`` and tries steps until one helps.
    Each trial step calls ``persist(Xbeta, beta)`` and ``compute(func)``; the last one is the new
    iterate.

    ``func`` lacks the penalty. To add it here, the same computation also fetches the coefficients:
    one more task per trial step, and no extra round trip.
    """

    stands_in = ("persist", "compute")
    needs = ("X", "regularizer", "lamduh")

    start: Any = None
    trying: Any = None
    tried: tuple[Any, Any] | None = None

    def persist(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3:
            self.safely(self.finish)
        out = self.library["persist"](*args, **kwargs)
        self.safely(self._persisted, out)
        return out

    def finish(self) -> None:
        if self.tried is not None:
            loss, self.beta = self.tried
            self.tried = None
            self.report(loss + self.penalty(self.beta))

    def _persisted(self, out: tuple[Any, ...]) -> None:
        if len(out) == 3 and self.trying is None:
            self.start = out[1]
        elif len(out) == 2:
            self.trying = out[1]

    def wanted(self) -> tuple[Any, ...]:
        return (self.trying,) if self.start is None else (self.trying, self.start)

    def computed(self, out: tuple[Any, ...], extra: tuple[Any, ...]) -> None:
        if self.start is not None:
            self.start = None
            self.beta = np.zeros_like(extra[0])
            self.report(extra[1] + self.penalty(self.beta))
        self.tried = out[0], extra[0]


class LBFGS(Solver):
    """Observer of ``lbfgs``.

    SciPy evaluates loss and gradient together, several times per iteration if the line search
    needs it, and calls ``callback(x)`` for each accepted iterate. The loss includes the penalty.
    """

    stands_in = ("fmin_l_bfgs_b",)
    needs = ("X",)

    def so_far(self) -> Any:
        return self.like_loop(self.beta)

    def fmin_l_bfgs_b(self, func: Any, *args: Any, callback: Any = None, **kwargs: Any) -> Any:
        self.tried: list[tuple[Any, Any]] | None = None

        def evaluate(x: Any, *more: Any) -> Any:
            out = func(x, *more)
            self.safely(self._evaluated, x, out[0])
            return out

        def accepted(x: Any) -> Any:
            self.safely(self._accepted, x)
            return None if callback is None else callback(x)

        return self.library["fmin_l_bfgs_b"](evaluate, *args, callback=accepted, **kwargs)

    def _evaluated(self, x: Any, loss: Any) -> None:
        if self.tried is None:
            self.tried, self.beta = [], np.array(x)
            self.report(loss)
        else:
            self.tried.append((np.array(x), loss))

    def _accepted(self, x: Any) -> None:
        tried, self.tried = self.tried or [], []
        # In every known SciPy release the accepted iterate is the last one evaluated. Check it
        # anyway: the loss of another point would be wrong.
        loss = next((f for z, f in reversed(tried) if np.array_equal(z, x)), None)
        self.beta = np.array(x)
        if loss is not None:
            self.report(loss)


class Newton(Solver):
    """Observer of ``newton``.

    Each iteration is one ``da.compute(hess, grad)``. The loss of the same iterate is computed along
    with it, from the ``X beta`` that all three share: one extra loss per partition, summed here.
    The loss of the last iterate is never computed.
    """

    stands_in = ("da", "dot")
    needs = ("family",)

    at: tuple[Any, Any]

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.family = self.given["family"]
        self.arguments["family"] = Proxy(self.family, gradient=self.gradient)
        self.da = Proxy(self.library["da"], compute=self.compute)

    def dot(self, X: Any, beta: Any) -> Any:
        self.beta = beta
        return self.library["dot"](X, beta)

    def gradient(self, Xbeta: Any, X: Any, y: Any) -> Any:
        self.at = Xbeta, y
        return self.family.gradient(Xbeta, X, y)

    def computed(self, out: tuple[Any, ...], extra: tuple[Any, ...]) -> None:
        self.report(np.sum(extra[0]))

    def wanted(self) -> tuple[Any, ...]:
        Xbeta, y = self.at
        loglike = self.family.loglike
        if not hasattr(Xbeta, "numblocks"):
            return (loglike(Xbeta, y),)
        block = self.library["da"].map_blocks
        chunks = ((1,) * Xbeta.numblocks[0],)
        return (block(of_block(loglike), Xbeta, y, chunks=chunks, dtype="f8", meta=np.empty(0)),)


class ADMM(Solver):
    """Observer of ``admm``.

    In each iteration one task per partition solves a local problem, and the results are combined
    into the consensus ``z``. The same tasks evaluate the loss at the ``z`` that they start from;
    the penalty is added here. The loss of the last consensus is never computed.
    """

    stands_in = ("delayed", "da")
    needs = ("X", "regularizer", "lamduh")

    z: Any = None
    task: Any = None

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.da = Proxy(self.library["da"], compute=self.compute)

    def so_far(self) -> Any:
        return self.like_loop(self.z)

    def delayed(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Wrap ``local_update`` so that its tasks also return the loss; pass on anything else."""
        if function is not self.library["local_update"]:
            return self.library["delayed"](function, *args, **kwargs)
        if self.task is None:
            self.task = self.library["delayed"](and_loss(function))
        return self._update

    def _update(self, X: Any, y: Any, beta: Any, z: Any, *rest: Any, **functions: Any) -> Any:
        self.z = z
        return self.task(X, y, beta, z, *rest, **functions)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        out = self.library["da"].compute(*args, **kwargs)
        if self.z is None:
            return out
        betas, losses = zip(*out, strict=True)
        self.safely(self._iterated, losses)
        return betas

    def _iterated(self, losses: tuple[float, ...]) -> None:
        self.report(math.fsum(losses) + self.penalty(self.z))


# Functions of tasks are nested: they are pickled by value, so workers do not need this package.


def of_block(loglike: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the task function of `Newton`: the loss of one partition, shape (1,).

    `loglike` is the family's negative log-likelihood; the loss is NaN if it raises.
    """

    def loss(Xbeta: Any, y: Any) -> Any:
        try:
            return np.array([float(loglike(Xbeta, y))])
        except Exception:
            return np.array([np.nan])

    return loss


def and_loss(update: Callable[..., Any]) -> Callable[..., tuple[Any, float]]:
    """Return the task function of `ADMM`: dask-glm's ``local_update``, and the loss at ``z``.

    The loss is that of the partition, without the penalty, and NaN if it cannot be evaluated.
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


LOOPS = (
    Loop(MODULE, "newton", Newton, cell="algo", fit="dask_glm.newton"),
    Loop(MODULE, "admm", ADMM, cell="algo", fit="dask_glm.admm"),
    Loop(MODULE, "gradient_descent", GradientDescent, cell="algo", fit="dask_glm.gradient_descent"),
    Loop(MODULE, "proximal_grad", ProximalGrad, cell="algo", fit="dask_glm.proximal_grad"),
    Loop(MODULE, "lbfgs", LBFGS, cell="algo", fit="dask_glm.lbfgs"),
)
