"""Row partitions of a data set, processed by one task each and summed in a fixed order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import dask
import numpy as np
import scipy.sparse
from dask.delayed import Delayed, delayed

from benchmarks.workloads.elastic.validation import Survey, is_sparse, look, surveyed

__all__ = ["Partitions", "Survey", "contiguous", "tree_sum"]

#: Number of partial sums that one task adds up.
FAN_IN = 8
#: Arguments of more bytes than this are sent to the scheduler once, not once per partition.
SHARED = 65_536


class Partitions:
    """Arrays that are split alike by rows, with operations that run one task per partition.

    An iteration is one graph: one task per partition, and a tree of sums whose shape and order
    depend only on the number of partitions. The result is therefore the same bit for bit, wherever
    the tasks run, and a job's worker set may change between iterations.

    Parameters
    ----------
    *arrays : dask array or array_like, (n_rows, ...)
        One or more arrays; the first is X. Persist dask arrays first to load them only once. An
        array in memory is one partition. X, or its blocks, may be SciPy sparse matrices.

    Raises
    ------
    TypeError
        If an argument is a DataFrame, whose partitions have unknown lengths.
    ValueError
        If X is not two-dimensional, or the arrays have different numbers of partitions.
    """

    def __init__(self, *arrays: Any) -> None:
        blocks = [_row_blocks(array, f"array {i + 1}") for i, array in enumerate(arrays)]
        if np.ndim(arrays[0]) != 2:
            dimensions = np.ndim(arrays[0])
            raise ValueError(f"X must have 2 dimensions, rows and columns, not {dimensions}")
        for i, other in enumerate(blocks[1:]):
            if len(other) != len(blocks[0]):
                raise ValueError(
                    f"X has {len(blocks[0])} partitions and array {i + 2} has {len(other)}; "
                    "they must be split alike by rows"
                )
        self._parts: list[tuple[Any, ...]] = list(zip(*blocks, strict=True))

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._parts)

    def of(self, chosen: Sequence[int]) -> Partitions:
        """Return the partitions with the numbers `chosen`."""
        return self._like([self._parts[i] for i in chosen])

    def _like(self, parts: list[tuple[Any, ...]]) -> Partitions:
        other = object.__new__(type(self))
        other._parts = parts
        return other

    def map(
        self, function: Callable[..., Any], *arguments: Any, state: Sequence[Any] | None = None
    ) -> list[Delayed]:
        """Create a task ``function(*arrays, [state,] *arguments)`` for each partition.

        Parameters
        ----------
        function : callable
            Function that workers can import. Its name becomes the name of the tasks. All arrays
            passed to it are `contiguous`.
        *arguments
            Arguments shared by all partitions.
        state : sequence, optional
            An additional argument with one value per partition: the result of an earlier `map`.

        Returns
        -------
        list of Delayed
            One task per partition.
        """
        call = delayed(_OnContiguous(function), pure=False)
        common = [_shared(argument) for argument in arguments]
        states = [()] * len(self) if state is None else [(one,) for one in state]
        return [call(*part, *own, *common) for part, own in zip(self._parts, states, strict=True)]

    def sum(
        self, function: Callable[..., Any], *arguments: Any, state: Sequence[Any] | None = None
    ) -> tuple[Any, ...]:
        """Sum the tuples of numbers and arrays that `function` returns, item by item.

        See `map` for the parameters.

        Returns
        -------
        tuple
            Sums over all partitions.
        """
        (total,) = dask.compute(tree_sum(self.map(function, *arguments, state=state)))
        result: tuple[Any, ...] = total
        return result

    def transform(self, function: Callable[..., Any], *arguments: Any) -> Partitions:
        """Replace the first array, X, by ``function(X, *arguments)``.

        The new array is computed once. The workers hold it for as long as the result lives.

        Parameters
        ----------
        function : callable
            Function that workers can import.
        *arguments
            Arguments shared by all partitions.

        Returns
        -------
        Partitions
            The new partitions. This object does not change.
        """
        call = delayed(_OnContiguous(function), pure=False)
        common = [_shared(argument) for argument in arguments]
        made = dask.persist(*[call(part[0], *common) for part in self._parts])
        return self._like([(one, *part[1:]) for one, part in zip(made, self._parts, strict=True)])

    def sample(self, rows: Sequence[int], size: int, random: np.random.RandomState) -> Any:
        """Draw rows of the first array without replacement, in the order of the data.

        Parameters
        ----------
        rows : sequence of int
            Number of rows in each partition (`Survey.rows`).
        size : int
            Number of rows to draw. All rows are returned if there are fewer.
        random : numpy.random.RandomState
            Random number generator.

        Returns
        -------
        array or sparse matrix, (n_drawn, n_columns)
        """
        n = sum(rows)
        return self.take(rows, np.sort(random.choice(n, min(size, n), replace=False)))

    def take(self, rows: Sequence[int], drawn: np.ndarray) -> Any:
        """Return some rows of the first array. Only partitions that hold any of them are read.

        Parameters
        ----------
        rows : sequence of int
            Number of rows in each partition (`Survey.rows`).
        drawn : array of int, (n_drawn,)
            Indices of the rows in the whole array, ascending.

        Returns
        -------
        array or sparse matrix, (n_drawn, n_columns)
        """
        starts = np.cumsum([0, *rows])
        cuts = np.searchsorted(drawn, starts)
        call = delayed(_take, pure=False)
        wanted = [
            call(self._parts[i][0], drawn[cuts[i] : cuts[i + 1]] - starts[i])
            for i in range(len(self))
            if cuts[i] < cuts[i + 1]
        ]
        taken = dask.compute(*wanted)
        return scipy.sparse.vstack(taken, "csr") if is_sparse(taken[0]) else np.concatenate(taken)

    def survey(self, *, labels: bool = False) -> Survey:
        """Validate the data in one pass before training.

        Parameters
        ----------
        labels : bool
            Whether to collect the distinct values of the second array.

        Returns
        -------
        Survey
            Sizes of the partitions and the labels.

        Raises
        ------
        ValueError
            If a partition is empty, its number of columns differs from that of the first, its
            arrays differ in length, X is not numeric, or a value is not finite. With `labels`,
            also if there are fewer than two classes.
        """
        return surveyed(dask.compute(*self.map(look, labels)))


def tree_sum(parts: Sequence[Any]) -> Any:
    """Return a task that sums the tuples in `parts`, always in the same order."""
    if len(parts) == 1:
        return parts[0]
    add = delayed(_add, pure=False)
    parts = [add(list(parts[i : i + FAN_IN])) for i in range(0, len(parts), FAN_IN)]
    return tree_sum(parts)


def contiguous(x: Any) -> Any:
    """Return an array in contiguous and aligned memory, so that sums round alike on any worker.

    A strided view becomes contiguous when it moves to another worker. An array received from
    another worker may be unaligned, and NumPy copies it, in an order of its own, before each
    product. Both change the order of summation in BLAS. Contiguous, aligned arrays are returned
    unchanged, and contiguous ones keep their order, C or Fortran. Other objects are returned
    unchanged.
    """
    if not isinstance(x, np.ndarray) or (x.flags.forc and x.flags.aligned):
        return x
    return x.copy(order="K" if x.flags.forc else "C")


class _OnContiguous:
    """Wrapper that makes the array arguments of a function `contiguous`, and keeps its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any) -> Any:
        return self.function(*map(contiguous, args))


