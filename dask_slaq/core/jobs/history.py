"""Bounded history of the grants of the last epochs, read in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_slaq.core.jobs.columns import JOB_COLUMNS

_KEPT = {column.name: column.kept for column in JOB_COLUMNS if column.kept}
#: Values kept of each job in each epoch.
VARIABLES = tuple(_KEPT)
#: Record of one job in one epoch. Its name is stored once for all epochs, by the number `job`.
ROW = np.dtype([("job", "<u4"), *_KEPT.items()])
#: Maximum bytes of the history, and bytes after which a piece ends. One hour of 200 jobs in epochs
#: of one second takes 38 MB.
MOST_BYTES, PIECE_BYTES = 60_000_000, 1_000_000
#: Bytes added per epoch to those of its rows.
OVERHEAD_BYTES = 200
#: Maximum number of jobs that end between two epochs; more form an epoch of their own.
MOST_ENDED = 1000

Rows = NDArray[Any]
Values = Mapping[str, ArrayLike]


class Epochs:
    """Bounded history of the newest `most` epochs, numbered from 0, which takes `nbytes`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.nbytes = 0
        self._first = 0
        self._kept: deque[tuple[float, Rows]] = deque()
        self._ended: dict[str, Rows] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._last: dict[int, int] = {}  # number of the last epoch of each job
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, time: float, names: Sequence[str], values: Values) -> None:
        """Add an epoch of running jobs, at a Unix time, with `VARIABLES`."""
        rows = self._rows(names, values)
        self._append(time, np.concatenate([*self._ended.values(), rows]))
        self._ended.clear()

    def end(self, name: str, values: Values, time: float) -> None:
        """Keep the last values of a job that ends until the next epoch is added. See `add`."""
        if len(self._ended) >= MOST_ENDED:
            self._append(time, np.concatenate(list(self._ended.values())))
            self._ended.clear()
        self._ended[name] = self._rows([name], values)

    def begin(self, name: str, time: float) -> None:
        """Prepare for a new job: one of its name that just ended gets an epoch of its own."""
        if name in self._ended:
            self._append(time, self._ended.pop(name))

    def since(self, seconds: float) -> list[tuple[float, Rows]]:
        """Return the Unix times and rows of the epochs of the last `seconds`."""
        newest = self._kept[-1][0] if self._kept else 0.0
        return [each for each in self._kept if newest - each[0] <= seconds]

    def name_of(self, number: int) -> str:
        """Return the name of the job of a row."""
        return self._names[number]

    def read(self, time: float, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Return a piece of the history from epoch `start` on, as plain values for a message.

        It has ``next``, the `start` of the next piece, None after the last one; ``stop``, to pass
        on so that epochs added in between are left out; ``times`` and ``sizes`` (number of jobs) of
        the epochs; ``rows``, the bytes of an array of type `ROW`; ``numbers`` and ``names`` of the
        jobs in it. Jobs that ended since the last epoch form an epoch at `time` at the end of the
        last piece.
        """
        end = self._first + len(self._kept)
        stop = end if stop is None else min(stop, end)
        at = max(start, self._first)
        some: list[tuple[float, Rows]] = []
        size = 0
        while at < stop and size < PIECE_BYTES and len(some) < 5_000:
            some.append(self._kept[at - self._first])
            size += some[-1][1].nbytes + OVERHEAD_BYTES
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

    def _rows(self, names: Sequence[str], values: Values) -> Rows:
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
        # Jobs in `_ended` that still wait will be in the next epoch at the earliest.
        epoch = self._first + len(self._kept)
        self._last.update((int(one["job"][0]), epoch + 1) for one in self._ended.values())
        self._last.update(dict.fromkeys(rows["job"].tolist(), epoch))
        self._kept.append((time, rows))
        self.nbytes += rows.nbytes + OVERHEAD_BYTES
        while len(self._kept) > self._most or (self.nbytes > MOST_BYTES and len(self) > 1):
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest epoch, and the names of jobs that are not in a later one."""
        _, rows = self._kept.popleft()
        self.nbytes -= rows.nbytes + OVERHEAD_BYTES
        for number in rows["job"].tolist():
            if self._last[number] == self._first:
                name = self._names.pop(number)
                del self._numbers[name], self._last[number]
        self._first += 1


#: Values that `table` returns.
SHOWN = ("normalized_loss", "core_seconds")


def threads(times: NDArray[Any], core_seconds: NDArray[Any], n_epochs: int) -> NDArray[Any]:
    """Return how many threads jobs used, over `n_epochs` up to each epoch; the first column is 0.

    `core_seconds` (n_jobs, n_epochs) are used so far, and begin anew with another job of the name.
    """
    used = np.zeros(core_seconds.shape)
    if len(times) < 2:
        return used
    absent = np.isnan(core_seconds)
    # The last value known before each epoch: 0 for a job that began later.
    last = np.where(absent, 0, np.arange(len(times)))
    last = np.maximum.accumulate(last, axis=1)
    total = np.nan_to_num(np.take_along_axis(core_seconds, last, axis=1))
    step = np.diff(total, axis=1)
    # Of tasks that run, the time so far is only estimated, and may have been too much.
    began_anew = total[:, 1:] < 0.5 * total[:, :-1]
    used[:, 1:] = np.where(began_anew, total[:, 1:], np.maximum(step, 0.0))
    seconds = np.concatenate([[0.0], np.diff(times)])
    summed, passed = np.cumsum(used, axis=1), np.cumsum(seconds)
    first = np.maximum(np.arange(len(times)) - n_epochs, 0)
    over = np.maximum(passed - passed[first], 1e-9)
    mean: NDArray[Any] = (summed - summed[:, first]) / over
    return mean


def table(
    epochs: Epochs, seconds: float, most: int = 300
) -> tuple[list[str], NDArray[Any], dict[str, NDArray[Any]]]:
    """Return names, Unix times and values of `SHOWN` by job and epoch, of at most `most` epochs."""
    some = epochs.since(seconds)
    if not some:
        nothing = np.empty((0, 0))
        return [], np.empty(0), dict.fromkeys(SHOWN, nothing)
    some = some[::-1][:: -(-len(some) // most)][::-1]
    rows = np.concatenate([rows for _, rows in some])
    numbers, which = np.unique(rows["job"], return_inverse=True)
    epoch = np.repeat(np.arange(len(some)), [len(rows) for _, rows in some])
    values = {}
    for name in SHOWN:
        values[name] = np.full((len(numbers), len(some)), np.nan)
        values[name][which, epoch] = rows[name]
    names = [epochs.name_of(number) for number in numbers.tolist()]
    return names, np.array([time for time, _ in some]), values
