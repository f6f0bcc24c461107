"""Binary trees as arrays, and the search for their splits in histograms of gradients.

Node ``i`` has the children ``2 i + 1`` and ``2 i + 2``: a tree of depth d has ``2 ** (d + 1) - 1``
nodes. Thresholds, gains and constraints follow scikit-learn's histogram boosting [1]_, [2]_.

.. [1] Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NIPS 2017.
.. [2] Chen, Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, eq. 5 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: A row goes left if its bin of `feature` is <= `bin`. A node without a feature is a leaf.
NODE = np.dtype([("feature", "i4"), ("bin", "i4"), ("value", "f8")])
LEAF = -1
#: Number of bins per feature.
BINS = 255
#: Minimum number of rows, and sum of second derivatives, in a leaf.
MIN_ROWS = 20
MIN_HESSIAN = 1e-3
TINY = 1e-15


def empty_tree(depth: int) -> np.ndarray:
    """Create a tree of a single leaf of value 0, with space for `depth` levels of splits."""
    tree = np.zeros(2 ** (depth + 1) - 1, dtype=NODE)
    tree["feature"] = LEAF
    return tree


def leaves_of(tree: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """Find the node number of the leaf of each row."""
    rows = np.arange(len(bins))
    node = np.zeros(len(bins), dtype=np.intp)
    # For a leaf, feature -1 reads the last column, but the result is not used.
    for _ in range(len(tree).bit_length() - 1):
        feature = tree["feature"][node]
        right = bins[rows, feature] > tree["bin"][node]
        node = np.where(feature == LEAF, node, 2 * node + 1 + right)
    return node


def add_trees(bins: np.ndarray, scores: np.ndarray, trees: Sequence[np.ndarray]) -> np.ndarray:
    """Return scores, (n_rows,), plus the values of the trees, added in the order of the trees.

    Adding the trees in one call or one by one gives exactly the same result.
    """
    for tree in trees:
        scores = scores + tree["value"][leaves_of(tree, bins)]
    return scores


def thresholds_of(sample: np.ndarray) -> np.ndarray:
    """Compute the upper ends of the bins of each feature but the last, (n_features, BINS - 1).

    They are midpoints of the distinct values, padded with infinity, if there are at most `BINS`,
    else quantiles.
    """
    ends = np.full((sample.shape[1], BINS - 1), np.inf)
    inner = np.linspace(0, 100, BINS + 1)[1:-1]
    for column, row in zip(sample.T, ends, strict=True):
        distinct = np.unique(column)
        if len(distinct) <= BINS:
            row[: len(distinct) - 1] = (distinct[:-1] + distinct[1:]) / 2
        else:
            row[:] = np.percentile(column, inner, method="averaged_inverted_cdf")
    return ends


def bins_of(X: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Compute the bin of each value, as uint8 in Fortran order: each column is contiguous."""
    bins = np.empty(X.shape, dtype=np.uint8, order="F")
    for feature, ends in enumerate(thresholds):
        bins[:, feature] = np.searchsorted(ends, X[:, feature], side="left")
    return bins


def histograms(
    bins: np.ndarray, values: list[np.ndarray | None], slots: np.ndarray, n_slots: int
) -> list[np.ndarray]:
    """Sum each of the values, (n_rows,), by slot and bin: (n_slots, n_features, BINS).

    A slot is one of the active tree nodes, -1 for none; the value None counts rows.
    """
    inside = np.flatnonzero(slots >= 0)
    if len(inside) < len(slots):
        bins, slots = bins[inside], slots[inside]
        values = [None if value is None else value[inside] for value in values]
    sums = [np.zeros((n_slots, bins.shape[1], BINS)) for _ in values]
    first = slots * BINS
    for feature in range(bins.shape[1] if len(inside) else 0):
        place = first + bins[:, feature]
        for total, value in zip(sums, values, strict=True):
            counted = np.bincount(place, weights=value, minlength=n_slots * BINS)
            total[:, feature] = counted.reshape(n_slots, BINS)
    return sums


class Splits(NamedTuple):
    """Best split of each slot: a feature, or `LEAF` if none has a positive gain, and its bin.

    Gradients and hessians, (n_slots, 2), are sums over the left and the right child.
    """

    feature: np.ndarray
    bin: np.ndarray
    gradients: np.ndarray
    hessians: np.ndarray


def newton_step(gradients: np.ndarray, hessians: np.ndarray) -> np.ndarray:
    """Compute the leaf value that minimizes the second-order model of the loss."""
    return -gradients / (hessians + TINY)


def best_splits(gradients: np.ndarray, hessians: np.ndarray, counts: np.ndarray) -> Splits:
    """Find the split with the largest gain in `histograms` of the derivatives and the rows.

    Ties go to the first feature, then the lowest bin.
    """
    g, h, n = (_both_sides(values) for values in (gradients, hessians, counts))
    whole = _quality(g.sum(axis=0), h.sum(axis=0))
    gain = _quality(g[0], h[0]) + _quality(g[1], h[1]) - whole
    gain[~((n >= MIN_ROWS) & (h >= MIN_HESSIAN)).all(axis=0)] = -np.inf
    flat = gain.reshape(len(gain), -1)
    best = flat.argmax(axis=1)
    slot = np.arange(len(gain))
    feature, where = np.unravel_index(best, gain.shape[1:])
    return Splits(
        np.where(flat[slot, best] > 0, feature, LEAF),
        where,
        g[:, slot, feature, where].T,
        h[:, slot, feature, where].T,
    )


def _both_sides(values: np.ndarray) -> np.ndarray:
    """Sum left and right of the end of each bin, (2, n_slots, n_features, n_bins)."""
    left = values.cumsum(axis=2)
    return np.stack([left, left[:, :1, -1:] - left])


def _quality(g: np.ndarray, h: np.ndarray) -> np.ndarray:
    return g**2 / (h + TINY)
