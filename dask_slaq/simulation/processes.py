"""Processes for runs of a simulation, which count together."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from dask_slaq.core.policies import Policy, add_policy, added_policies

#: Seconds between two looks at how many jobs have ended in other processes.
LOOK = 0.25

_counter: Any = None


def process_pool(processes: int, counter: Any = None) -> ProcessPoolExecutor:
    """Make an executor with some `processes`, which end with this one and share a `counter`.

    Processes are spawned: a fork of a program with threads, such as Dask's, may hang.
    """
    given = (counter, added_policies())
    return ProcessPoolExecutor(processes, get_context("spawn"), _begin, given)


def run_all(
    function: Callable[..., Any],
    every: Sequence[tuple[Any, ...]],
    progress: Callable[[int], object] | None,
    processes: int,
) -> list[Any]:
    """Return what a `function` of module level returns for `every` tuple of arguments, in order.

    It is called with these, and as ``progress`` with what to call with the number of jobs that have
    just ended. With more than one of the `processes`, calls run at once, in processes of their own.
    """
    if processes == 1:
        return [function(*given, progress=progress) for given in every]
    ended, told = _counter_of_all(), 0
    with process_pool(processes, ended) as pool:
        due = [pool.submit(function, *given, progress=_count) for given in every]
        running: Collection[Any] = due
        while running:
            _, running = wait(running, LOOK)
            if progress is not None:
                now = ended.value
                progress(now - told)
                told = now
        return [future.result() for future in due]


def _counter_of_all() -> Any:
    """Return a number that the processes of a pool share."""
    return get_context("spawn").Value("q")


def _count(more: int) -> None:
    """Add to the counter of the pool that this process belongs to."""
    if more:
        with _counter.get_lock():
            _counter.value += more


def _begin(counter: Any, policies: Mapping[str, Callable[[], Policy]]) -> None:
    """Exit this process when its parent ends, even if the parent is killed."""
    global _counter
    _counter = counter
    for name, make in policies.items():
        add_policy(name, make)
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()
