"""Simulation of the live engine on a virtual clock, with jobs made from loss curves."""

from typing import TYPE_CHECKING

from dask_slaq.core.lazy import lazy

__all__ = ["CurveError", "Settings", "TraceError", "simulate"]

if TYPE_CHECKING:  # checkers would take any name for one of this module
    from dask_slaq.lab.simulation.settings import Settings
    from dask_slaq.lab.simulation.study import simulate
    from dask_slaq.lab.simulation.workload import CurveError, TraceError
else:
    _IN = {"study": ("simulate",), "workload": ("CurveError", "TraceError")}
    __getattr__ = lazy(__name__, {"settings": ("Settings",), **_IN})
