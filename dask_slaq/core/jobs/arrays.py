"""Arrays with one row per job, whose rows are reused, and the types of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Threads. Smaller amounts, and differences between sums of shares, are rounding.
EPSILON_THREADS = 1e-9


class JobArrays:
    """Arrays that share their first axis. Rows are reused, and doubled when all are in use.

    `columns` has shape of a row, dtype and initial value of each. Keep no array of `column`.
    """

    def __init__(self, columns: Mapping[str, tuple[tuple[int, ...], DTypeLike, float]]) -> None:
        self._fill = {name: fill for name, (_, _, fill) in columns.items()}
        self._free: list[int] = []
        self._capacity = 0
        self.column: dict[str, NDArray[Any]] = {
            name: np.empty((0, *shape), dtype) for name, (shape, dtype, _) in columns.items()
        }

    def acquire(self) -> int:
        """Return the number of an unused row, filled with the initial values."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.reset(row)
        return row

    def reset(self, row: int) -> None:
        """Fill a row with the initial values, where the rows are those of another table."""
        while row >= self._capacity:
            self._grow()
        for name, array in self.column.items():
            array[row] = self._fill[name]

    def release(self, row: int) -> None:
        """Release a row for reuse."""
        self._free.append(row)

    def _grow(self) -> None:
        # Zeroed pages take no memory until they are written to, so doubling wastes none.
        capacity = max(16, 2 * self._capacity)
        for name, array in self.column.items():
            grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
            grown[: self._capacity] = array
            self.column[name] = grown
        self._free.extend(range(capacity - 1, self._capacity - 1, -1))
        self._capacity = capacity
