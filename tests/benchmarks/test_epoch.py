"""The epoch benchmark measures every part, and jobs that are like past runs beside unknown ones."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import epoch


@pytest.mark.slow
def test_epochs_are_measured_with_and_without_past_runs():
    arguments = ["--jobs", "8", "--epochs", "1", "--known", "--json", "-"]
    result = CliRunner().invoke(epoch.main, arguments, catch_exceptions=False)
    (row,) = json.loads(result.stdout)
    assert row["jobs"] == 8
    parts = ("reports_ms", "decision_ms", "grants_ms", "dispatch_ms")
    assert row["epoch_ms"] == pytest.approx(sum(row[part] for part in parts))
    assert row["known_epoch_ms"] > row["known_decision_ms"] > 0
    assert row["history_mb_per_hour"] > 0
