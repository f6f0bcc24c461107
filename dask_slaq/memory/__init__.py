"""Memory of past runs: the file that a scheduler writes and anything may read, and its jobs."""

from dask_slaq.memory.following import MEMORY_TOPIC, Memory, safely
from dask_slaq.memory.reading import (
    KindSummary,
    StoreError,
    prune,
    read_audit,
    read_kinds,
    read_runs,
    read_usage,
)
from dask_slaq.memory.rows import Unfinished
from dask_slaq.memory.store import LAPSE, RunStore
from dask_slaq.memory.usage_rows import usage_as_dicts

__all__ = [
    "LAPSE",
    "MEMORY_TOPIC",
    "KindSummary",
    "Memory",
    "RunStore",
    "StoreError",
    "Unfinished",
    "prune",
    "read_audit",
    "read_kinds",
    "read_runs",
    "read_usage",
    "safely",
    "usage_as_dicts",
]
