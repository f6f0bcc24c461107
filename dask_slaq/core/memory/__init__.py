"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.curves import N_BINS, Traces, bin_edges, middles, shape_of
from dask_slaq.core.memory.likeness import distance, kernel
from dask_slaq.core.memory.naming import MOST_FEATURES, check_kind, kind_of_name, read_kind
from dask_slaq.core.memory.past_runs import MOST_LIKE, PastRuns
from dask_slaq.core.memory.running_times import RunningTime, running_time
from dask_slaq.core.memory.runs import MOST_POINTS, Kind, Run, thinned

__all__ = [
    "MOST_FEATURES",
    "MOST_LIKE",
    "MOST_POINTS",
    "N_BINS",
    "Kind",
    "PastRuns",
    "Run",
    "RunningTime",
    "Traces",
    "bin_edges",
    "check_kind",
    "distance",
    "kernel",
    "kind_of_name",
    "middles",
    "read_kind",
    "running_time",
    "shape_of",
    "thinned",
]
