"""Rounds of the chaos benchmark leave nothing behind, are reproducible, and detect breakage."""

import json

import pytest
from click.testing import CliRunner
from commands import as_json

from benchmarks.chaos import __main__ as chaos
from benchmarks.chaos import verdict
from benchmarks.chaos.faults import HAPPEN
from benchmarks.chaos.rounds import KINDS, make_round
from benchmarks.chaos.running import run
from benchmarks.chaos.verdict import KEYS, judge
from benchmarks.never_worse.probe import value_of
from dask_slaq.scheduler.pools import Pools


def test_every_kind_of_fault_can_happen():
    assert set(KINDS) == set(HAPPEN)
    assert make_round(3) == make_round(3) != make_round(4)


@pytest.mark.slow
def test_rounds_leave_nothing_behind_and_count_their_faults():
    found = as_json(chaos.main, "--faults", "40", "--processes", "2")
    assert sum(found["faults"].values()) >= 40
    assert found["compared"] > 0
    for key in KEYS:
        assert found[key] == 0


def test_a_broken_pool_is_seen(monkeypatch):
    def check(pools):
        raise AssertionError("on purpose")

    monkeypatch.setattr(Pools, "check", check)
    assert any("on purpose" in found for found in run(make_round(11, faults=0)).broken)


def test_what_a_pool_leaves_over_is_seen(monkeypatch):
    monkeypatch.setattr(Pools, "left_over", lambda pools: ["a task"])
    assert any("a task" in found for found in run(make_round(11, faults=0)).left_over)


@pytest.mark.slow
def test_a_round_ends_alike_again():
    first, again = run(make_round(10)), run(make_round(10))
    assert (first.results, first.faults) == (again.results, again.faults)


def test_another_attempt_gives_the_same_values():
    assert value_of("map-a.0~2-1", [3]) == value_of("map-a.0-1", [3]) != value_of("map-a.1-1", [3])


@pytest.mark.slow
def test_a_round_that_goes_on_after_its_last_fault_is_late(monkeypatch):
    made = make_round(11, faults=3)
    assert judge(made).late == []
    monkeypatch.setattr(verdict, "TIMES", -100.0)
    assert "after the last fault" in judge(made).late[0]


@pytest.mark.slow
def test_a_ledger_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(Pools, "left_over", lambda pools: ["a task"])
    ledger = tmp_path / "ledger"
    arguments = ["--faults", "20", "--seed", "11", "--processes", "1", "--ledger", str(ledger)]
    monkeypatch.setattr(chaos, "_judge_all", lambda seeds, n: map(verdict.judge_seed, seeds))
    result = CliRunner().invoke(chaos.main, arguments)
    assert result.exit_code == 1
    ledger.write_text(ledger.read_text() + '{"seed": 12, "lo')  # cut off
    (row,) = [json.loads(line) for line in ledger.read_text().splitlines()[:1]]
    assert row["seed"] == 11 and row["left_over"] == ["a task"] * len(row["left_over"])
    result = CliRunner().invoke(chaos.main, arguments)
    assert result.exit_code == 0  # nothing is left to run
