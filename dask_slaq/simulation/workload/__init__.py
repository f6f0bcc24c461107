"""Workload of a simulation: jobs, loss curves, arrival traces, and laws of running times."""

from dask_slaq.simulation.workload.curves import Curve, CurveError, iterations_to, load_curves
from dask_slaq.simulation.workload.jobs import SimulatedJob, calibrate, make_jobs, offered_load
from dask_slaq.simulation.workload.jsonl import decode
from dask_slaq.simulation.workload.runtime_laws import SCALINGS, Law, fastest, law, rate
from dask_slaq.simulation.workload.traces import Trace, TraceError, about, follow, read_trace

__all__ = [
    "SCALINGS",
    "Curve",
    "CurveError",
    "Law",
    "SimulatedJob",
    "Trace",
    "TraceError",
    "about",
    "calibrate",
    "decode",
    "fastest",
    "follow",
    "iterations_to",
    "law",
    "load_curves",
    "make_jobs",
    "offered_load",
    "rate",
    "read_trace",
]
