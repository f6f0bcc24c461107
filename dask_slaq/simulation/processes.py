"""Processes for runs of a simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from dask_slaq.core.policies import Policy, add_policy, added_policies


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Make an executor with some `processes`, which end with this one.

    Processes are spawned: a fork of a program with threads, such as Dask's, may hang.
    """
    return ProcessPoolExecutor(processes, get_context("spawn"), _begin, (added_policies(),))


def run_all(
    function: Callable[..., Any], every: Sequence[tuple[Any, ...]], processes: int
) -> list[Any]:
    """Return what a `function` of module level returns for `every` tuple of arguments, in order.

    With more than one of the `processes`, calls run at once, in processes of their own.
    """
    if processes == 1:
        return [function(*given) for given in every]
    with process_pool(processes) as pool:
        due = [pool.submit(function, *given) for given in every]
        return [future.result() for future in due]


def _begin(policies: Mapping[str, Callable[[], Policy]]) -> None:
    """Exit this process when its parent ends, even if the parent is killed."""
    for name, make in policies.items():
        add_policy(name, make)
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()
