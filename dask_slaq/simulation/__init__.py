"""Simulation of the live engine on a virtual clock, with jobs made from loss curves."""

from typing import TYPE_CHECKING

from dask_slaq.core.lazy import lazy

if TYPE_CHECKING:
    from dask_slaq.simulation.settings import Settings as Settings
    from dask_slaq.simulation.study import simulate as simulate
    from dask_slaq.simulation.workload import CurveError as CurveError
    from dask_slaq.simulation.workload import TraceError as TraceError

__getattr__ = lazy(
    __name__,
    {
        "settings": ("Settings",),
        "study": ("simulate",),
        "workload": ("CurveError", "TraceError"),
    },
)
