"""Emulated tasks, which occupy a worker thread for a given virtual time."""

from __future__ import annotations

import asyncio
from typing import Any


class Sized:
    """Value for which `dask.sizeof` returns a given number of bytes."""

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
    """Emulate a task that occupies its thread for some virtual seconds, and returns `result`.

    The values of `inputs`, which are dependencies, are ignored. If `nbytes` is positive, the result
    is a `Sized` of as many bytes.
    """
    await asyncio.sleep(seconds)
    return Sized(result, nbytes) if nbytes else result
