"""Run history: the file that a scheduler writes and anything may read, and its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_slaq.core.lazy import lazy
from dask_slaq.run_history.following import RunHistory

__all__ = ["RunHistory"]

if TYPE_CHECKING:  # checkers would take any name for one of this module
    from dask_slaq.run_history.file import StoreError as StoreError
    from dask_slaq.run_history.file import prune as prune
    from dask_slaq.run_history.file import read_audit as read_audit
    from dask_slaq.run_history.file import read_kinds as read_kinds
    from dask_slaq.run_history.file import read_runs as read_runs
    from dask_slaq.run_history.file import read_usage as read_usage
    from dask_slaq.run_history.rows import usage_as_dicts as usage_as_dicts
    from dask_slaq.run_history.store import RunStore as RunStore
else:
    # The rows of the file, which a scheduler loads that keeps one.
    _READING = ("StoreError", "prune", "read_audit", "read_kinds", "read_runs", "read_usage")
    __getattr__ = lazy(
        __name__,
        {
            "file": _READING,
            "store": ("RunStore",),
            "rows": ("usage_as_dicts",),
        },
    )
