"""Binary trees as arrays: node ``i`` has the children ``2 i + 1`` and ``2 i + 2``.

A tree of depth d has ``2 ** (d + 1) - 1`` nodes, and a node without a feature is a leaf. An
ensemble is an array of trees, (n_iterations, n_outputs, n_nodes), which is easy to send and slice.
The score of a row is the starting score plus the value of its leaf in each tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from benchmarks.workloads.elastic import dense

__all__ = [
    "LEAF",
    "NODE",
    "add_trees",
    "empty_trees",
    "labels_of",
    "nodes_of",
    "probabilities_of",
    "scores_of",
]

#: A row goes left if its value of `feature` is <= `threshold`, i.e. if its bin is <= `bin`.
NODE = np.dtype([("feature", "i4"), ("bin", "i4"), ("threshold", "f8"), ("value", "f8")])
LEAF = -1


def empty_trees(n_outputs: int, depth: int) -> np.ndarray:
    """Create trees that consist of a single leaf of value 0.

    Parameters
    ----------
    n_outputs : int
        Number of trees.
    depth : int
        Levels of splits that the trees have space for.

    Returns
    -------
    array of NODE, (n_outputs, n_nodes)
    """
    trees = np.zeros((n_outputs, 2 ** (depth + 1) - 1), dtype=NODE)
    trees["feature"] = LEAF
    return trees


def nodes_of(tree: np.ndarray, X: np.ndarray, cut: str = "bin") -> np.ndarray:
    """Find the leaf of each row.

    Parameters
    ----------
    tree : array of NODE, (n_nodes,)
    X : array, (n_rows, n_features)
        Bins or values, depending on `cut`.
    cut : {"bin", "threshold"}
        Field of the nodes to compare `X` with: "bin" for bins, "threshold" for values.

    Returns
    -------
    array of int, (n_rows,)
        Node numbers of the leaves.
    """
    rows = np.arange(len(X))
    node = np.zeros(len(X), dtype=np.intp)
    # For a leaf, feature -1 reads the last column of X, but the result is not used.
    for _ in range(_depth(tree)):
        feature = tree["feature"][node]
        right = X[rows, feature] > tree[cut][node]
        node = np.where(feature == LEAF, node, 2 * node + 1 + right)
    return node


def add_trees(
    X: np.ndarray, scores: np.ndarray, ensemble: np.ndarray, cut: str = "bin"
) -> np.ndarray:
    """Add the values of an ensemble to `scores`, in the order of the trees.

    Adding the trees in one call or one by one gives exactly the same result.

    Parameters
    ----------
    X : array, (n_rows, n_features)
        Bins or values, depending on `cut`.
    scores : array, (n_rows, n_outputs)
        Scores to add to. They are not modified.
    ensemble : array of NODE, (n_iterations, n_outputs, n_nodes)
    cut : {"bin", "threshold"}
        See `nodes_of`.

    Returns
    -------
    array, (n_rows, n_outputs)
    """
    scores = scores.copy()
    for trees in ensemble:
        for output, tree in enumerate(trees):
            scores[:, output] += tree["value"][nodes_of(tree, X, cut)]
    return scores


def scores_of(X: Any, start: np.ndarray, ensemble: np.ndarray) -> np.ndarray:
    """Compute the scores of rows.

    Parameters
    ----------
    X : array or sparse matrix, (n_rows, n_features)
        Values.
    start : array, (n_outputs,)
        Scores before the first tree.
    ensemble : array of NODE, (n_iterations, n_outputs, n_nodes)

    Returns
    -------
    array, (n_rows,) for one output, else (n_rows, n_outputs)
    """
    X = dense(X)
    scores = add_trees(X, np.tile(start, (len(X), 1)), ensemble, cut="threshold")
    return scores[:, 0] if scores.shape[1] == 1 else scores


def probabilities_of(X: Any, start: np.ndarray, ensemble: np.ndarray) -> np.ndarray:
    """Compute class probabilities, (n_rows, n_classes).

    A single output is the log-odds of the second class; several outputs go through a softmax. See
    `scores_of` for the parameters.
    """
    scores = scores_of(X, start, ensemble)
    if scores.ndim == 2:
        return softmax(scores, axis=1)
    second = expit(scores)
    return np.column_stack([1 - second, second])


def labels_of(X: Any, start: np.ndarray, ensemble: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the most likely of the sorted `classes` for each row. See `scores_of`."""
    return classes[probabilities_of(X, start, ensemble).argmax(axis=1)]


def _depth(tree: np.ndarray) -> int:
    return len(tree).bit_length() - 1
