"""Store of past runs in a file, which a scheduler writes and anything may read."""

from dask_slaq.memory.reading import (
    KindSummary,
    StoreError,
    prune,
    read_audit,
    read_kinds,
    read_runs,
    read_usage,
)
from dask_slaq.memory.store import LAPSE, RunStore, Unfinished
from dask_slaq.memory.usage_rows import usage_as_dicts

__all__ = [
    "LAPSE",
    "KindSummary",
    "RunStore",
    "StoreError",
    "Unfinished",
    "prune",
    "read_audit",
    "read_kinds",
    "read_runs",
    "read_usage",
    "usage_as_dicts",
]
