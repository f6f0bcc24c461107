"""Bounded memory of past runs, by the name of their kind."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.memory.likeness import distance
from dask_slaq.core.memory.runs import Kind, Run

__all__ = ["MOST_KINDS", "MOST_LIKE", "MOST_PER_KIND", "PastRuns"]

#: Maximum number of runs kept per name of a kind, and of such names.
MOST_PER_KIND, MOST_KINDS = 64, 1000
#: Maximum number of like runs on which a forecast rests.
MOST_LIKE = 8


class PastRuns:
    """Past runs, of which the oldest are forgotten.

    Parameters
    ----------
    per_kind, kinds : int
        Maximum number of runs of kinds of one name, and of names. When there are more names, the
        one that was added to least recently goes, with its runs.

    Examples
    --------
    >>> import numpy as np
    >>> memory = PastRuns()
    >>> for rows in (3.0, 4.0, 6.0):
    ...     kind = Kind("sgd", (("rows", rows),))
    ...     memory.add(Run(f"{rows:g}", kind, np.array([1, 2]), np.array([1.0, 0.5]), 2))
    >>> [(run.job, apart) for run, apart in memory.like(Kind("sgd", (("rows", 4.75),)), most=2)]
    [('4', 0.75), ('6', 1.25)]
    """

    def __init__(self, *, per_kind: int = MOST_PER_KIND, kinds: int = MOST_KINDS) -> None:
        if per_kind < 1 or kinds < 1:
            raise InvalidSetting(f"per_kind and kinds must be at least 1, not {per_kind}, {kinds}")
        self._per_kind, self._kinds = per_kind, kinds
        self._runs: OrderedDict[str, deque[Run]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Run]:
        for runs in self._runs.values():
            yield from runs

    def add(self, run: Run) -> None:
        """Add a run. O(1)."""
        runs = self._runs.get(run.kind.name)
        if runs is None:
            runs = self._runs[run.kind.name] = deque(maxlen=self._per_kind)
        self._count += len(runs) < self._per_kind
        runs.append(run)
        self._runs.move_to_end(run.kind.name)
        if len(self._runs) > self._kinds:
            _, gone = self._runs.popitem(last=False)
            self._count -= len(gone)

    def like(self, kind: Kind, most: int = MOST_LIKE) -> list[tuple[Run, float]]:
        """Return the nearest runs of like kind, and their distances.

        Parameters
        ----------
        kind : Kind
        most : int
            Maximum number of runs.

        Returns
        -------
        list of (Run, float)
            Nearest first, see `distance`; of equally near runs, those that ended last.
        """
        runs = self._runs.get(kind.name, ())
        found = [(run, distance(kind, run.kind)) for run in runs]
        found.sort(key=lambda pair: (pair[1], -pair[0].ended, pair[0].job))
        return found[:most]
