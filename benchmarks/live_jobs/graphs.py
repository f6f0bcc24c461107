"""Graphs of an emulated job: its partitions, and the tasks of an iteration with a tree of sums.

The real and the virtual driver send the same graphs; only the functions in them differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask import delayed
from dask.base import tokenize
from distributed import Client

__all__ = ["Compute", "iteration", "load"]

#: Sums in the tree take this many inputs.
FAN_IN = 8


@dataclass(frozen=True)
class Compute:
    """Functions of the tasks, or coroutine functions.

    Attributes
    ----------
    partition : callable
        Makes a partition of the given number of bytes.
    gradient : callable
        Computes for the given seconds on a partition.
    total : callable
        Adds up a list of what partitions gave.
    """

    partition: Callable[[int], Any]
    gradient: Callable[[Any, float], Any]
    total: Callable[[list[Any]], Any]


def load(
    client: Client, compute: Compute, name: str, partitions: int, partition_bytes: int
) -> list[Any]:
    """Send the tasks that make the partitions of the job `name`. Returns their futures."""
    token = tokenize(name)
    return [
        client.submit(compute.partition, partition_bytes, key=f"partition-{token}-{p}", pure=False)
        for p in range(partitions)
    ]


def iteration(
    compute: Compute, name: str, number: int, data: list[Any], seconds: np.ndarray
) -> Any:
    """Make the graph of one iteration, whose keys are the job's and the iteration's own.

    Parameters
    ----------
    compute : Compute
    name : str
        Of the job.
    number : int
        Of the iteration.
    data : list of Future
    seconds : (n_partitions,) array

    Returns
    -------
    Delayed
        The sum over all partitions.
    """
    parts = [
        _task(compute.gradient, "gradient", name, number, p)(chunk, float(seconds[p]))
        for p, chunk in enumerate(data)
    ]
    level = 0
    while len(parts) > 1:
        level += 1
        groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        parts = [
            _task(compute.total, "total", name, number, level, i)(group)
            for i, group in enumerate(groups)
        ]
    return parts[0]


def _task(function: Any, prefix: str, *identity: Any) -> Any:
    def call(*args: Any) -> Any:
        return delayed(function, pure=False)(
            *args, dask_key_name=f"{prefix}-{tokenize(prefix, *identity)}"
        )

    return call
