"""Fixtures: small lists of jobs, and runs of them."""

import math

import numpy as np
import pytest

from dask_slaq.core.engine import Engine
from dask_slaq.lab.simulation.fluid import Simulation
from dask_slaq.lab.simulation.metrics import SimulatedRun
from dask_slaq.lab.simulation.workload.curves import make_curves
from dask_slaq.lab.simulation.workload.simulated_jobs import SimulatedJob, law, make_jobs


def make(name="a", arrival=0.0, iterations=10, work=8.0, partitions=math.inf):
    """A job whose loss falls geometrically."""
    loss = np.geomspace(10.0, 1.0, iterations)
    return SimulatedJob(name, "made", arrival, loss, loss, work, partitions)


def run(jobs, policy="fair", *, cores=16, scaling="linear", engine=None, **settings):
    """Simulate these jobs."""
    engine = Engine(policy, epoch=3.0) if engine is None else engine
    return SimulatedRun(
        0, jobs, Simulation(jobs, engine, law(scaling, jobs), cores, **settings).run()
    )


def make_some_jobs(seed=0):
    """A dozen jobs at a load of .9 on 64 cores."""
    return make_jobs(make_curves(seed), seed + 1, jobs=12, interarrival=10.0, work=64 * 10 * 0.9)


@pytest.fixture(scope="session")
def some_jobs():
    return make_some_jobs()
