"""What is looked for in a data set before anything is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Found", "Survey", "is_sparse", "look", "surveyed"]


class Survey(NamedTuple):
    """What one pass over the data found.

    Attributes
    ----------
    rows : list of int
        Rows of each partition, each at least 1.
    columns : int
        Of the first array.
    labels : array or None
        Distinct values of the second array, sorted, if they were asked for.
    """

    rows: list[int]
    columns: int
    labels: np.ndarray | None

    @property
    def n(self) -> int:
        """Rows in all."""
        return sum(self.rows)


class Found(NamedTuple):
    """What is in one partition: lengths of the arrays; columns and dtype of the first; array and
    row of the first value that is not finite; distinct values of the second array."""

    lengths: list[int]
    columns: int
    dtype: np.dtype[Any]
    bad: tuple[str, int] | None
    labels: np.ndarray | None


def look(*args: Any) -> Found:
    """Look at one partition; the last argument is whether to collect labels."""
    *arrays, labels = args
    x = arrays[0]
    lengths = [int(array.shape[0]) for array in arrays]
    distinct = np.unique(arrays[1]) if labels else None
    return Found(lengths, int(x.shape[1]), x.dtype, _bad(arrays), distinct)


def surveyed(found: Sequence[Found]) -> Survey:
    """What all partitions have together.

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
    """The first row with a value that is not finite."""
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
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return hasattr(array, "tocsr")
