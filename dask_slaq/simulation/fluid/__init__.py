"""Simulator of jobs that hold fractions of threads: see `Simulation`."""

from dask_slaq.simulation.fluid.simulator import Outcome, Simulation, Watcher

__all__ = ["Outcome", "Simulation", "Watcher"]
