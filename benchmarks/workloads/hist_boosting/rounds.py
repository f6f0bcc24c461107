"""Boosting rounds: trees grown level by level over binned partitions.

The scores of the rows are the only state. The cluster keeps one array of scores per partition, and
each round adds to the previous scores. Every `FRESH` rounds the scores are computed from the start,
by the same additions in the same order. This bounds the number of steps needed to recompute the
scores of a lost worker, and the number of tasks that the scheduler remembers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import dask
import numpy as np

from benchmarks.workloads.elastic import Partitions, tree_sum
from benchmarks.workloads.hist_boosting.histograms import best_splits, histograms, newton_step
from benchmarks.workloads.hist_boosting.trees import LEAF, add_trees, empty_trees, nodes_of

__all__ = ["Rounds", "TreeParams"]

#: Number of rounds after which the scores are computed from the start again.
FRESH = 16


class TreeParams(NamedTuple):
    """Parameters of tree growth.

    Attributes
    ----------
    depth : int
        Levels of splits.
    bins : int
        Number of bins per feature.
    min_leaf : int
        Minimum number of rows per leaf.
    rate : float
        Factor applied to the leaf values.
    l2 : float
        Penalty on squared leaf values.
    """

    depth: int
    bins: int
    min_leaf: int
    rate: float
    l2: float


class Rounds:
    """Ensemble of trees that grows one round at a time.

    Call `look` for the loss, then `grow` for the next round, in turn.

    Parameters
    ----------
    rows : Partitions
        Bins (n_rows, n_features) and targets (n_rows,), persisted.
    objective : object
        See `benchmarks.workloads.hist_boosting.losses`.
    thresholds : array, (n_features, n_bins - 1)
        Upper ends of the bins.
    growth : TreeParams
        Parameters of tree growth.
    n : int
        Total number of rows.

    Attributes
    ----------
    start : array, (n_outputs,)
        Scores before the first tree.
    ensemble : list of array of NODE, (n_outputs, n_nodes)
        The trees of each round.
    """

    def __init__(
        self, rows: Partitions, objective: Any, thresholds: np.ndarray, growth: TreeParams, n: int
    ) -> None:
        self.rows, self.objective, self.thresholds, self.growth = (
            rows,
            objective,
            thresholds,
            growth,
        )
        self.n = n
        self.start = objective.start(*rows.sum(_summary, objective))
        self.ensemble: list[np.ndarray] = []
        self._scores = self._from_start()
        self._held: list[Any] = []

    def look(self, *, last: bool = False) -> float:
        """Compute the mean loss, in the same pass as the histograms for the next round.

        With `last`, the histograms are omitted.
        """
        trees = empty_trees(self.objective.n_outputs, self.growth.depth)
        roots = [] if last else [(output, 0) for output in range(len(trees))]
        sums = tree_sum(self._level(trees, roots))
        *self._scores, sums = dask.persist(*self._scores, sums)
        loss, *self._roots = sums.compute()
        # The new scores are computed from the previous ones, so release those only now.
        self._held = self._scores
        return float(loss) / self.n

    def grow(self) -> None:
        """Add the trees of one round. Requires a preceding call of `look`."""
        trees = empty_trees(self.objective.n_outputs, self.growth.depth)
        active = [(output, 0) for output in range(len(trees))]
        sums = self._roots
        while active:
            active = self._split(trees, active, *sums)
            if active:
                (total,) = dask.compute(tree_sum(self._level(trees, active)))
                _, *sums = total
        self.ensemble.append(trees)
        fresh = len(self.ensemble) % FRESH == 0
        self._scores = self._from_start() if fresh else self._one_more()

    def _split(
        self, trees: np.ndarray, active: list[tuple[int, int]], g: Any, h: Any, n: Any = None
    ) -> list[tuple[int, int]]:
        """Split active nodes where there is a gain. Returns the children that may be split next."""
        g, h, n = (g, h, h) if n is None else (g, h, n)
        found = best_splits(g, h, n, self.growth.l2, self.growth.min_leaf)
        values = self.growth.rate * newton_step(found.gradients, found.hessians, self.growth.l2)
        children = []
        for slot, (output, node) in enumerate(active):
            feature, cut = found.feature[slot], found.bin[slot]
            if feature == LEAF:
                continue
            value = trees[output, node]["value"]
            trees[output, node] = feature, cut, self.thresholds[feature, cut], value
            for child, new in zip((2 * node + 1, 2 * node + 2), values[slot], strict=True):
                trees["value"][output, child] = new
                children.append((output, child))
        splittable = (trees.shape[1] - 1) // 2
        return [child for child in children if child[1] < splittable]

    def _level(self, trees: np.ndarray, active: list[tuple[int, int]]) -> list[Any]:
        slots = np.full(trees.shape, -1)
        for slot, place in enumerate(active):
            slots[place] = slot
        arguments = self.objective, trees, slots, (len(active), self.growth.bins)
        return self.rows.map(_sums, *arguments, state=self._scores)

    def _from_start(self) -> list[Any]:
        return self.rows.map(_scores_of, self.start, np.array(self.ensemble))

    def _one_more(self) -> list[Any]:
        return self.rows.map(_advance, self.ensemble[-1], state=self._scores)


def _summary(bins: np.ndarray, y: np.ndarray, objective: Any) -> tuple[Any, ...]:
    summed: tuple[Any, ...] = objective.summary(y)
    return summed


def _scores_of(
    bins: np.ndarray, y: np.ndarray, start: np.ndarray, ensemble: np.ndarray
) -> np.ndarray:
    return add_trees(bins, np.tile(start, (len(bins), 1)), ensemble)


def _advance(bins: np.ndarray, y: np.ndarray, scores: np.ndarray, trees: np.ndarray) -> np.ndarray:
    return add_trees(bins, scores, trees[np.newaxis])


def _sums(
    bins: np.ndarray,
    y: np.ndarray,
    scores: np.ndarray,
    objective: Any,
    trees: np.ndarray,
    slots: np.ndarray,
    shape: tuple[int, int],
) -> tuple[Any, ...]:
    """Return the loss, and histograms of the derivatives and rows for the active nodes."""
    total: list[Any] = []
    for output, tree in enumerate(trees):
        values = [*objective.derivatives(y, scores, output), None]
        slot = slots[output][nodes_of(tree, bins)]
        found = histograms(bins, values, slot, shape)
        total = [a + b for a, b in zip(total, found, strict=True)] if total else found
    return (objective.loss(y, scores), *total)
