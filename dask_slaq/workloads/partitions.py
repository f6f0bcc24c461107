"""Rows of a data set as one task a partition, and sums over them in a fixed order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import Delayed, delayed

__all__ = ["Partitions", "Survey"]

#: Partial sums that one task adds up.
FAN_IN = 8
#: Arguments of more bytes are sent to the scheduler once, not with the task of each partition.
SHARED = 65_536


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


class Partitions:
    """Arrays that are split alike by rows: one task a partition for whatever is done with them.

    An iteration is one graph: a task for each partition, and a tree of sums whose shape and order
    depend on nothing but the number of partitions. So the result is the same, bit for bit,
    wherever the tasks run; a job's worker set may change from one iteration to the next.

    Parameters
    ----------
    *arrays : dask array or array_like, (n_rows, ...)
        At least one; persist them first if they are to be read once only.

    Raises
    ------
    TypeError
        A DataFrame: its partitions have no known lengths.
    ValueError
        The first is not two-dimensional, or lengths or partitions differ.
    """

    def __init__(self, *arrays: Any) -> None:
        blocks = [_row_blocks(array, f"array {i + 1}") for i, array in enumerate(arrays)]
        first = arrays[0] if hasattr(arrays[0], "ndim") else np.asarray(arrays[0])
        if first.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, rows and columns, not {first.ndim}")
        for i, other in enumerate(blocks[1:]):
            if len(other) != len(blocks[0]):
                raise ValueError(
                    f"X has {len(blocks[0])} partitions and array {i + 2} has {len(other)}; "
                    "they must be split alike by rows"
                )
        self._parts: list[tuple[Any, ...]] = list(zip(*blocks, strict=True))

    def __len__(self) -> int:
        """Partitions."""
        return len(self._parts)

    def map(
        self, function: Callable[..., Any], *arguments: Any, state: Sequence[Any] | None = None
    ) -> list[Delayed]:
        """Tasks ``function(*arrays, [state,] *arguments)``, one a partition.

        Parameters
        ----------
        function : callable
            Importable where the workers are. Its name is the name of the tasks.
        *arguments
            The same for all partitions.
        state : sequence, optional
            One more argument, with a value for each partition: what an earlier `map` returned.
        """
        call = delayed(function, pure=False)
        common = [_shared(argument) for argument in arguments]
        states = [()] * len(self) if state is None else [(one,) for one in state]
        return [call(*part, *own, *common) for part, own in zip(self._parts, states, strict=True)]

    def sum(
        self, function: Callable[..., Any], *arguments: Any, state: Sequence[Any] | None = None
    ) -> tuple[Any, ...]:
        """The sums over partitions of the numbers and arrays in the tuples that `function` returns.

        Parameters are those of `map`.
        """
        (total,) = dask.compute(tree_sum(self.map(function, *arguments, state=state)))
        result: tuple[Any, ...] = total
        return result

    def survey(self, *, labels: bool = False) -> Survey:
        """Look through the data once, before anything is trained on it.

        Parameters
        ----------
        labels : bool
            Whether to collect the distinct values of the second array.

        Raises
        ------
        ValueError
            A partition is empty, has other columns or other lengths than the rest, or holds a
            value that is not finite; with `labels`, fewer than two classes.
        """
        found = dask.compute(*self.map(_look, labels))
        columns = found[0][1]
        for number, (lengths, width, bad, _) in enumerate(found):
            where = f"partition {number} of {len(self)}"
            if len(set(lengths)) > 1:
                raise ValueError(f"{where} has arrays of different lengths: {lengths}")
            if not lengths[0]:
                raise ValueError(f"{where} is empty; drop it, or split the data anew")
            if width != columns:
                raise ValueError(f"{where} has {width} columns, the first has {columns}")
            if bad is not None:
                array, row = bad
                raise ValueError(f"{where} has a value that is not finite: {array}, row {row}")
        classes = None
        if labels:
            classes = np.unique(np.concatenate([some for *_, some in found]))
            if len(classes) < 2:
                raise ValueError(f"y has one class only, {classes[0]!r}; at least two are needed")
        return Survey([lengths[0] for lengths, *_ in found], columns, classes)


def tree_sum(parts: Sequence[Any]) -> Any:
    """One task for the sum of the tuples that `parts` are, always in the same order."""
    if len(parts) == 1:
        return parts[0]
    add = delayed(_add, pure=False)
    parts = [add(list(parts[i : i + FAN_IN])) for i in range(0, len(parts), FAN_IN)]
    return tree_sum(parts)


def _add(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(reduce(operator.add, terms) for terms in zip(*parts, strict=True))


def _shared(argument: Any) -> Any:
    large = getattr(argument, "nbytes", 0) > SHARED
    return delayed(argument, pure=False, traverse=False) if large else argument


def _row_blocks(array: Any, name: str) -> list[Any]:
    """The blocks of `array`, each with all columns: delayed values, or the array itself."""
    if hasattr(array, "dask") and hasattr(array, "partitions") and not hasattr(array, "chunks"):
        raise TypeError(f"{name} is a DataFrame; use .to_dask_array(lengths=True)")
    if not hasattr(array, "to_delayed"):
        return [delayed(np.asarray(array), pure=False, traverse=False)]
    if array.ndim > 1 and array.numblocks[1] > 1:
        array = array.rechunk({1: -1})
    return list(array.to_delayed().ravel())


def _look(*args: Any) -> tuple[list[int], int, tuple[str, int] | None, np.ndarray | None]:
    """Lengths, columns, the first value that is not finite, and labels of one partition."""
    *arrays, labels = args
    bad = None
    for number, array in enumerate(arrays):
        values = np.asarray(getattr(array, "data", array)) if _sparse(array) else array
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            rows = np.argwhere(~np.isfinite(values))[0]
            bad = f"array {number + 1}", int(rows[0])
            break
    lengths = [int(array.shape[0]) for array in arrays]
    return lengths, int(arrays[0].shape[1]), bad, np.unique(arrays[1]) if labels else None


def _sparse(array: Any) -> bool:
    return hasattr(array, "tocsr")
