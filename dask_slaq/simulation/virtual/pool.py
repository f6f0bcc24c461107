"""Processes for virtual runs: each run gives the same result in any of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

__all__ = ["pool"]

#: Sets of strings are ordered by their hashes, and sums of a linear-algebra library by its threads.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def pool(processes: int | None = None) -> ProcessPoolExecutor:
    """Make an executor for functions that call `run`.

    Its processes are fresh interpreters with ``PYTHONHASHSEED=0`` and one thread for linear
    algebra, so that results depend neither on this process nor on which of them computes what.
    They start when there is something to do.

    Parameters
    ----------
    processes : int, optional
        How many at most; one per core by default.

    Returns
    -------
    concurrent.futures.ProcessPoolExecutor
        Functions and arguments are pickled: functions are those of a module.
    """
    return ProcessPoolExecutor(processes or os.cpu_count() or 1, mp_context=_Context())


class _Process(SpawnProcess):
    """A fresh interpreter with `ENVIRONMENT`."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _environment():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process  # type: ignore[assignment]


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """`ENVIRONMENT` for processes that start now; hashes are seeded before Python code runs."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
