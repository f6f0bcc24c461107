"""Tasks of a search that end without a report."""

from dask_slaq.core.trials.unreported import Unreported


def test_tasks_of_a_name_that_has_reported_are_not_odd():
    tasks = Unreported()
    tasks.ended("train", 1)
    tasks.heard("train")
    for key in (2, 3, 4):
        tasks.ended("train", key)
    assert list(tasks.of(2, lambda key: False)) == []


def test_each_name_is_told_of_once():
    tasks = Unreported()
    for found in ([("optimize", 2)], []):
        for key in (1, 2):
            tasks.ended("optimize", key)
        assert list(tasks.of(2, lambda key: False)) == found
