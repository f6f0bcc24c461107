"""How a scheduler starts and what its epochs take is measured in every part."""

import pytest
from commands import as_json

from benchmarks import epoch, startup


def test_each_step_of_the_start_is_measured():
    rows = as_json(startup.main, "--repetitions", "1")
    assert [row["step"] for row in rows] == ["import distributed", "start the scheduler"]
    assert rows[1]["plugin_mb"] > rows[0]["plugin_mb"] > 0


def test_epochs_are_measured():
    (row,) = as_json(epoch.main, "--jobs", "8", "--epochs", "1")
    assert row["jobs"] == 8
    parts = ("reports_ms", "decision_ms", "grants_ms", "dispatch_ms")
    assert row["epoch_ms"] == pytest.approx(sum(row[part] for part in parts))
    assert row["history_mb_per_hour"] > 0
