"""What the demo trains: scikit-learn's handwritten digits, in as many copies as fill a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.metrics import time

import dask_slaq as slaq

#: Rows to train on; the other 397 are held out.
ROWS = 1400
#: Standard deviation of the noise of a copy; pixels are between 0 and 1.
NOISE = 0.15


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return all digits as (1797, 64) pixels from 0 to 1 and (1797,) classes, shuffled."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / 16, y[order]


@cache
def noisy(copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `copies` of the digits to train on, each with noise of its own."""
    X, y = digits()
    rng = np.random.default_rng(1)
    blurred = [X[:ROWS] + rng.normal(0, NOISE, (ROWS, X.shape[1])) for _ in range(copies)]
    return np.concatenate(blurred), np.tile(y[:ROWS], copies)


@dataclass(frozen=True)
class Model:
    """A model of the grid: a network with one layer of `width`, or a linear one (width 0)."""

    name: str
    width: int
    rate: float
    seed: int

    def make(self, copies: int) -> Any:
        """Return the unfitted estimator. More `copies` leave as many updates, or as long ones."""
        from sklearn.linear_model import SGDClassifier
        from sklearn.neural_network import MLPClassifier

        if self.width:
            return MLPClassifier(
                self.width, learning_rate_init=self.rate, batch_size=50 * copies,
                random_state=self.seed,
            )  # fmt: skip
        return SGDClassifier(
            "log_loss", learning_rate="constant", eta0=self.rate / copies, random_state=self.seed
        )


def grid(count: int, seed: int) -> list[Model]:
    """Return `count` random models by a `seed`: networks of several widths, and linear models.

    Their learning rates are spread over four decades.
    """
    rng = np.random.default_rng(seed)
    models = []
    for number in range(count):
        width = 0 if rng.random() < 0.25 else int(2 ** rng.uniform(4, 7.5))
        rate = float(10 ** rng.uniform(-5.5, -1.5))
        kind = f"network {width}" if width else "linear"
        name = f"{number + 1:02} {kind}, rate {rate:.0e}"
        models.append(Model(name, width, rate, int(rng.integers(2**31))))
    return models


def one_step(estimator: Any, copies: int) -> float:
    """Train an `estimator` on all rows of all `copies` once. Returns its held-out log loss."""
    estimator.partial_fit(*noisy(copies), classes=np.arange(10))
    X, y = digits()
    likely = estimator.predict_proba(X[ROWS:])[np.arange(len(y) - ROWS), y[ROWS:]]
    return float(-np.log(np.clip(likely, 1e-6, 1)).mean())


def train(model: Model, topic: str, steps: int, copies: int) -> tuple[list[Any], list[Any]]:
    """Train a `model` for so many `steps` on `copies` of the digits: one task of the search.

    Returns curve and spans of a `local.Training`; events of the `topic` feed the live table.
    """
    estimator, worker = model.make(copies), get_worker()
    curve: list[Any] = []
    spans: list[Any] = []
    for _ in range(steps):
        start = time()
        loss, end = one_step(estimator, copies), time()
        curve.append((end, loss))
        spans.append((worker.address, start, end))
        worker.log_event(topic, (f"{topic} {model.name}", end, loss))
        if hasattr(slaq, "search"):  # TEMPORARY
            slaq.report(loss)
    return curve, spans


def seconds_per_copy(models: list[Model], copies: int = 4) -> float:
    """Return the mean time per copy that a step of `models` takes with so many `copies`."""
    spent = 0.0
    for model in models:
        estimator = model.make(copies)
        one_step(estimator, copies)  # imports, and allocates
        start = time()
        one_step(estimator, copies)
        spent += time() - start
    return spent / (copies * len(models))


def gradient(part: int, weights: np.ndarray, parts: int, copies: int) -> tuple[Any, ...]:
    """Compute a gradient of softmax regression: one task of a job.

    The task has `part` of the digits, one in `parts`, in as many `copies` with new noise as fill
    its time. Returns the loss at the (65, 10) `weights` with their intercepts, the gradient, and
    the span: worker, start and end.
    """
    start = time()
    X, y = (a[part:ROWS:parts] for a in digits())
    rows, rng = np.arange(len(y)), np.random.default_rng(part)
    loss, slope = 0.0, np.zeros_like(weights)
    for _ in range(copies):
        noise = rng.normal(0, NOISE, X.shape)
        inputs = np.column_stack([X + noise, np.ones(len(y))])
        odds = np.exp(inputs @ weights)
        odds /= odds.sum(axis=1, keepdims=True)
        loss -= float(np.log(odds[rows, y]).mean())
        odds[rows, y] -= 1
        slope += inputs.T @ odds / len(y)
    return loss / copies, slope / copies, (get_worker().address, start, time())
