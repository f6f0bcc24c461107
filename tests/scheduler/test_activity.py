"""Seconds in which jobs had tasks, on a clock turned by hand."""

from __future__ import annotations

import pytest

from dask_slaq.scheduler.activity import Occupancy


@pytest.fixture
def occupancy():
    found = Occupancy(0.0)
    assert found.offered(2, 0.0) == 0.0
    found.add("a", 0.0)
    return found


def test_a_job_is_idle_while_none_of_its_tasks_is_ready(occupancy):
    occupancy.moved("a", "x", "waiting", 1.0)
    occupancy.moved("a", "x", "no-worker", 2.0)
    occupancy.moved("a", "x", "processing", 3.0)
    occupancy.moved("a", "y", "processing", 4.0)
    occupancy.moved("a", "x", "memory", 5.0)
    occupancy.moved("a", "y", "memory", 6.0)
    assert occupancy.idle("a", 10.0) == 2.0 + 4.0
    assert occupancy.idle("a", 10.0) == 0.0
    occupancy.moved("a", "z", "queued", 11.0)
    assert occupancy.idle("a", 12.0) == 1.0


def test_threads_are_offered_as_far_as_there_are_tasks(occupancy):
    occupancy.add("b", 0.0)
    occupancy.moved("a", "x", "processing", 1.0)
    occupancy.moved("b", "y", "no-worker", 2.0)
    occupancy.moved("b", "z", "no-worker", 3.0)
    assert occupancy.offered(4, 5.0) == 1 * 1 + 2 * 1 + 2 * 2
    assert occupancy.offered(4, 6.0) == 3.0
    occupancy.remove("b", 6.0)
    assert occupancy.offered(4, 7.0) == 1.0


def test_tasks_of_nobody_and_of_jobs_that_left_do_not_count(occupancy):
    occupancy.moved(None, "x", "processing", 1.0)
    occupancy.moved("gone", "y", "memory", 1.0)
    assert occupancy.offered(2, 3.0) == 0.0
