"""Bounded memory of the trials of searches that have ended."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

#: Maximum bytes of all rows. A trial takes some 300 bytes, and 16 per point of its curves.
MOST_BYTES = 20_000_000


class EndedSearches:
    """Rows of the searches that ended last, one per trial, which take `nbytes`.

    The oldest are dropped when there are more than `most_bytes`; the newest search is always kept.

    >>> ended = EndedSearches()
    >>> ended.add("run-1", [{"key": "x", "state": "done"}])
    >>> ended.get("run-1")
    [{'key': 'x', 'state': 'done'}]
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most = MOST_BYTES if most_bytes is None else most_bytes
        self._rows: OrderedDict[str, bytes] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, run: str, rows: Sequence[dict[str, Any]]) -> None:
        """Keep the rows of a search, whose block has the identifier `run`."""
        self.nbytes -= len(self._rows.pop(run, b""))
        # As bytes, rows take a fifth of the memory, and their size is known.
        self._rows[run] = pickle.dumps(list(rows))
        self.nbytes += len(self._rows[run])
        while self.nbytes > self._most and len(self._rows) > 1:
            self.nbytes -= len(self._rows.popitem(last=False)[1])

    def get(self, run: str) -> list[dict[str, Any]]:
        """Return the rows of a search, none if they are unknown."""
        found: list[dict[str, Any]] = pickle.loads(self._rows[run]) if run in self._rows else []
        return found