def _add(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(reduce(operator.add, terms) for terms in zip(*parts, strict=True))


def _take(x: Any, rows: np.ndarray) -> Any:
    return (x.tocsr() if is_sparse(x) else x)[rows]


def _shared(argument: Any) -> Any:
    large = not isinstance(argument, Delayed) and getattr(argument, "nbytes", 0) > SHARED
    return delayed(argument, pure=False, traverse=False) if large else argument


def _row_blocks(array: Any, name: str) -> list[Any]:
    """Return the blocks of `array`, each with all columns, as delayed values."""
    if hasattr(array, "dask") and hasattr(array, "partitions") and not hasattr(array, "chunks"):
        raise TypeError(f"{name} is a DataFrame; use .to_dask_array(lengths=True)")
    if not hasattr(array, "to_delayed"):
        whole = array.tocsr() if is_sparse(array) else np.asarray(array)
        # Persisted, so that it is sent to the workers once, not in every iteration.
        return list(dask.persist(delayed(whole, pure=False, traverse=False)))
    if array.ndim > 1 and array.numblocks[1] > 1:
        array = array.rechunk({1: -1})
    blocks = list(array.to_delayed().ravel())
    if blocks and blocks[0].key not in blocks[0].dask:
        # Optimization drops persisted blocks, so dask 2025.1.0 would take their keys for values.
        blocks = list(array.to_delayed(optimize_graph=False).ravel())
    return blocks
