"""The weight benchmark counts what a scheduler has loaded; what nobody uses is not."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks import weight


@pytest.mark.slow
def test_a_scheduler_loads_neither_programs_of_users_nor_the_simulator():
    result = CliRunner().invoke(weight.main, ["--json", "-"], catch_exceptions=False)
    rows = {row["part"]: row for row in json.loads(result.stdout)}
    for part in ("client", "worker", "adapters", "simulation", "demo"):
        assert rows[part]["package"] > rows[part]["everything"] == 0
    counts = [rows["all"][stage] for stage in weight.STAGES]
    assert counts == sorted(counts) and counts[-1] < rows["all"]["package"]
    assert rows["memory"]["jobs"] < rows["memory"]["everything"]
