"""Row partitions of a data set, processed by one task each and summed in a fixed order."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed, delayed
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from dask_slaq.adapters.observing import describe_estimator, expect, publish

#: Number of partial sums that one task adds up.
FAN_IN = 8
#: Arguments of more bytes than this are sent to the scheduler once, not once per partition.
SHARED = 65_536


class Partitions:
    """Dask arrays that are split alike by rows, with operations that run one task per partition.

    An iteration is one graph: one task per partition, and a tree of sums whose shape and order
    depend only on the number of partitions. The result is therefore the same bit for bit, wherever
    the tasks run, and a job's worker set may change between iterations. Persist the arrays first;
    the first one is X, (n_rows, n_features), with all columns in each block.
    """

    def __init__(self, *arrays: Any) -> None:
        #: Number of rows in each partition.
        self.rows: tuple[int, ...] = arrays[0].chunks[0]
        self._parts: list[tuple[Any, ...]] = list(zip(*map(_blocks, arrays), strict=True))

    def map(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        state: Sequence[Any] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> list[Delayed]:
        """Create a task ``function(*arrays, [state,] *arguments)`` per partition, or per `chosen`.

        Workers can import `function`, whose name becomes that of the tasks. `state` is the result
        of an earlier `map`, with one value per partition.
        """
        call = delayed(_OnContiguous(function), pure=False)
        common = [_shared(argument) for argument in arguments]
        numbers = range(len(self._parts)) if chosen is None else chosen
        return [
            call(*self._parts[i], *(() if state is None else (state[i],)), *common) for i in numbers
        ]

    def sum(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, ...]:
        """Sum the tuples of numbers and arrays that `function` returns. See `map`."""
        (total,) = dask.compute(tree_sum(self.map(function, *arguments, **options)))
        result: tuple[Any, ...] = total
        return result

    def transform(self, function: Callable[..., Any], *arguments: Any) -> Partitions:
        """Replace X by ``function(X, *arguments)``, computed once and held by the workers."""
        call = delayed(_OnContiguous(function), pure=False)
        # Sent once, also where they are objects without a size.
        common = [delayed(argument, pure=False, traverse=False) for argument in arguments]
        made = dask.persist(*[call(part[0], *common) for part in self._parts])
        other = object.__new__(type(self))
        other.rows = self.rows
        other._parts = [(one, *part[1:]) for one, part in zip(made, self._parts, strict=True)]
        return other

    def labels(self) -> np.ndarray:
        """Return the distinct values of the second array, sorted."""
        return np.unique(np.concatenate(dask.compute(*self.map(_distinct))))

    def sample(self, size: int, random_state: Any) -> np.ndarray:
        """Draw rows of X without replacement, or all of them if there are no more than `size`.

        They keep their order, and do not depend on how the rows are split.
        """
        n = sum(self.rows)
        drawn = check_random_state(random_state).choice(n, min(size, n), replace=False)
        drawn.sort()
        starts = np.cumsum([0, *self.rows])
        cuts = np.searchsorted(drawn, starts)
        call = delayed(operator.getitem, pure=False)
        wanted = [
            call(part[0], drawn[cuts[i] : cuts[i + 1]] - starts[i])
            for i, part in enumerate(self._parts)
            if cuts[i] < cuts[i + 1]
        ]
        return np.concatenate(dask.compute(*wanted))


class Elastic(BaseEstimator):
    """Base class of the estimators: they report the initial loss, then one loss per iteration.

    Fitted estimators have the reported losses as `loss_curve_`, (n_iter_ + 1,).
    """

    def _begin(self, *arrays: Any) -> Partitions:
        self.loss_curve_: list[float] = []
        expect(self.max_iter)
        describe_estimator("dask_slaq", self, arrays[0])
        return Partitions(*arrays)

    def _record(self, loss: float) -> bool:
        """Publish the next loss. Returns False if training was stopped, but not at the start."""
        loss = float(loss)
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} after iteration {len(self.loss_curve_)}: "
                "scale the features, or take smaller steps"
            )
        self.loss_curve_.append(loss)
        return publish(loss) or len(self.loss_curve_) == 1


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
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        return self.function(*map(contiguous, args))


def _add(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(reduce(operator.add, terms) for terms in zip(*parts, strict=True))


def _distinct(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.unique(y)


def _shared(argument: Any) -> Any:
    large = getattr(argument, "nbytes", 0) > SHARED
    return delayed(argument, pure=False, traverse=False) if large else argument


def _blocks(array: Any) -> list[Any]:
    blocks = list(array.to_delayed().ravel())
    if blocks[0].key not in blocks[0].dask:
        # Optimization drops persisted blocks, so dask 2025.1.0 would take their keys for values.
        blocks = list(array.to_delayed(optimize_graph=False).ravel())
    return blocks
