"""Placement of the jobs' shares on workers: a worker set for each job."""

from dask_slaq.core.placement.choose_sets import place_all
from dask_slaq.core.placement.worker_sets import Placement, Workers

__all__ = ["Placement", "Workers", "place_all"]
