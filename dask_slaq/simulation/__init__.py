"""Simulation of the live engine on a virtual clock, with jobs made from loss curves."""

from dask_slaq.core.lazy import lazy

__getattr__ = lazy(
    __name__,
    {
        "settings": ("Settings",),
        "study": ("simulate",),
        "workload": ("CurveError", "TraceError"),
    },
)
