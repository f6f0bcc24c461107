"""Priors: how far ranks of models tell final losses, as of their first reports or a past search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.core.search_settings import FEWEST_REPORTS


class Prior:
    """Ranks of models, and how far they tell final losses.

    That is `assumed` at first, as a rank correlation that as many as `weight` models have shown;
    then those count that are there, `fewest` at least. Where ranks tell all, they show `perfect`.
    """

    def __init__(
        self, assumed: float, *, fewest: int, weight: int = 16, perfect: float = 1.0
    ) -> None:
        self._assumed, self._fewest = assumed, fewest
        self._weight, self._perfect = weight, perfect

    def trust(self, *shown: Sequence[tuple[float, float]]) -> float:
        """Return the part of the variance of final ranks that these explain; inverse is 0.

        Each of `shown` has ranks of models with their losses. What agrees best counts.
        """
        found = []
        for some in shown:
            if (count := len(some)) >= self._fewest:
                agree = count * rank_correlation(*np.array(some, float).T) / self._perfect
                found.append((agree + self._weight * self._assumed) / (count + self._weight))
        return float(np.clip(max(found, default=self._assumed), 0.0, 1.0)) ** 2


class Early(Prior):
    """Losses of all models of a search at each of their first reports.

    Young models have ranks among these, from 0 for the best to 1. On the scale of the predicted
    final losses of others, they are there after the best quarter if early ranks have told final
    ones so far; else they come before all others, which explores them. The `slope` of a score is by
    rank: 1 takes that as it is.

    >>> early = Early()
    >>> for loss in (3.0, 1.0, 2.0):
    ...     early.add(1, loss)
    >>> finals = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    >>> [round(score, 2) for score in early.scores([(1, 1.0), (1, 3.0)], [2.0] * 7, finals)]
    [0.5, 1.0]
    """

    def __init__(self, slope: float = 0.5) -> None:
        super().__init__(0.5, fewest=3)
        self._slope = slope
        self._losses: list[list[float]] = [[] for _ in range(FEWEST_REPORTS - 1)]

    def add(self, report: int, loss: float) -> None:
        """Record the loss of the `report`-th usable report of a model."""
        if report < FEWEST_REPORTS:
            insort(self._losses[report - 1], loss)

    def _rank(self, report: int, loss: float) -> float:
        known = self._losses[report - 1]
        return (bisect_left(known, loss) + bisect_right(known, loss)) / max(2 * len(known), 1)

    def scores(
        self, young: Sequence[tuple[int, float]], firsts: Sequence[float], finals: Sequence[float]
    ) -> list[float]:
        """Return scores of models by number and loss of their last reports.

        `firsts` and `finals` are the first and the final losses, as predicted, of the others.
        """
        ranks = [self._rank(*one) for one in young]
        if not finals:
            return ranks
        tells = np.ptp(firsts) and np.ptp(finals)
        trust = self.trust(list(zip(firsts, finals, strict=True)) if tells else [])
        pulled = 0.5 + self._slope * (np.array(ranks) - 0.5)
        scores: list[float] = np.quantile(finals, trust * pulled).tolist()
        return scores


def rank_correlation(some: ArrayLike, others: ArrayLike) -> float:
    """Return Spearman's rank correlation of two lists of values; 0 if one of them is constant."""
    if not (np.ptp(some) and np.ptp(others)):
        return 0.0
    return float(np.corrcoef(_ranks(some), _ranks(others))[0, 1])


def _ranks(values: ArrayLike) -> FloatArray:
    """Return the ranks of values; equal ones share theirs."""
    known = np.sort(values)
    ends = (np.searchsorted(known, values, side) for side in ("left", "right"))
    return np.add(*ends, dtype=float)
