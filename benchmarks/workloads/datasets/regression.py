"""Regression data as text: numbers with commas between them, one of which is the target."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from dask.delayed import delayed

from benchmarks.workloads.datasets.errors import decompressed
from benchmarks.workloads.datasets.lines import (
    Paths,
    check_finite,
    check_plain,
    columns_of,
    file_names,
    parse,
    ranges,
    shown,
    wrong_number,
)

__all__ = ["read_csv_regression", "read_year_prediction"]


def read_year_prediction(
    paths: Paths = "YearPredictionMSD.txt",
    *,
    blocksize: str | int = "64MiB",
    dtype: Any = "float64",
) -> tuple[Any, Any]:
    """Read YearPredictionMSD: the year, then 90 features of timbre. See `read_csv_regression`.

    Its authors ask to train on the first 463,715 rows and to test on the other 51,630.
    """
    return read_csv_regression(paths, 90, blocksize=blocksize, dtype=dtype)


def read_csv_regression(
    paths: Paths,
    n_features: int | None = None,
    *,
    target: int = 0,
    blocksize: str | int = "64MiB",
    dtype: Any = "float64",
) -> tuple[Any, Any]:
    """Files of numbers without a header, as lazy dask arrays.

    Parameters
    ----------
    paths : path or list of paths
        Files, or patterns with ``*``; local or URLs. One that is compressed (.gz, .bz2, .xz) is one
        partition.
    n_features : int, optional
        Columns besides the target; by default as many as the first line has.
    target : int
        Column of the target, from 0; negative ones count from the end.
    blocksize : str or int
        Bytes of text in a partition, more than the longest line has.
    dtype : dtype
        Of the values.

    Returns
    -------
    X : dask array, (n_rows, n_features)
        Persist it together with `y`: a partition of both is parsed once then. The number of rows
        is not known before ``compute_chunk_sizes()``.
    y : dask array, (n_rows,)
        Targets.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file; it is empty; a parameter is out of range.
    DataFileError
        When computed: a line is malformed. File and number of the line are in the message.
    """
    where = ranges(paths, blocksize)
    columns = _columns_of_first(file_names(paths)[0]) if n_features is None else n_features + 1
    if columns < 2 or not -columns <= target < columns:
        raise ValueError(f"target {target} is not among {columns} columns, or is the only one")
    dtype = np.dtype(dtype)
    task = delayed(parse, pure=False)
    parsed = [task(one, _read, _explain, columns, target, str(dtype)) for one in where]
    X = columns_of(parsed, 0, columns - 1, np.empty((0, 0), dtype))
    return X, columns_of(parsed, 1, None, np.empty(0, dtype))


def _columns_of_first(path: str) -> int:
    with decompressed(path) as file:
        return int(file.readline().count(b",")) + 1


def _read(text: bytes, columns: int, target: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    if not text.strip():
        return np.empty((0, columns - 1), dtype), np.empty(0, dtype)
    check_plain(text)
    table = np.loadtxt(BytesIO(text), delimiter=",", dtype=dtype, comments=None, ndmin=2)
    if table.shape[1] != columns:
        raise ValueError(f"{table.shape[1]} columns")
    check_finite(table)
    return np.delete(table, target, axis=1), table[:, target].copy()


def _explain(line: bytes, columns: int, target: int, dtype: str) -> str | None:
    """Return what is wrong with a line."""
    values = [value.strip(b" \t\r") for value in line.split(b",")]
    if len(values) != columns:
        return f"{len(values)} values, not {columns}"
    for column, value in enumerate(values):
        if wrong := wrong_number(value, dtype):
            return f"{shown(value)} in column {column + 1} is {wrong}"
    return None
