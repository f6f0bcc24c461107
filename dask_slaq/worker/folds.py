"""Means of the metrics of a cross-validation whose folds train in turns."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping

__all__ = ["Folds"]


class Folds:
    """Metrics of the folds of one model in the present round.

    How many folds there are is known once a fold reports for the second time.

    >>> folds = Folds()
    >>> some = [(0, 2.0), (1, 4.0), (0, 1.0), (1, 2.0)]
    >>> [folds.add(k, {"loss": loss}) for k, loss in some]
    [[], [], [({'loss': 3.0}, None)], [({'loss': 1.5}, None)]]
    """

    def __init__(self) -> None:
        self._round: dict[Hashable, Mapping[str, float]] = {}
        self._count: int | None = None
        self._step: int | None = None  # of the last report

    def add(
        self, fold: Hashable, metrics: Mapping[str, float], step: int | None = None
    ) -> list[tuple[dict[str, float], int | None]]:
        """Record the metrics of a fold.

        Returns the means and the step of each round that is complete by now.
        """
        means = []
        if fold in self._round:
            self._count = self._count or len(self._round)
            means.append(self._end())
        self._round[fold], self._step = metrics, step
        if self._count is not None and len(self._round) >= self._count:
            means.append(self._end())
        return means

    def _end(self) -> tuple[dict[str, float], int | None]:
        some = list(self._round.values())
        self._round.clear()
        means = {
            name: statistics.fmean(each[name] for each in some if name in each) for name in some[-1]
        }
        return means, self._step
