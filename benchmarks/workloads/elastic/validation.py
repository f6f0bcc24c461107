"""Validation of a data set before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Found", "Survey", "is_sparse", "look", "surveyed"]


class Survey(NamedTuple):
    """Sizes and labels of a data set, collected in one pass.

    Attributes
    ----------
    rows : list of int
        Number of rows in each partition, >= 1.
    columns : int
        Number of columns of the first array.
    labels : array or None
        Distinct values of the second array, sorted. None if they were not requested.
    """

    rows: list[int]
    columns: int
    labels: np.ndarray | None

    @property
    def n(self) -> int:
        """Total number of rows."""
        return sum(self.rows)


class Found(NamedTuple):
    """Summary of one partition.

    Attributes
    ----------
    lengths : list of int
        Number of rows of each array.
    columns : int
        Number of columns of the first array.
    dtype : dtype
        Data type of the first array.
    bad : (str, int) or None
        Name of the array, and row, of the first value that is not finite.
    labels : array or None
        Distinct values of the second array, sorted, if requested.
    """

    lengths: list[int]
    columns: int
    dtype: np.dtype[Any]
    bad: tuple[str, int] | None
    labels: np.ndarray | None


def look(*args: Any) -> Found:
    """Summarize one partition.

    Parameters
    ----------
    *args
        Arrays of the partition, followed by a bool: whether to collect labels.
    """
    *arrays, labels = args
    x = arrays[0]
    lengths = [int(array.shape[0]) for array in arrays]
    distinct = np.unique(arrays[1]) if labels else None
    return Found(lengths, int(x.shape[1]), x.dtype, _bad(arrays), distinct)


def surveyed(found: Sequence[Found]) -> Survey:
    """Validate and combine the summaries of all partitions.

    Raises
    ------
    ValueError
        See `Partitions.survey`.
    """
    for number, one in enumerate(found):
        _check(one, f"partition {number} of {len(found)}", found[0].columns)
    some = [one.labels for one in found if one.labels is not None]
    classes = np.unique(np.concatenate(some)) if some else None
    if classes is not None and len(classes) < 2:
        raise ValueError(f"y has one class only, {classes[0]!r}; at least two are needed")
    return Survey([one.lengths[0] for one in found], found[0].columns, classes)


def _check(found: Found, where: str, columns: int) -> None:
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{where} has X of dtype {found.dtype}; real numbers are allowed")
    if len(set(found.lengths)) > 1:
        raise ValueError(f"{where} has arrays of different lengths: {found.lengths}")
    if not found.lengths[0]:
        raise ValueError(f"{where} is empty; drop it, or split the data anew")
    if not found.columns:
        raise ValueError("X has no columns; at least one is needed")
    if found.columns != columns:
        raise ValueError(f"{where} has {found.columns} columns, the first has {columns}")
    if found.bad is not None:
        array, row = found.bad
        raise ValueError(f"{where} has a value that is not finite: {array}, row {row}")


def _bad(arrays: Sequence[Any]) -> tuple[str, int] | None:
    for number, array in enumerate(arrays):
        row = _not_finite(array)
        if row is not None:
            return f"array {number + 1}", row
    return None


def _not_finite(array: Any) -> int | None:
    """Return the first row with a value that is not finite, or None."""
    if array.dtype.kind != "f":
        return None
    if is_sparse(array):
        entries = array.tocoo()
        rows = entries.row[~np.isfinite(entries.data)]
        return int(rows.min()) if len(rows) else None
    if np.isfinite(array).all():
        return None
    return int(np.argwhere(~np.isfinite(array))[0][0])


def is_sparse(array: Any) -> bool:
    """Return whether `array` is a SciPy sparse matrix or array."""
    return hasattr(array, "tocsr")
