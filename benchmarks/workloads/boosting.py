"""Gradient-boosted trees with one task per partition and tree level.

The cluster holds the binned features, which never change, and the scores of the rows. A task sums
gradients per bin for the nodes of one level, and the process that called `fit` chooses the splits.
Nothing is tied to a worker, unlike in xgboost and lightgbm, whose workers are fixed while they
train.
"""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
from scipy.special import expit

from benchmarks.workloads.partitions import Elastic, Partitions, tree_sum
from benchmarks.workloads.trees import (
    LEAF,
    add_trees,
    best_splits,
    bins_of,
    empty_tree,
    histograms,
    leaves_of,
    newton_step,
    thresholds_of,
)

#: Number of rounds after which the scores are computed from the start again.
FRESH = 16


class GradientBoosting(Elastic):
    """Base class of the gradient-boosting classifier and regressor.

    Each iteration adds one tree of `max_depth` levels of splits. `subsample` rows are drawn for the
    quantiles that bound the bins.
    """

    def __init__(
        self,
        max_iter: int = 100,
        *,
        learning_rate: float = 0.1,
        max_depth: int = 3,
        subsample: int = 20_000,
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.subsample = subsample
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> GradientBoosting:
        """Fit the trees to persisted dask arrays. The workers may change at any time."""
        raw = self._begin(X, y)
        self.thresholds_ = thresholds_of(raw.sample(self.subsample, self.random_state))
        rows = raw.transform(bins_of, self.thresholds_)
        rounds = Rounds(rows, self._objective(raw), self.max_depth, self.learning_rate)
        for iteration in range(self.max_iter + 1):
            if not self._record(rounds.look(last=iteration == self.max_iter)):
                break
            if iteration < self.max_iter:
                rounds.grow()
        self.start_, self.trees_ = rounds.start, np.array(rounds.trees)
        self.n_iter_ = iteration
        return self

    def _objective(self, raw: Partitions) -> Any:
        raise NotImplementedError


class GradientBoostingRegressor(GradientBoosting):
    """Gradient-boosted regression trees. Reports the mean squared error."""

    def _objective(self, raw: Partitions) -> Any:
        return SquaredError()


class GradientBoostingClassifier(GradientBoosting):
    """Gradient-boosted trees for two classes. Reports the mean negative log-likelihood in nats."""

    def _objective(self, raw: Partitions) -> Any:
        self.classes_ = raw.labels()
        return LogLoss(self.classes_[1])


class SquaredError:
    """Squared difference of target and score.

    The derivatives are those of half the squared difference, so the second derivative is 1 and left
    out.
    """

    def start(self, total: float, n: int) -> float:
        """Compute the best constant score from the sums of the targets and rows."""
        return total / n

    def targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        """Return the loss, summed over the rows."""
        return float(((y - scores) ** 2).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
        """Compute the derivatives of the loss of each row with respect to its score."""
        return [scores - y]


class LogLoss:
    """Negative log-likelihood of two classes. The score is the log-odds of `positive`."""

    def __init__(self, positive: Any) -> None:
        self.positive = positive

    def start(self, total: float, n: int) -> float:
        """Compute the log-odds in the data. See `SquaredError`."""
        return float(np.log(total / (n - total)))

    def targets(self, y: np.ndarray) -> np.ndarray:
        return (y == self.positive).astype(float)

    def loss(self, y: np.ndarray, scores: np.ndarray) -> float:
        return float((np.logaddexp(0, scores) - y * scores).sum())

    def derivatives(self, y: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
        p = expit(scores)
        return [p - y, p * (1 - p)]


class Rounds:
    """Ensemble of trees that grows one round at a time: `look` for the loss, then `grow`, in turn.

    The trees grow level by level. The scores of the rows are the only state. The cluster keeps one
    array of scores per partition, and each round adds to the previous scores. Every `FRESH` rounds
    the scores are computed from the start, by the same additions in the same order. This bounds the
    number of steps needed to recompute the scores of a lost worker, and the number of tasks that
    the scheduler remembers.
    """

    def __init__(self, rows: Partitions, objective: Any, depth: int, rate: float) -> None:
        self.rows = rows
        self.objective = objective
        self.depth = depth
        self.rate = rate
        self.n = sum(rows.rows)
        #: Score before the first tree.
        self.start = objective.start(*rows.sum(_summary, objective))
        self.trees: list[np.ndarray] = []
        self._scores = self._from_start()
        self._held: list[Any] = []

    def look(self, *, last: bool) -> float:
        """Compute the mean loss, in the same pass as the histograms for the next round.

        With `last`, the histograms are omitted.
        """
        sums = tree_sum(self._level(empty_tree(self.depth), [] if last else [0]))
        *self._scores, sums = dask.persist(*self._scores, sums)
        loss, *self._root = sums.compute()
        # The new scores are computed from the previous ones, so release those only now.
        self._held = self._scores
        return float(loss) / self.n

    def grow(self) -> None:
        """Add the tree of one round."""
        tree = empty_tree(self.depth)
        active, sums = [0], self._root
        while active:
            active = self._split(tree, active, *sums)
            if active:
                (total,) = dask.compute(tree_sum(self._level(tree, active)))
                _, *sums = total
        self.trees.append(tree)
        if len(self.trees) % FRESH == 0:
            self._scores = self._from_start()
        else:
            self._scores = self.rows.map(_advance, tree, state=self._scores)

    def _split(self, tree: np.ndarray, active: list[int], g: Any, *h_and_n: Any) -> list[int]:
        """Split active nodes where there is a gain. Returns the children that may be split next."""
        found = best_splits(g, h_and_n[0], h_and_n[-1])
        values = self.rate * newton_step(found.gradients, found.hessians)
        children = []
        for slot, node in enumerate(active):
            feature, cut = found.feature[slot], found.bin[slot]
            if feature != LEAF:
                tree[node] = feature, cut, tree["value"][node]
                pair = [2 * node + 1, 2 * node + 2]
                tree["value"][pair] = values[slot]
                children += pair
        return [child for child in children if child < len(tree) // 2]

    def _level(self, tree: np.ndarray, active: list[int]) -> list[Any]:
        slots = np.full(len(tree), -1)
        slots[active] = range(len(active))
        arguments = self.objective, tree, slots, len(active)
        return self.rows.map(_sums, *arguments, state=self._scores)

    def _from_start(self) -> list[Any]:
        return self.rows.map(_scores_of, self.start, np.array(self.trees))


def _summary(bins: np.ndarray, y: np.ndarray, objective: Any) -> tuple[float, int]:
    return float(objective.targets(y).sum()), len(y)


def _scores_of(bins: np.ndarray, y: np.ndarray, start: float, trees: np.ndarray) -> np.ndarray:
    return add_trees(bins, np.full(len(bins), start), trees)


def _advance(bins: np.ndarray, y: np.ndarray, scores: np.ndarray, tree: np.ndarray) -> np.ndarray:
    return add_trees(bins, scores, [tree])


def _sums(
    bins: np.ndarray,
    y: np.ndarray,
    scores: np.ndarray,
    objective: Any,
    tree: np.ndarray,
    slots: np.ndarray,
    n_slots: int,
) -> tuple[Any, ...]:
    """Return the loss, and histograms of the derivatives and rows for the active nodes."""
    y = objective.targets(y)
    values = [*objective.derivatives(y, scores), None]
    found = histograms(bins, values, slots[leaves_of(tree, bins)], n_slots)
    return (objective.loss(y, scores), *found)
