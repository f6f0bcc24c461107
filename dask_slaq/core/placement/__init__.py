"""Placement: from threads per job to a set of workers for each."""

from dask_slaq.core.placement.place import place_all
from dask_slaq.core.placement.worker_sets import Placement, Workers

__all__ = ["Placement", "Workers", "place_all"]
