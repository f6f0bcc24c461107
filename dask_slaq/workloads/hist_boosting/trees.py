"""Binary trees as arrays: node ``i`` has the children ``2 i + 1`` and ``2 i + 2``.

A tree of depth d has ``2 ** (d + 1) - 1`` nodes; a node without a feature is a leaf. An ensemble is
an array of them, (n_iterations, n_outputs, n_nodes), so that it can be sent and sliced. The scores
of a row are a start and what each tree adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from dask_slaq.workloads.elastic import dense

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

#: A row goes left if the value of its `feature` is at most `threshold`, its bin at most `bin`.
NODE = np.dtype([("feature", "i4"), ("bin", "i4"), ("threshold", "f8"), ("value", "f8")])
LEAF = -1


def empty_trees(n_outputs: int, depth: int) -> np.ndarray:
    """Trees of one leaf each that adds nothing, (n_outputs, n_nodes)."""
    trees = np.zeros((n_outputs, 2 ** (depth + 1) - 1), dtype=NODE)
    trees["feature"] = LEAF
    return trees


def nodes_of(tree: np.ndarray, X: np.ndarray, cut: str = "bin") -> np.ndarray:
    """The leaf of `tree` where each row of `X` ends, (n_rows,).

    Parameters
    ----------
    tree : array of NODE, (n_nodes,)
    X : array, (n_rows, n_features)
        Bins with ``cut="bin"``, values with ``cut="threshold"``.
    """
    rows = np.arange(len(X))
    node = np.zeros(len(X), dtype=np.intp)
    # Where feature is LEAF the last column is read, and what it says is not used.
    for _ in range(_depth(tree)):
        feature = tree["feature"][node]
        right = X[rows, feature] > tree[cut][node]
        node = np.where(feature == LEAF, node, 2 * node + 1 + right)
    return node


def add_trees(
    X: np.ndarray, scores: np.ndarray, ensemble: np.ndarray, cut: str = "bin"
) -> np.ndarray:
    """`scores` (n_rows, n_outputs) and what an ensemble adds to them, tree after tree.

    The order of additions is that of the trees: adding them in one go or one by one is the same.
    """
    scores = scores.copy()
    for trees in ensemble:
        for output, tree in enumerate(trees):
            scores[:, output] += tree["value"][nodes_of(tree, X, cut)]
    return scores


def scores_of(X: Any, start: np.ndarray, ensemble: np.ndarray) -> np.ndarray:
    """Scores of rows of values: (n_rows,) if there is one output, else (n_rows, n_outputs)."""
    X = dense(X)
    scores = add_trees(X, np.tile(start, (len(X), 1)), ensemble, cut="threshold")
    return scores[:, 0] if scores.shape[1] == 1 else scores


def probabilities_of(X: Any, start: np.ndarray, ensemble: np.ndarray) -> np.ndarray:
    """Probabilities of classes: by log-odds of the second if there is one output, else softmax."""
    scores = scores_of(X, start, ensemble)
    if scores.ndim == 2:
        return softmax(scores, axis=1)
    second = expit(scores)
    return np.column_stack([1 - second, second])


def labels_of(X: Any, start: np.ndarray, ensemble: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The most likely of the sorted `classes` for each row."""
    return classes[probabilities_of(X, start, ensemble).argmax(axis=1)]


def _depth(tree: np.ndarray) -> int:
    return len(tree).bit_length() - 1
