"""A scheduler that is killed while runs end loses none that it said is safe."""

import pytest

from benchmarks.memory_crashes import crash, fill


@pytest.mark.slow
def test_what_was_said_to_be_safe_survives_kills(tmp_path):
    found = crash(tmp_path, kills=2, seed=1)
    assert found.kills == 2 and found.acknowledged > 0
    assert found.lost == [] and found.unusable == []
    assert found.stored >= found.acknowledged


def test_a_store_stays_small(tmp_path):
    found = fill(tmp_path / "runs.db", runs=2000)
    assert found["runs"] == 2000 and found["megabytes"] < 2000 * 200 / 100_000
