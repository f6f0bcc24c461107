"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.curves import MIDDLES, N_BINS, Traces, shape_of
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
from dask_slaq.core.memory.stages import (
    MOST_STAGED,
    ExpectedStages,
    PastStages,
    StagedRun,
    check_times,
)

__all__ = [
    "MIDDLES",
    "MOST_KINDS",
    "MOST_LIKE",
    "MOST_POINTS",
    "MOST_STAGED",
    "N_BINS",
    "ExpectedStages",
    "ExpectedTime",
    "Kind",
    "PastRun",
    "PastRuns",
    "PastStages",
    "StagedRun",
    "Traces",
    "check_kind",
    "check_times",
    "distance",
    "expected_time",
    "kernel",
    "kind_of_name",
    "read_kind",
    "shape_of",
    "thinned",
]
