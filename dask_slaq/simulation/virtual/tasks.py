"""Emulated tasks: they hold a thread of a worker for a given virtual time."""

from __future__ import annotations

import asyncio
from typing import Any


class Sized:
    """A value that Dask takes for as large as it says.

    Parameters
    ----------
    value : object
    nbytes : int
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
    """Compute for some virtual seconds, as a task.

    Parameters
    ----------
    inputs : object
        Results of other tasks; not looked at.
    seconds : float
        Virtual time for which the task holds its thread.
    nbytes : int
        Size of the result, 0 for that of `result` itself.
    result : object
    """
    await asyncio.sleep(seconds)
    return Sized(result, nbytes) if nbytes else result
