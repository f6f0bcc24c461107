"""What jobs were granted over the last epochs: bounded in number and bytes, read in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ROW", "VARIABLES", "Epochs"]

#: What is kept of a job in an epoch: numbers, as of its `Grant`, and the tasks that it ran.
VARIABLES = ("iteration", "loss", "normalized_loss", "predicted", "share", "running")
#: One job in one epoch. Its name is kept once for all epochs, under the number `job`.
ROW = np.dtype(
    [
        ("job", "<u4"),
        ("iteration", "<u4"),
        ("running", "<u4"),
        ("loss", "<f8"),
        ("normalized_loss", "<f8"),
        ("predicted", "<f8"),
        ("share", "<f8"),
    ]
)
#: Bytes that are kept, and that a piece has: 200 jobs for an hour of seconds take 32 MB.
MOST_BYTES, PIECE = 60_000_000, 1_000_000
#: Epochs that a piece has at most, and bytes that each counts for beside its rows.
MOST_IN_PIECE, OVERHEAD = 5_000, 200

Rows = NDArray[Any]


class Epochs:
    """The newest epochs, numbered from 0 on.

    Parameters
    ----------
    most : int
        Epochs that are kept.
    most_bytes : int
        Bytes that they may take: of many jobs, fewer epochs are kept.

    Attributes
    ----------
    nbytes : int
        Bytes that they take.
    """

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self.nbytes = 0
        self._first = 0
        self._kept: deque[tuple[float, Rows]] = deque()
        self._ended: dict[str, Rows] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._last: dict[int, int] = {}  # the epoch in which each job is found last
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, time: float, names: Sequence[str], values: Mapping[str, ArrayLike]) -> None:
        """Add an epoch: these jobs, and those that ended since the one before.

        Parameters
        ----------
        time : float
            Unix seconds.
        names : sequence of str
            The jobs.
        values : mapping of str to (n_jobs,) array
            The `VARIABLES` of each.
        """
        rows = self._rows(names, values)
        self._append(time, np.concatenate([*self._ended.values(), rows]))
        self._ended.clear()

    def end(self, name: str, values: Mapping[str, ArrayLike]) -> None:
        """Keep the last values of a job that ends, for the next epoch."""
        self._ended[name] = self._rows([name], values)

    def begin(self, name: str, time: float) -> None:
        """Note that a job begins: if one of its name ended just now, that gets an epoch of its own,
        since an epoch has one value for a name."""
        if name in self._ended:
            self._append(time, self._ended.pop(name))

    def read(self, time: float, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Return a piece of the epochs, as plain values that travel in a message.

        Parameters
        ----------
        time : float
            Unix seconds: of an epoch that the jobs make which ended since the last one.
        start : int
            Number of the first epoch that is wanted; later if that is no longer kept.
        stop : int, optional
            Number at which to stop, as the piece before said: later ones came meanwhile.

        Returns
        -------
        dict
            ``next`` (`start` of the next piece, None after the last), ``stop``; ``times`` and
            ``sizes`` (jobs) of each epoch; ``rows`` (bytes of all, of the type `ROW`); ``numbers``
            and ``names`` of the jobs in them.
        """
        end = self._first + len(self._kept)
        stop = end if stop is None else min(stop, end)
        at = max(start, self._first)
        some: list[tuple[float, Rows]] = []
        size = 0
        while at < stop and size < PIECE and len(some) < MOST_IN_PIECE:
            some.append(self._kept[at - self._first])
            size += some[-1][1].nbytes + OVERHEAD
            at += 1
        if at >= stop and self._ended:
            some.append((time, np.concatenate(list(self._ended.values()))))
        rows = np.concatenate([np.empty(0, ROW), *(rows for _, rows in some)])
        numbers = np.unique(rows["job"]).tolist()
        return {
            "next": at if at < stop else None,
            "stop": stop,
            "times": [time for time, _ in some],
            "sizes": [len(rows) for _, rows in some],
            "rows": rows.tobytes(),
            "numbers": numbers,
            "names": [self._names[number] for number in numbers],
        }

    def _rows(self, names: Sequence[str], values: Mapping[str, ArrayLike]) -> Rows:
        rows = np.empty(len(names), ROW)
        rows["job"] = np.fromiter(map(self._number, names), np.uint32, len(names))
        for name in VARIABLES:
            rows[name] = values[name]
        return rows

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next_number
            self._names[number] = name
            self._next_number += 1
        return number

    def _append(self, time: float, rows: Rows) -> None:
        # What waits for an epoch of its own is found in the next one at the earliest.
        waiting = (int(one["job"][0]) for one in self._ended.values())
        self._mark(waiting, self._first + len(self._kept) + 1)
        self._mark(rows["job"].tolist(), self._first + len(self._kept))
        self._kept.append((time, rows))
        self.nbytes += rows.nbytes + OVERHEAD
        while len(self._kept) > self._most or (self.nbytes > self._most_bytes and len(self) > 1):
            self._drop()

    def _mark(self, numbers: Iterable[int], epoch: int) -> None:
        self._last.update(dict.fromkeys(numbers, epoch))

    def _drop(self) -> None:
        """Forget the oldest epoch, and the jobs that are found in no later one."""
        _, rows = self._kept.popleft()
        self.nbytes -= rows.nbytes + OVERHEAD
        for number in rows["job"].tolist():
            if self._last[number] == self._first:
                del self._numbers[self._names.pop(number)], self._last[number]
        self._first += 1
