"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.runs import MOST_POINTS, Kind, Run, thinned

__all__ = ["MOST_POINTS", "Kind", "Run", "thinned"]
