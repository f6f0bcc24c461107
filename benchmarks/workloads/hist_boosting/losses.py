"""Objectives of boosting. `SquaredError` documents the interface that all of them share.

An objective works on one partition at a time, with targets `y` (n_rows,) and scores
(n_rows, n_outputs). For classification, the targets are class indices from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax

__all__ = ["LogLoss", "Softmax", "SquaredError"]


class SquaredError:
    """Squared difference of target and score.

    The derivatives are those of half the squared difference, so the second derivative is 1.
    """

    n_outputs = 1

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """Summarize the targets of a partition. `start` takes the sums over all partitions."""
        return (float(y.sum()), len(y))

    def start(self, total: float, n: int) -> np.ndarray:
        """Compute the best constant scores, (n_outputs,).

        Parameters
        ----------
        total, n : float and int
            Sums of the items of `summary` over all partitions.
        """
        return np.array([total / n])

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Return the loss, summed over the rows.

        Parameters
        ----------
        y : array, (n_rows,)
            Targets.
        scores : array, (n_rows, n_outputs)
            Current scores.
        """
        return float(((y - scores[:, 0]) ** 2).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """Compute the derivatives of the loss of each row with respect to one output.

        Parameters
        ----------
        y : array, (n_rows,)
            Targets.
        scores : array, (n_rows, n_outputs)
            Current scores.
        output : int
            Index of the output.

        Returns
        -------
        list of array, (n_rows,)
            First and second derivative. The second is omitted if it is 1 everywhere.
        """
        return [scores[:, 0] - y]


class LogLoss:
    """Negative log-likelihood of two classes, in nats. The score is the log-odds of the second."""

    n_outputs = 1

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """Count the rows of each class."""
        return (np.bincount(y, minlength=2),)

    def start(self, rows: np.ndarray) -> np.ndarray:
        """Compute the log-odds of the second class in the data."""
        return np.log([rows[1] / rows[0]])

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Return the loss, summed over the rows. See `SquaredError.loss`."""
        return float((np.logaddexp(0, scores[:, 0]) - y * scores[:, 0]).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """Compute the first and second derivative. See `SquaredError.derivatives`."""
        p = expit(scores[:, 0])
        return [p - y, p * (1 - p)]


class Softmax:
    """Negative log-likelihood of several classes, in nats, with one score per class."""

    def __init__(self, n_classes: int) -> None:
        self.n_outputs = n_classes

    def summary(self, y: np.ndarray) -> tuple[Any, ...]:
        """Count the rows of each class."""
        return (np.bincount(y, minlength=self.n_outputs),)

    def start(self, rows: np.ndarray) -> np.ndarray:
        """Compute the logarithms of the class frequencies, minus their mean."""
        logs = np.log(rows / rows.sum())
        return logs - logs.mean()

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Return the loss, summed over the rows. See `SquaredError.loss`."""
        return float((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray, output: int) -> list[Any]:
        """Compute the first and second derivative. See `SquaredError.derivatives`."""
        p = softmax(scores, axis=1)[:, output]
        return [p - (y == output), p * (1 - p)]
