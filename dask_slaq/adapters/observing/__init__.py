"""Observation of training loops in unmodified libraries, in this process and on workers."""

from dask_slaq.adapters.observing.kinds import (
    describe,
    describe_estimator,
    kind_of,
    kind_of_estimator,
    sizes_of,
)
from dask_slaq.adapters.observing.loops import Loop, LoopObserver, Proxy
from dask_slaq.adapters.observing.patches import AfterImport, Patches, Replacements
from dask_slaq.adapters.observing.session import (
    ReportSession,
    begin_training,
    check_not_stopped,
    expect,
    is_heard,
    log_stop,
    open_blocks,
    publish,
    stage,
    stopped,
    value_of,
    warn_of,
    warn_once,
)
from dask_slaq.adapters.observing.worker_reports import Address, Mailbox
from dask_slaq.adapters.observing.worker_stops import ends_with, is_stopping

__all__ = [
    "Address",
    "AfterImport",
    "Loop",
    "LoopObserver",
    "Mailbox",
    "Patches",
    "Proxy",
    "Replacements",
    "ReportSession",
    "begin_training",
    "check_not_stopped",
    "describe",
    "describe_estimator",
    "ends_with",
    "expect",
    "is_heard",
    "is_stopping",
    "kind_of",
    "kind_of_estimator",
    "log_stop",
    "open_blocks",
    "publish",
    "sizes_of",
    "stage",
    "stopped",
    "value_of",
    "warn_of",
    "warn_once",
]
