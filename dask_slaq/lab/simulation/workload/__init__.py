"""Workload of a simulation: jobs, loss curves, arrival traces, and laws of running times."""

from dask_slaq.lab.simulation.workload.curves import CurveError as CurveError
from dask_slaq.lab.simulation.workload.curves import LossCurve as LossCurve
from dask_slaq.lab.simulation.workload.curves import decode as decode
from dask_slaq.lab.simulation.workload.curves import iterations_to as iterations_to
from dask_slaq.lab.simulation.workload.curves import load_curves as load_curves
from dask_slaq.lab.simulation.workload.simulated_jobs import SCALINGS as SCALINGS
from dask_slaq.lab.simulation.workload.simulated_jobs import Law as Law
from dask_slaq.lab.simulation.workload.simulated_jobs import SimulatedJob as SimulatedJob
from dask_slaq.lab.simulation.workload.simulated_jobs import calibrate as calibrate
from dask_slaq.lab.simulation.workload.simulated_jobs import fastest as fastest
from dask_slaq.lab.simulation.workload.simulated_jobs import law as law
from dask_slaq.lab.simulation.workload.simulated_jobs import make_jobs as make_jobs
from dask_slaq.lab.simulation.workload.simulated_jobs import offered_load as offered_load
from dask_slaq.lab.simulation.workload.simulated_jobs import rate as rate
from dask_slaq.lab.simulation.workload.traces import Trace as Trace
from dask_slaq.lab.simulation.workload.traces import TraceError as TraceError
from dask_slaq.lab.simulation.workload.traces import about as about
from dask_slaq.lab.simulation.workload.traces import follow as follow
from dask_slaq.lab.simulation.workload.traces import read_trace as read_trace
