"""Blockwise application of fitted models: lazy for dask arrays, immediate for other arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dask import array as da
from dask.delayed import delayed

from benchmarks.workloads.elastic.validation import is_sparse

__all__ = ["as_blocks", "as_dask", "check_columns", "dense", "map_rows"]


def as_blocks(X: Any) -> Any:
    """Wrap a scipy.sparse matrix as a dask array of one block. Return anything else unchanged."""
    if not is_sparse(X):
        return X
    whole = delayed(X.tocsr(), pure=False, traverse=False)
    return da.from_delayed(whole, X.shape, X.dtype, meta=np.empty((0, 0), X.dtype))


def as_dask(array: Any, name: str, ndim: int) -> Any:
    """Convert an array to a dask array of one block, and check its dimensions.

    Dask collections are returned unchanged. `Partitions` rejects DataFrames later.

    Parameters
    ----------
    array : dask array, array_like or scipy.sparse matrix
    name : str
        Name of the array in error messages.
    ndim : int
        Required number of dimensions.

    Raises
    ------
    ValueError
        If the array does not have `ndim` dimensions.
    """
    array = as_blocks(array)
    if not hasattr(array, "dask"):
        array = da.from_array(np.asarray(array), chunks=-1)
    if getattr(array, "ndim", ndim) != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, not {array.ndim}")
    return array


def dense(X: Any) -> np.ndarray:
    """Convert a block of rows, dense or sparse, to a dense array of floats.

    Raises
    ------
    ValueError
        If a value is not finite.
    """
    values = np.asarray(X.toarray() if is_sparse(X) else X)
    values = values if values.dtype.kind == "f" else values.astype(float)
    if not np.isfinite(values).all():
        raise ValueError("X has a value that is not finite")
    return values


def check_columns(columns: int, fitted: int) -> None:
    """Raise ValueError if the numbers of columns in the data and in the fitted model differ.

    Parameters
    ----------
    columns : int
        Number of columns in the data.
    fitted : int
        Number of columns that the model was fitted with.
    """
    if columns != fitted:
        raise ValueError(f"X has {columns} columns, the model was fitted with {fitted}")


def map_rows(
    function: Callable[..., np.ndarray],
    X: Any,
    *model: Any,
    n_features: int,
    columns: int | None = None,
    dtype: Any = float,
) -> Any:
    """Apply ``function(X, *model)`` to each block of rows.

    Parameters
    ----------
    function : callable
        Function that workers can import. It returns one row or one number per row of `X`.
    X : dask array or array_like, (n_rows, n_features)
        Input data. Blocks may be sparse.
    *model
        Further arguments of the function. They are sent once, not once per block.
    n_features : int
        Number of features that the model was fitted with.
    columns : int, optional
        Number of columns of the result. By default, the result is one-dimensional.
    dtype : dtype
        Data type of the result.

    Returns
    -------
    dask array or array, (n_rows,) or (n_rows, columns)
        Lazy if `X` is.

    Raises
    ------
    ValueError
        If `X` is not two-dimensional or does not have `n_features` columns.
    """
    X = X if hasattr(X, "ndim") else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must have 2 dimensions, rows and columns, not {X.ndim}")
    check_columns(X.shape[1], n_features)
    if not hasattr(X, "map_blocks"):
        return function(X, *model)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if columns is None else {"chunks": (X.chunks[0], (columns,))}
    meta = np.empty((0,) * (1 if columns is None else 2), dtype=dtype)
    sent = delayed(model, pure=False, traverse=False)
    return X.map_blocks(_apply, function, sent, dtype=meta.dtype, meta=meta, **shape)


def _apply(X: Any, function: Callable[..., np.ndarray], model: tuple[Any, ...]) -> np.ndarray:
    return function(X, *model)
