"""The runtime model: what an iteration costs, and how many of them threads buy."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core import runtime
from dask_slaq.core.runtime import JobRuntime, iterations, speed, waves

seconds = st.floats(1e-6, 1e6)
widths = st.integers(1, 1000)


def iteration(job: JobRuntime, *tasks: float, at_once: int = 1) -> None:
    for task in tasks:
        job.observe_task(task, at_once)
    job.observe_iteration()


def test_examples():
    assert doctest.testmod(runtime).failed == 0


def test_a_new_job_costs_nothing_yet():
    job = JobRuntime()
    assert (job.work, job.width, job.attained) == (0.0, 1.0, 0.0)
    iteration(job)
    assert (job.work, job.width) == (0.0, 1.0)


def test_work_is_what_was_charged_between_two_reports():
    job = JobRuntime()
    iteration(job, 0.5, 0.25)
    assert job.work == 0.75
    assert job.attained == 0.75


def test_the_first_interval_counts_until_the_second():
    job = JobRuntime()
    iteration(job, 100.0)  # imports, compilation, loading
    assert job.work == 100.0
    iteration(job, 1.0)
    assert job.work == 1.0
    iteration(job, 2.0)
    assert 1.0 < job.work < 2.0


@given(st.lists(seconds, min_size=3, max_size=30))
def test_work_stays_within_what_was_seen(costs):
    job = JobRuntime()
    for cost in costs:
        iteration(job, cost)
    assert min(costs[1:]) * (1 - 1e-9) <= job.work <= max(costs[1:]) * (1 + 1e-9)
    assert job.attained == pytest.approx(sum(costs))


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_work_follows_a_change(old, new):
    job = JobRuntime()
    for cost in [old] * 3 + [new] * 60:
        iteration(job, cost)
    assert job.work == pytest.approx(new, rel=1e-3)


def test_reports_without_tasks_in_between_change_nothing():
    job = JobRuntime()
    iteration(job, 3.0, at_once=4)
    iteration(job, 2.0, at_once=4)
    for _ in range(9):
        iteration(job)
    assert (job.work, job.width) == (2.0, 4.0)


def test_width_grows_at_once_and_shrinks_slowly():
    job = JobRuntime()
    iteration(job, 1.0, at_once=2)
    iteration(job, 1.0, at_once=16)
    assert job.width == 16
    iteration(job, 1.0, at_once=1)
    assert 8 < job.width < 16
    for _ in range(40):
        iteration(job, 1.0, at_once=1)
    assert job.width == pytest.approx(1.0, abs=1e-3)


@given(widths, st.lists(st.floats(0, 2000), min_size=2, max_size=20))
def test_speed_is_nondecreasing_concave_and_bounded(width, threads):
    grid = np.sort(np.array(threads))
    value = speed(np.full(len(grid), width), grid)
    assert (np.diff(value) >= 0).all()
    assert (value <= np.minimum(grid, width)).all()
    middle = speed(width, (grid[:-1] + grid[1:]) / 2)
    assert (middle >= (value[:-1] + value[1:]) / 2 - 1e-9).all()


@given(widths, st.integers(1, 1000))
def test_waves_are_the_fewest_rounds_that_hold_all_tasks(width, threads):
    n = int(waves(width, threads))
    assert (n - 1) * threads < width <= n * threads


def test_a_fraction_of_a_thread_counts_as_one_for_waves():
    assert waves([3, 3], [0.0, 0.5]).tolist() == [3.0, 3.0]


@given(seconds, widths, st.floats(0, 2000), st.floats(0.01, 100))
def test_iterations_are_core_seconds_over_work(work, width, threads, epoch):
    done = float(iterations(work, width, threads, epoch))
    assert done == pytest.approx(epoch * min(threads, width) / work)


def test_no_iteration_is_predicted_while_the_work_is_unknown():
    assert iterations([0.0, 0.0], [4, 4], [0, 9], 1.0).tolist() == [0.0, 0.0]
