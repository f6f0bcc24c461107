"""Rounds of the chaos benchmark leave nothing behind, are reproducible, and detect breakage."""

from commands import as_json

from benchmarks.chaos import __main__ as chaos
from benchmarks.chaos.rounds import make_round
from benchmarks.chaos.running import run
from benchmarks.chaos.verdict import KEYS
from dask_slaq.scheduler.pools import Pools


def test_a_round_is_a_function_of_its_seed():
    assert make_round(3) == make_round(3) != make_round(4)


def test_rounds_leave_nothing_behind_and_count_their_faults():
    found = as_json(chaos.main, "--faults", "40", "--processes", "2")
    assert sum(found["faults"].values()) >= 40
    assert found["compared"] > 0
    for key in KEYS:
        assert found[key] == 0


def test_a_broken_pool_and_what_it_leaves_over_are_seen(monkeypatch):
    def check(pools):
        raise AssertionError("on purpose")

    monkeypatch.setattr(Pools, "check", check)
    monkeypatch.setattr(Pools, "left_over", lambda pools: ["a task"])
    found = run(make_round(11, faults=0))
    assert any("on purpose" in each for each in found.broken)
    assert any("a task" in each for each in found.left_over)


def test_a_round_ends_alike_again():
    first, again = run(make_round(10)), run(make_round(10))
    assert (first.results, first.faults) == (again.results, again.faults)
