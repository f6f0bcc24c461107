"""Observes training loops of unmodified libraries, in this process and on workers."""

from dask_slaq.adapters.observing.loops import Lookalike, Loop, Watch, names_used
from dask_slaq.adapters.observing.patches import AfterImport, Patches, imported
from dask_slaq.adapters.observing.session import Block, expect, publish, warn_once
from dask_slaq.adapters.observing.worker_reports import Inbox, Route

__all__ = [
    "AfterImport",
    "Block",
    "Inbox",
    "Lookalike",
    "Loop",
    "Patches",
    "Route",
    "Watch",
    "expect",
    "imported",
    "names_used",
    "publish",
    "warn_once",
]
