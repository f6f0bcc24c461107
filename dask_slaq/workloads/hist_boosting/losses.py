"""What boosting minimizes: loss, its first and second derivatives by the scores, and a start.

An objective works on one partition: targets (n_rows,) and scores (n_rows, n_outputs).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax

__all__ = ["LogLoss", "Softmax", "SquaredError"]


class SquaredError:
    """Squares of target minus score; the derivatives are those of half of it."""

    n_outputs = 1

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """What `start` needs to know of a partition's targets, to be summed."""
        return (float(y.sum()), len(y))

    def start(self, total: float, n: int) -> np.ndarray:
        """The best constant score, (n_outputs,)."""
        return np.array([total / n])

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Sum of the losses of rows."""
        return float(((y - scores[:, 0]) ** 2).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """First and second derivative by one output; without the second if it is 1."""
        return [scores[:, 0] - y]


class LogLoss:
    """Negative log-likelihood of two classes, in nats; the score is the log-odds of the second."""

    n_outputs = 1

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """Rows of each class."""
        return (np.bincount(y, minlength=2),)

    def start(self, rows: np.ndarray) -> np.ndarray:
        """Log-odds of the data."""
        return np.log([rows[1] / rows[0]])

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Sum of the losses of rows."""
        return float((np.logaddexp(0, scores[:, 0]) - y * scores[:, 0]).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """First and second derivative."""
        p = expit(scores[:, 0])
        return [p - y, p * (1 - p)]


class Softmax:
    """Negative log-likelihood of several classes, in nats, with a score for each class."""

    def __init__(self, n_classes: int) -> None:
        self.n_outputs = n_classes

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """Rows of each class."""
        return (np.bincount(y, minlength=self.n_outputs),)

    def start(self, rows: np.ndarray) -> np.ndarray:
        """Logarithms of the shares of classes, less their mean."""
        logs = np.log(rows / rows.sum())
        return logs - logs.mean()

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Sum of the losses of rows."""
        return float((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """First and second derivative by the score of one class."""
        p = softmax(scores, axis=1)[:, output]
        return [p - (y == output), p * (1 - p)]
