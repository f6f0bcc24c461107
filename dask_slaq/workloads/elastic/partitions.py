"""Rows of a data set as one task a partition, and sums over them in a fixed order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import dask
import numpy as np
import scipy.sparse
from dask.delayed import Delayed, delayed

from dask_slaq.workloads.elastic.validation import Survey, is_sparse, look, surveyed

__all__ = ["Partitions", "Survey", "contiguous", "tree_sum"]

#: Partial sums that one task adds up.
FAN_IN = 8
#: Arguments of more bytes are sent to the scheduler once, not with the task of each partition.
SHARED = 65_536


class Partitions:
    """Arrays that are split alike by rows: one task a partition for whatever is done with them.

    An iteration is one graph: a task for each partition, and a tree of sums whose shape and order
    depend on nothing but the number of partitions. So the result is the same, bit for bit,
    wherever the tasks run; a job's worker set may change from one iteration to the next.

    Parameters
    ----------
    *arrays : dask array or array_like, (n_rows, ...)
        At least one, the first is X. Persist dask arrays first if they are to be read once only.
        An array in memory is one partition; the first may be a SciPy sparse matrix, and so may
        the blocks of a dask array.

    Raises
    ------
    TypeError
        A DataFrame: its partitions have no known lengths.
    ValueError
        The first is not two-dimensional, or lengths or partitions differ.
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
        """Partitions."""
        return len(self._parts)

    def of(self, chosen: Sequence[int]) -> Partitions:
        """Some of the partitions alone, by number."""
        return self._like([self._parts[i] for i in chosen])

    def _like(self, parts: list[tuple[Any, ...]]) -> Partitions:
        other = object.__new__(type(self))
        other._parts = parts
        return other

    def map(
        self, function: Callable[..., Any], *arguments: Any, state: Sequence[Any] | None = None
    ) -> list[Delayed]:
        """Tasks ``function(*arrays, [state,] *arguments)``, one a partition.

        Parameters
        ----------
        function : callable
            Importable where the workers are. Its name is the name of the tasks. Arrays that it is
            called with are `contiguous`.
        *arguments
            The same for all partitions.
        state : sequence, optional
            One more argument, with a value for each partition: what an earlier `map` returned.
        """
        call = delayed(_OnContiguous(function), pure=False)
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

    def transform(self, function: Callable[..., Any], *arguments: Any) -> Partitions:
        """The same partitions with ``function(X, *arguments)`` in place of the first array.

        It is computed once and then held by the workers, for as long as the result lives.
        """
        call = delayed(_OnContiguous(function), pure=False)
        common = [_shared(argument) for argument in arguments]
        made = dask.persist(*[call(part[0], *common) for part in self._parts])
        return self._like([(one, *part[1:]) for one, part in zip(made, self._parts, strict=True)])

    def sample(self, rows: Sequence[int], size: int, random: np.random.RandomState) -> Any:
        """Rows of the first array, drawn without replacement, in the order of the data.

        Parameters
        ----------
        rows : sequence of int
            Rows of each partition, as a survey counts them.
        size : int
            Rows to draw, at most; all if there are fewer.
        random : numpy.random.RandomState

        Returns
        -------
        array or sparse matrix, (n_drawn, n_columns)
        """
        n = sum(rows)
        return self.take(rows, np.sort(random.choice(n, min(size, n), replace=False)))

    def take(self, rows: Sequence[int], drawn: np.ndarray) -> Any:
        """Some rows of the first array; only the partitions that have any are looked at.

        Parameters
        ----------
        rows : sequence of int
            Rows of each partition, as a survey counts them.
        drawn : (n_drawn,) array of int
            Their numbers in the whole, in order.

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
        """Look through the data once, before anything is trained on it.

        Parameters
        ----------
        labels : bool
            Whether to collect the distinct values of the second array.

        Raises
        ------
        ValueError
            A partition is empty, has other columns or other lengths than the rest, or holds a
            value that is not finite or, in X, no number; with `labels`, fewer than two classes.
        """
        return surveyed(dask.compute(*self.map(look, labels)))


def tree_sum(parts: Sequence[Any]) -> Any:
    """One task for the sum of the tuples that `parts` are, always in the same order."""
    if len(parts) == 1:
        return parts[0]
    add = delayed(_add, pure=False)
    parts = [add(list(parts[i : i + FAN_IN])) for i in range(0, len(parts), FAN_IN)]
    return tree_sum(parts)


def contiguous(x: Any) -> Any:
    """An array as BLAS adds it up alike wherever it was sent; anything else as it is.

    A strided view becomes contiguous when it moves to another worker, and what arrives there may
    lie at an odd address, which NumPy copies, in an order of its own, before each product. Both
    change the order of sums. Contiguous arrays keep their order, C or Fortran.
    """
    if not isinstance(x, np.ndarray) or (x.flags.forc and x.flags.aligned):
        return x
    return x.copy(order="K" if x.flags.forc else "C")


class _OnContiguous:
    """A function called with the arrays among its arguments contiguous, under its own name."""

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
    """The blocks of `array`, each with all columns: delayed values, or the array itself."""
    if hasattr(array, "dask") and hasattr(array, "partitions") and not hasattr(array, "chunks"):
        raise TypeError(f"{name} is a DataFrame; use .to_dask_array(lengths=True)")
    if not hasattr(array, "to_delayed"):
        whole = array.tocsr() if is_sparse(array) else np.asarray(array)
        # Persisted: it goes to the workers once, not with every iteration.
        return list(dask.persist(delayed(whole, pure=False, traverse=False)))
    if array.ndim > 1 and array.numblocks[1] > 1:
        array = array.rechunk({1: -1})
    blocks = list(array.to_delayed().ravel())
    if blocks and blocks[0].key not in blocks[0].dask:
        # Optimizing drops what is persisted already, for which dask 2025.1.0 takes keys for values.
        blocks = list(array.to_delayed(optimize_graph=False).ravel())
    return blocks
