"""Processes for runs of a simulation, which count together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from dask_slaq.core.policies import Policy, add_policy, added_policies

_counter: Any = None


def process_pool(processes: int, counter: Any = None) -> ProcessPoolExecutor:
    """Make an executor with some `processes`, which end with this one and share a `counter`.

    Processes are spawned: a fork of a program with threads, such as Dask's, may hang.
    """
    given = (counter, added_policies())
    return ProcessPoolExecutor(processes, get_context("spawn"), _begin, given)


def counter() -> Any:
    """Return a number that the processes of a pool share."""
    return get_context("spawn").Value("q")


def count(more: int) -> None:
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
