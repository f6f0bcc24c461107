"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.curves import MIDDLES, N_BINS, Traces, shape_of
from dask_slaq.core.memory.kinds import Kind, check_kind, distance, kind_of_name, read_kind
from dask_slaq.core.memory.runs import (
    MOST_LIKE,
    MOST_POINTS,
    ExpectedTime,
    PastRun,
    PastRuns,
    expected_time,
    kernel,
    thinned,
)

__all__ = [
    "MIDDLES",
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
    "shape_of",
    "thinned",
]
