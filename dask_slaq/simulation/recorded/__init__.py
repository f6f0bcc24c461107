"""Recorded event logs: trials of solvers, and simulation of recorded jobs under other policies."""

from dask_slaq.simulation.recorded.iteration_time import RunningTime as RunningTime
from dask_slaq.simulation.recorded.iteration_time import running_time as running_time
from dask_slaq.simulation.recorded.log_reader import LogError as LogError
from dask_slaq.simulation.recorded.log_reader import RecordedJob as RecordedJob
from dask_slaq.simulation.recorded.log_reader import read as read
from dask_slaq.simulation.recorded.runs import GROUP as GROUP
from dask_slaq.simulation.recorded.runs import Trial as Trial
from dask_slaq.simulation.recorded.runs import read_trials as read_trials
from dask_slaq.simulation.recorded.what_if import RECORDED as RECORDED
from dask_slaq.simulation.recorded.what_if import replay_log as replay_log
