"""Work of all kinds on one cluster: nobody loses much against plain Dask."""

from commands import as_json

from benchmarks import virtual
from benchmarks.mixtures.__main__ import main
from benchmarks.mixtures.figures import compare, measure
from benchmarks.mixtures.lists import LISTS


def test_nested_tasks_of_a_plain_client_do_not_wait_for_trainings():
    with virtual.pool(1) as pool:
        plain, ours = pool.map(measure, ["nested"] * 2, ["none", "first-to-target"], [0] * 2)
    found = compare(plain, ours)
    assert found["kinds"]["nested"] <= 1.0
    assert found["slowdown_worst"] <= 1.2
    assert found["t90_training"] <= 1.0


def test_a_list_is_a_function_of_its_seed():
    for make in LISTS.values():
        assert make(3) == make(3)


def test_the_command_prints_every_figure():
    options = ["--lists", "notebook", "--policies", "fair", "--processes", "1"]
    row = as_json(main, *options)["notebook"]["fair"]
    keys = "slowdown_mean slowdown_worst t90_training completion_mean makespan bytes"
    assert set(keys.split()) <= set(row)
    assert all(row[key] > 0 for key in keys.split())
