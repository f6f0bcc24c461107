"""Graphs of emulated jobs: the partitions, and the tasks of an iteration with a tree of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask import delayed
from dask.base import tokenize
from distributed import Client

#: Maximum inputs of a sum in the tree.
FAN_IN = 8
#: Bytes of a partition.
PARTITION_BYTES = 2**20


@dataclass(frozen=True)
class Compute:
    """Coroutine functions of the tasks.

    `partition` makes a partition of some bytes, `gradient` computes on a partition for some
    seconds, and `total` sums a list of gradients or sums.
    """

    partition: Callable[[int], Any]
    gradient: Callable[[Any, float], Any]
    total: Callable[[list[Any]], Any]


def load(client: Client, compute: Compute, name: str, partitions: int) -> list[Any]:
    """Submit the tasks that make a job's partitions. Returns their futures."""
    token = tokenize(name)
    return [
        client.submit(compute.partition, PARTITION_BYTES, key=f"partition-{token}-{p}", pure=False)
        for p in range(partitions)
    ]


def iteration(
    compute: Compute, name: str, number: int, data: list[Any], seconds: np.ndarray
) -> Any:
    """Make the graph of one iteration, a sum over all partitions.

    `seconds`, (n_partitions,), is the compute of each gradient task. Keys are unique per job and
    iteration.
    """
    parts = [
        _task(compute.gradient, "gradient", name, number, p)(chunk, float(seconds[p]))
        for p, chunk in enumerate(data)
    ]
    return _tree(compute, name, number, parts)


def batch(compute: Compute, name: str, shape: str, seconds: np.ndarray) -> list[Any]:
    """Make the graph of a job without iterations, from `seconds`, (n_steps, n_tasks).

    "map" is independent tasks, "reduction" sums their results by a tree, and "chains" are chains of
    tasks.
    """
    if shape == "chains":
        ends: list[Any] = [0] * seconds.shape[1]
        for k, row in enumerate(seconds):
            ends = [
                _task(compute.gradient, "link", name, k, i)(end, float(row[i]))
                for i, end in enumerate(ends)
            ]
        return ends
    parts = [
        _task(compute.gradient, "part", name, i)(0, float(each))
        for i, each in enumerate(seconds.ravel())
    ]
    return parts if shape == "map" else [_tree(compute, name, 0, parts)]


def _tree(compute: Compute, name: str, number: int, parts: list[Any]) -> Any:
    """Sum `parts` by a tree of tasks."""
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
