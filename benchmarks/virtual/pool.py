"""Process pool for virtual runs: a run gives the same result in every process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from benchmarks.virtual import latency

T = TypeVar("T")

#: Hashes order sets of strings, and threads of a linear-algebra library order its sums.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def pool(processes: int | None = None) -> ProcessPoolExecutor:
    """Make an executor for functions that call `run`, with one process per core by default.

    Its processes are fresh interpreters with ``PYTHONHASHSEED=0`` and one thread for linear
    algebra, so that results depend neither on the calling process nor on which process runs what.
    Functions and arguments are pickled, so functions must be defined at the top of a module.
    """
    return ProcessPoolExecutor(
        processes or os.cpu_count() or 1,
        mp_context=_Context(),
        initializer=latency.set_latency,
        initargs=(latency.current(),),
    )


def run_all(
    function: Callable[..., T], plan: Sequence[tuple[Any, ...]], processes: int | None = None
) -> Iterator[tuple[tuple[Any, ...], T]]:
    """Call a function with all tuples of a plan in a `pool`. Yields each with what it returns."""
    with pool(processes) as executor:
        yield from zip(plan, executor.map(function, *zip(*plan, strict=True)), strict=True)


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
    """Set `ENVIRONMENT` while a process starts: hashes are seeded before Python code runs."""
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
