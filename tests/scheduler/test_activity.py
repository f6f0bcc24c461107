"""`Activity` counts the seconds in which jobs had tasks, on a manual clock."""

import pytest

from dask_slaq.scheduler.activity import Activity


@pytest.fixture
def activity():
    found = Activity(0.0)
    assert found.offered(2, 0.0) == 0.0
    found.add("a", 0.0)
    return found


def test_a_job_is_idle_while_none_of_its_tasks_is_ready(activity):
    activity.moved("a", "x", "waiting", 1.0)
    activity.moved("a", "x", "no-worker", 2.0)
    activity.moved("a", "x", "processing", 3.0)
    activity.moved("a", "y", "processing", 4.0)
    activity.moved("a", "x", "memory", 5.0)
    activity.moved("a", "y", "memory", 6.0)
    assert activity.idle("a", 10.0) == 2.0 + 4.0
    assert activity.idle("a", 10.0) == 0.0
    activity.moved("a", "z", "queued", 11.0)
    assert activity.idle("a", 12.0) == 1.0


def test_threads_are_offered_as_far_as_there_are_tasks(activity):
    activity.add("b", 0.0)
    activity.moved("a", "x", "processing", 1.0)
    activity.moved("b", "y", "no-worker", 2.0)
    activity.moved("b", "z", "no-worker", 3.0)
    assert activity.offered(4, 5.0) == 1 * 1 + 2 * 1 + 2 * 2
    assert activity.offered(4, 6.0) == 3.0
    activity.remove("b", 6.0)
    assert activity.offered(4, 7.0) == 1.0


def test_a_clock_that_was_read_too_early_never_makes_time_negative(activity):
    activity.moved("a", "x", "processing", 1.0)
    activity.moved("a", "x", "memory", 2.0)
    assert activity.idle("a", 1.9998) == 1.0
    activity.moved("a", "x", "processing", 1.9999)
    activity.moved("a", "x", "memory", 3.0)
    assert activity.idle("a", 3.5) == 0.5
    assert activity.offered(4, 2.0) >= 0.0
