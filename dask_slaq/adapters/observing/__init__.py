"""Observation of training loops in unmodified libraries, in this process and on workers."""

from dask_slaq.adapters.observing.loops import Loop, LoopObserver, Proxy, names_used
from dask_slaq.adapters.observing.patches import AfterImport, Patches, imported
from dask_slaq.adapters.observing.session import ReportSession, expect, publish, warn_once
from dask_slaq.adapters.observing.worker_reports import Address, Mailbox

__all__ = [
    "Address",
    "AfterImport",
    "Loop",
    "LoopObserver",
    "Mailbox",
    "Patches",
    "Proxy",
    "ReportSession",
    "expect",
    "imported",
    "names_used",
    "publish",
    "warn_once",
]
