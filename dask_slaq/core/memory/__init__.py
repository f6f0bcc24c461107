"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.curves import MIDDLES, N_BINS, Traces
from dask_slaq.core.memory.curves import shape_of as shape_of
from dask_slaq.core.memory.kinds import Kind, check_kind, distance, kind_of_name, read_kind
from dask_slaq.core.memory.runs import (
    MOST_KINDS,
    MOST_LIKE,
    MOST_POINTS,
    ExpectedTime,
    PastRun,
    PastRuns,
    expected_time,
    kernel,
    thinned,
)
from dask_slaq.core.memory.stages import MOST_STAGED as MOST_STAGED
from dask_slaq.core.memory.stages import ExpectedStages as ExpectedStages
from dask_slaq.core.memory.stages import PastStages as PastStages
from dask_slaq.core.memory.stages import StagedRun as StagedRun
from dask_slaq.core.memory.stages import check_times as check_times

__all__ = [
    "MIDDLES",
    "MOST_KINDS",
    "MOST_LIKE",
    "MOST_POINTS",
    "N_BINS",
    "ExpectedTime",
    "Kind",
    "PastRun",
    "PastRuns",
    "Traces",
    "check_kind",
    "distance",
    "expected_time",
    "kernel",
    "kind_of_name",
    "read_kind",
    "thinned",
]
