"""The scale benchmark measures both sides on a real scheduler, and gives the expected keys."""

from __future__ import annotations

import pytest

from benchmarks import scale


@pytest.mark.slow
def test_both_sides_are_measured_at_every_occasion():
    found = scale.measure(tasks=300, jobs=4, workers=8, seconds=2.0, repetitions=1, quick=True)
    for key in ("longest_step_ms", "longest_step_plain_ms"):
        assert set(found[key]) == {"open", "close", "worker", "priority", "homes", "joins"}
        assert all(ms >= 0 for ms in found[key].values())
    assert all(found["ms_per_task"][side] > 0 for side in ("ours", "plain"))
    assert found["slots_ms"] == found["slots_both_ms"]["ours"] > 0
    assert set(found["cost"]) == {"0", "1", "2", "10"}
    for cost in found["cost"].values():
        assert min(cost["ours_us"], cost["plain_us"]) > 0 and 0 <= cost["empty"] <= 1
    assert found["history_mb_per_hour"] > 0
    assert found["history_read_ms"] > 0
