"""Jobs simulated task by task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulation.conftest import make

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.simulation.measures import Run
from dask_slaq.simulation.tasks import TaskSimulation


def run(jobs, policy="fair", threads=4, **settings):
    return Run(0, jobs, TaskSimulation(jobs, Engine(policy, epoch=3.0), threads, **settings).run())


def test_a_job_alone_runs_in_waves_with_its_driver_between():
    """10 tasks of a second on 4 threads: 3 waves."""
    job = replace(make(iterations=5, work=10.0, partitions=10), alone=np.full(5, 0.5))
    found = run([job])
    assert found.outcome.times[0].tolist() == pytest.approx([3.5 * (k + 1) for k in range(5)])
    assert found.outcome.busy == pytest.approx(50.0)


def test_tasks_of_many_lengths_and_those_that_load():
    job = make(iterations=1, work=7.0, partitions=4)
    found = run([job], threads=2, seconds=[np.array([[4.0, 1.0, 1.0, 1.0]])], loading=0.25)
    assert found.outcome.times[0].tolist() == pytest.approx([5.5])  # 4 and then 1 on one thread


def test_a_thread_changes_hands_when_its_task_ends():
    """The first job, alone, has sent its tasks of 3 s when the second comes with short ones."""
    long = make("long", iterations=3, work=12.0, partitions=4)
    short = make("short", arrival=1.0, iterations=2, work=0.4, partitions=4)
    found = run([long, short], "first-to-target")
    assert found.outcome.times[1][0] == pytest.approx(3.0 + 0.1, abs=1e-6)
    # Its sums wait for those of them that were sent ahead.
    assert 3.0 <= found.outcome.times[0][0] <= 3.1 + 1e-6


def test_a_sum_waits_for_what_runs_where_its_inputs_are():
    """A job that shares its one thread ends its iteration behind the other's task."""
    jobs = [make(name, iterations=4, work=4.0, partitions=4) for name in "ab"]
    fluid_end = sum(job.total for job in jobs)
    found = run(jobs, threads=1, ahead=0.0)
    assert found.makespan == pytest.approx(fluid_end), "no second is lost"
    assert found.outcome.times[0][0] > 4.0


def test_no_thread_is_idle_while_there_are_tasks(some_jobs):
    jobs = [replace(job, arrival=0.0, partitions=32.0) for job in some_jobs[:3]]
    found = run(jobs, "max-total", threads=16)
    assert all(np.isfinite(times).all() for times in found.outcome.times)
    assert found.outcome.busy == pytest.approx(sum(job.total for job in jobs))
    assert found.makespan < 1.1 * found.outcome.busy / 16


def test_better_policies_are_better_here_too():
    fast = [make(f"f{k}", arrival=2.0 * k, iterations=12, work=24.0, partitions=12) for k in (1, 2)]
    slow = make("slow", iterations=40, work=24.0, partitions=12)
    t90 = {p: run([slow, *fast], p).time_to(0.9).mean() for p in ("fair", "first-to-target")}
    assert t90["first-to-target"] < t90["fair"]


def test_tasks_are_counted():
    with pytest.raises(InvalidSetting, match="finite number of partitions"):
        run([make()])
