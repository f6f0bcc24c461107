"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.naming import MOST_FEATURES, check_kind, kind_of_name, read_kind
from dask_slaq.core.memory.runs import MOST_POINTS, Kind, Run, thinned

__all__ = [
    "MOST_FEATURES",
    "MOST_POINTS",
    "Kind",
    "Run",
    "check_kind",
    "kind_of_name",
    "read_kind",
    "thinned",
]
