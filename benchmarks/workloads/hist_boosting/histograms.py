"""Binning of features, histograms of gradients per bin, and the search for the best splits.

Thresholds, gains and constraints follow scikit-learn's histogram boosting [1]_, [2]_.

.. [1] Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NIPS 2017.
.. [2] Chen, Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, eq. 5 and 7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.workloads.elastic import dense
from benchmarks.workloads.hist_boosting.trees import LEAF

__all__ = ["Splits", "best_splits", "bins_of", "histograms", "newton_step", "thresholds_of"]

#: Minimum sum of second derivatives in a child.
MIN_HESSIAN = 1e-3
TINY = 1e-15


def thresholds_of(sample: np.ndarray, max_bins: int) -> np.ndarray:
    """Compute the upper ends of the bins of each feature.

    Parameters
    ----------
    sample : array, (n_rows, n_features)
        Sample of the data.
    max_bins : int
        Maximum number of bins per feature.

    Returns
    -------
    array, (n_features, max_bins - 1)
        Upper ends of all bins but the last, padded with infinity. They are midpoints of the
        distinct values if there are at most `max_bins` of them, else quantiles.
    """
    ends = np.full((sample.shape[1], max_bins - 1), np.inf)
    inner = np.linspace(0, 100, max_bins + 1)[1:-1]
    for column, row in zip(sample.T, ends, strict=True):
        distinct = np.unique(column)
        if len(distinct) <= max_bins:
            row[: len(distinct) - 1] = (distinct[:-1] + distinct[1:]) / 2
        else:
            row[:] = np.percentile(column, inner, method="averaged_inverted_cdf")
    return ends


def bins_of(X: Any, thresholds: np.ndarray) -> np.ndarray:
    """Compute the bin of each value.

    Parameters
    ----------
    X : array or sparse matrix, (n_rows, n_features)
    thresholds : array, (n_features, max_bins - 1)
        See `thresholds_of`.

    Returns
    -------
    array of uint8, (n_rows, n_features)
        In Fortran order, so that each column is contiguous.
    """
    X = dense(X)
    bins = np.empty(X.shape, dtype=np.uint8, order="F")
    for feature, ends in enumerate(thresholds):
        bins[:, feature] = np.searchsorted(ends, X[:, feature], side="left")
    return bins


def histograms(
    bins: np.ndarray, values: list[np.ndarray | None], slots: np.ndarray, shape: tuple[int, int]
) -> list[np.ndarray]:
    """Sum values over the rows in each bin of each slot. A slot is one of the active tree nodes.

    Parameters
    ----------
    bins : array of uint8, (n_rows, n_features)
        See `bins_of`.
    values : list of array, (n_rows,), or None
        Values to sum. None counts rows.
    slots : array of int, (n_rows,)
        Slot that each row belongs to, -1 for none.
    shape : (int, int)
        Numbers of slots and bins.

    Returns
    -------
    list of array, (n_slots, n_features, n_bins)
        One histogram per item of `values`.
    """
    inside = np.flatnonzero(slots >= 0)
    if len(inside) < len(slots):
        bins, slots = bins[inside], slots[inside]
        values = [None if value is None else value[inside] for value in values]
    sums = [np.zeros((shape[0], bins.shape[1], shape[1])) for _ in values]
    first = slots * shape[1]
    for feature in range(bins.shape[1] if len(inside) else 0):
        place = first + bins[:, feature]
        for total, value in zip(sums, values, strict=True):
            counted = np.bincount(place, weights=value, minlength=shape[0] * shape[1])
            total[:, feature] = counted.reshape(shape)
    return sums


class Splits(NamedTuple):
    """Best split of each slot.

    Attributes
    ----------
    feature, bin : array of int, (n_slots,)
        Feature and bin at which to split. The feature is `LEAF` if no split has a positive gain.
    gradients, hessians : array, (n_slots, 2)
        Sums over the left and the right child.
    """

    feature: np.ndarray
    bin: np.ndarray
    gradients: np.ndarray
    hessians: np.ndarray


def newton_step(gradients: np.ndarray, hessians: np.ndarray, l2: float) -> np.ndarray:
    """Compute the leaf value that minimizes the second-order model of the loss.

    Parameters
    ----------
    gradients, hessians : array
        Sums of the first and second derivatives over the rows of each leaf.
    l2 : float
        Penalty on squared leaf values.
    """
    return -gradients / (hessians + l2 + TINY)


def best_splits(
    gradients: np.ndarray, hessians: np.ndarray, counts: np.ndarray, l2: float, min_leaf: int
) -> Splits:
    """Find the split with the largest gain. Ties go to the first feature, then the lowest bin.

    Parameters
    ----------
    gradients, hessians, counts : array, (n_slots, n_features, n_bins)
        Histograms of the first and second derivatives, and of the rows.
    l2 : float
        Penalty on squared leaf values.
    min_leaf : int
        Minimum number of rows per child, >= 1.
    """
    g, h, n = (_both_sides(values) for values in (gradients, hessians, counts))
    whole = _quality(g.sum(axis=0), h.sum(axis=0), l2)
    gain = _quality(g[0], h[0], l2) + _quality(g[1], h[1], l2) - whole
    gain[~((n >= min_leaf) & (h >= MIN_HESSIAN)).all(axis=0)] = -np.inf
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


def _quality(g: np.ndarray, h: np.ndarray, l2: float) -> np.ndarray:
    return g**2 / (h + l2 + TINY)
