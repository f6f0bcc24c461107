"""No law of the never-worse benchmark is broken in random scenarios, and scenarios replay."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.never_worse.__main__ import main
from benchmarks.never_worse.comparing import compare
from benchmarks.never_worse.laws import summary
from benchmarks.never_worse.scenarios import make_scenario
from dask_slaq.simulation import virtual


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_no_law_is_broken(first):
    numbers = range(first, first + 20)
    # In an interpreter of its own, where sets of strings have the same order every time.
    policies = [("fair",) if number % 2 else ("max-total",) for number in numbers]
    with virtual.pool(1) as pool:
        compared = list(pool.map(compare, numbers, policies))
    broken = [
        (seed, policy, finding)
        for found in compared
        for seed, policy, finding in found
        if finding.broken
    ]
    assert broken == []


def test_a_scenario_replays_to_the_last_digit():
    first, second = (compare(3, ("fair",)) for _ in range(2))
    assert first == second
    assert set(summary([finding for _, _, finding in first])) >= {"1 results", "2 alone"}


def test_the_same_seed_gives_the_same_scenario():
    assert make_scenario(7) == make_scenario(7) != make_scenario(8)


@pytest.mark.slow
def test_the_report_has_the_keys_that_others_read(tmp_path):
    output = tmp_path / "found.json"
    arguments = ["--scenarios", "2", "--processes", "1", "--json", str(output)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(output.read_text())
    assert found["scenarios"] == 2
    assert all({"checked", "worst"} <= set(row) for row in found["laws"].values())
    assert isinstance(found["broken"], list)
