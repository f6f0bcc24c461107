"""Simulation of the live engine on a virtual clock, with jobs made from loss curves."""

from dask_slaq.simulation.settings import Settings as Settings
from dask_slaq.simulation.study import simulate as simulate
from dask_slaq.simulation.workload import CurveError as CurveError
from dask_slaq.simulation.workload import TraceError as TraceError
