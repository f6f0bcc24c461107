"""LIBSVM (SVMlight) files: ``label index:value index:value ...`` in each line."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np
import scipy.sparse
from dask.delayed import delayed
from sklearn.datasets import load_svmlight_file

from benchmarks.workloads.datasets.lines import (
    Paths,
    check_finite,
    check_plain,
    columns_of,
    parse,
    ranges,
    shown,
    wrong_number,
)

__all__ = ["read_svmlight"]

#: Comments, and the number of a query.
IGNORED = re.compile(rb"#[^\n]*|(?<=[ \t])qid:\d+")


def read_svmlight(
    paths: Paths,
    n_features: int,
    *,
    blocksize: str | int = "64MiB",
    dtype: Any = "float64",
    dense: bool = False,
    zero_based: bool = False,
) -> tuple[Any, Any]:
    """LIBSVM files, such as Epsilon, as lazy dask arrays.

    Parameters
    ----------
    paths : path or list of paths
        Files, or patterns with ``*``; local or URLs. One that is compressed (.gz, .bz2, .xz) is one
        partition.
    n_features : int
        Columns; a part of a file does not show how many there are.
    blocksize : str or int
        Bytes of text in a partition, more than the longest line has.
    dtype : dtype
        Of the values, ``float32`` or ``float64``.
    dense : bool
        Dense blocks instead of `scipy.sparse.csr_matrix`.
    zero_based : bool
        Whether the first column has index 0; in LIBSVM files it has 1.

    Returns
    -------
    X : dask array, (n_rows, n_features)
        Persist it together with `y`: a partition of both is parsed once then. The number of rows
        is not known before ``compute_chunk_sizes()``.
    y : dask array of float64, (n_rows,)
        Labels.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file; it is empty; a parameter is out of range.
    DataFileError
        When computed: a line is malformed. File and number of the line are in the message.
    """
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, not {n_features}")
    dtype = np.dtype(dtype)
    read = _read_dense if dense else _read
    arguments = n_features, str(dtype), zero_based
    task = delayed(parse, pure=False)
    parsed = [task(where, read, _explain, *arguments) for where in ranges(paths, blocksize)]
    meta = np.empty((0, 0), dtype) if dense else scipy.sparse.csr_matrix((0, 0), dtype=dtype)
    return columns_of(parsed, 0, n_features, meta), columns_of(parsed, 1, None, np.empty(0))


def _read(text: bytes, n_features: int, dtype: str, zero_based: bool) -> tuple[Any, np.ndarray]:
    # Comments and query numbers may hold anything, and are left out.
    check_plain(IGNORED.sub(b"", text) if b"#" in text or b"qid" in text else text)
    X, y = load_svmlight_file(
        BytesIO(text), n_features=n_features, dtype=np.dtype(dtype), zero_based=zero_based
    )
    check_finite(X.data, y)
    return X, y


def _read_dense(text: bytes, *arguments: Any) -> tuple[np.ndarray, np.ndarray]:
    X, y = _read(text, *arguments)
    return X.toarray(), y


def _explain(line: bytes, n_features: int, dtype: str, zero_based: bool) -> str | None:
    """Return what is wrong with a line."""
    label, *pairs = re.split(rb"[ \t\r]+", IGNORED.sub(b"", line).strip(b" \t\r"))
    if wrong := wrong_number(label):
        return f"the label is {shown(label)}, {wrong}"
    before, first = -1, 0 if zero_based else 1
    for pair in filter(None, pairs):
        index, colon, value = pair.partition(b":")
        wrong = wrong_number(value, dtype)
        if not (colon and index.isdigit()) or wrong == "not a number":
            return f"{shown(pair)} is not INDEX:VALUE"
        if wrong:
            return f"the value of {shown(pair)} is {wrong}"
        if len(index) > 18 or not first <= int(index) < first + n_features:
            what = shown(index)[1:-1]
            return f"index {what} is not from {first} to {first + n_features - 1}"
        if int(index) <= before:
            return f"index {int(index)} comes after {before}; indices must rise"
        before = int(index)
    return None
