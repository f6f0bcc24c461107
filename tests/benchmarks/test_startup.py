"""The startup benchmark measures a scheduler with the plugin, and one without."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import startup


@pytest.mark.slow
def test_each_step_is_measured():
    arguments = ["--repetitions", "1", "--json", "-"]
    result = CliRunner().invoke(startup.main, arguments, catch_exceptions=False)
    rows = json.loads(result.stdout)
    assert [row["step"] for row in rows] == ["import distributed", "start the scheduler"]
    assert rows[1]["plugin_mb"] > rows[0]["plugin_mb"] > 0
