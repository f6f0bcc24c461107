"""How a scheduler starts is measured in every part."""

from commands import as_json

from benchmarks import startup


def test_each_step_of_the_start_is_measured():
    rows = as_json(startup.main, "--repetitions", "1")
    assert [row["step"] for row in rows] == ["import distributed", "start the scheduler"]
    assert rows[1]["plugin_mb"] > rows[0]["plugin_mb"] > 0
