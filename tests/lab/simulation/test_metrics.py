"""Metrics of runs agree with values computed by hand."""

import numpy as np
import pytest

from dask_slaq.lab.simulation.fluid import Outcome
from dask_slaq.lab.simulation.metrics import SimulatedRun, normalized_loss, summarize
from dask_slaq.lab.simulation.workload.simulated_jobs import SimulatedJob


def job(name, arrival, loss):
    loss = np.array(loss, float)
    return SimulatedJob(name, name, arrival, loss, loss, 1.0, np.inf)


def made(stretch=1.0):
    """Two jobs, the second of which never gets better."""
    jobs = [job("a", 1.0, [10, 6, 8, 0.5, 2, 0]), job("b", 2.0, [1, 1, 1])]
    times = [1.0 + stretch * np.arange(1.0, 7.0), 2.0 + stretch * np.arange(1.0, 4.0)]
    return SimulatedRun(0, jobs, Outcome(times, decisions=[0.001, 0.003], busy=9.0, moved=4))


def test_times_count_from_arrival_and_by_the_running_minimum():
    run = made()
    assert run.time_to(0.9)[0] == 4.0 and run.time_to(0.96)[0] == 6.0
    assert np.isnan(run.time_to(0.9)[1])
    assert run.completion.tolist() == [6.0, 3.0]
    assert run.makespan == 6.0


def test_loss_that_is_left():
    run = made()
    assert normalized_loss(run.jobs[0]) == pytest.approx([1, 0.6, 0.6, 0.05, 0.05, 0])
    assert normalized_loss(run.jobs[1]).tolist() == [0, 0, 0]


def test_area_and_mean_loss():
    run = made()
    assert run.area == pytest.approx([1 + 1 + 0.6 + 0.6 + 0.05 + 0.05, 1.0])
    # Seconds 1 to 7: a alone; with b at 1, at 0, at 0; then a alone.
    by_second = [1.0, (1 + 1) / 2, 0.6 / 2, 0.6 / 2, 0.05, 0.05]
    assert run.mean_loss() == pytest.approx(np.mean(by_second))


def test_loss_over_time_is_a_step_function():
    at, mean, active = made().loss_over_time()
    lasts = np.diff(at)
    assert at[0] == 1.0 and at[-1] == 7.0
    assert (mean * lasts).sum() == pytest.approx(1 + 1 + 0.3 + 0.3 + 0.05 + 0.05)
    assert (active * lasts).sum() == pytest.approx(6 + 3)


def test_how_long_jobs_are_kept_when_they_have_converged():
    found = summarize([made()], [made()], cores=2)
    # Job a has 5 % left after 4 of 6 seconds; b never falls, in 3 seconds.
    assert found["converged_share"] == pytest.approx((2 + 3) / 9)


def test_summary():
    found = summarize([made(2.0)], [made()], cores=2)
    assert found["t90_mean_s"] == 8.0 and found["completion_mean_s"] == 9.0
    assert found["rho_mean"] == found["rho_max"] == found["rho95_max"] == 2.0
    assert found["decision_seconds"] == pytest.approx(0.002) and found["decisions"] == 2
    assert found["utilization"] == pytest.approx(9 / (2 * 12))
    assert found["active_mean"] == pytest.approx(18 / 12)
