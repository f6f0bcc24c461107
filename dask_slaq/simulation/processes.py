"""Processes for runs of a simulation."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread

__all__ = ["process_pool"]


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Make an executor whose processes end with this one.

    Processes are spawned: a fork of a program with threads, such as Dask's, may hang.
    """
    return ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    """Exit this process when its parent ends, even if the parent is killed."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()
