"""The scale benchmark measures both sides on a real scheduler, and gives the expected keys."""

from benchmarks import scale


def test_both_sides_are_measured_at_every_occasion(monkeypatch):
    monkeypatch.setattr(scale, "CROWDS", {0: 40, 2: 40})
    monkeypatch.setattr(scale, "SHAPES", {name: scale.SHAPES[name] for name in ("map", "chains")})
    found = scale.measure(tasks=300, jobs=4, workers=8, seconds=2.0, repetitions=1, quick=True)
    for key in ("longest_step_ms", "longest_step_plain_ms"):
        assert set(found[key]) == {"open", "close", "worker", "priority", "homes", "joins"}
        assert all(ms >= 0 for ms in found[key].values())
    assert all(found["ms_per_task"][side] > 0 for side in ("ours", "plain"))
    assert found["slots_ms"] > 0 and found["history_mb_per_hour"] > 0
    assert set(found["cost"]) == {"0", "2"}
    for cost in found["cost"].values():
        assert min(cost["ours_us"], cost["plain_us"]) > 0


def test_calls_per_task_are_few():
    """What a task costs in calls of ours, on any machine; these bounds are today's figures."""
    found = scale.calls("max-total", 0)["calls"]
    assert found["1"] <= 44
    assert found["2"] <= 175
