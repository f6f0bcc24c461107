"""Recorded event logs: trials of solvers, and simulation of recorded jobs under other policies."""

from dask_slaq.simulation.recorded.event_log import LogError, part_of
from dask_slaq.simulation.recorded.iteration_time import RunningTime, running_time
from dask_slaq.simulation.recorded.iterations_to_target import Iterations, iterations_to
from dask_slaq.simulation.recorded.runs import GROUP, Trial, read_trials
from dask_slaq.simulation.recorded.what_if import RECORDED, replay_log

__all__ = [
    "GROUP",
    "RECORDED",
    "Iterations",
    "LogError",
    "RunningTime",
    "Trial",
    "iterations_to",
    "part_of",
    "read_trials",
    "replay_log",
    "running_time",
]
