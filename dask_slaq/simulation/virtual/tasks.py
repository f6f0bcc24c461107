"""Emulated tasks, which occupy a worker thread for a given virtual time."""

from __future__ import annotations

import asyncio
from typing import Any


class Sized:
    """Value that Dask takes to have a given size.

    Parameters
    ----------
    value : object
    nbytes : int
        Size in bytes that `dask.sizeof` returns.
    """

    def __init__(self, value: Any, nbytes: int) -> None:
        self.value = value
        self.nbytes = nbytes

    def __sizeof__(self) -> int:
        return self.nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sized) and (self.value, self.nbytes) == (other.value, other.nbytes)

    def __hash__(self) -> int:
        return hash((self.value, self.nbytes))

    def __repr__(self) -> str:
        return f"Sized({self.value!r}, {self.nbytes})"


async def work(*inputs: Any, seconds: float = 0.0, nbytes: int = 0, result: Any = None) -> Any:
    """Emulate a task that computes for some virtual seconds.

    Parameters
    ----------
    *inputs : object
        Results of other tasks; only dependencies, their values are ignored.
    seconds : float
        Virtual time for which the task occupies its thread.
    nbytes : int
        Size of the result in bytes; 0 for the real size of `result`.
    result : object
        Value to return.

    Returns
    -------
    object
        `result`, wrapped in `Sized` if `nbytes` is positive.
    """
    await asyncio.sleep(seconds)
    return Sized(result, nbytes) if nbytes else result
