"""Placement of the jobs' shares on workers: a worker set for each job."""

from dask_slaq.core.placement.choose_sets import Placement as Placement
from dask_slaq.core.placement.choose_sets import Workers as Workers
from dask_slaq.core.placement.choose_sets import place_all as place_all
