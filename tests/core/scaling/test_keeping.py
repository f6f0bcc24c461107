"""How long idle workers are kept."""

from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.scaling.keeping import Levels, seconds_to_keep

times = st.lists(st.floats(0.0, 1000.0), max_size=40)


@given(times, st.floats(0.0, 300.0), st.floats(0.0, 60.0))
def test_a_worker_is_kept_for_at_most_what_it_costs_to_get_it_again(pauses, again, least):
    assert least <= seconds_to_keep(pauses, again, least) <= max(again, least) + 1e-6


@given(st.floats(1.0, 500.0), st.floats(10.0, 300.0))
def test_equal_pauses_are_outlasted_or_not_waited_for(pause, again):
    kept = seconds_to_keep([pause] * 60, again)
    assert kept > pause if pause < 0.9 * again else kept <= max(pause, again)
    if pause > 1.2 * again:
        assert kept < 0.5 * again


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.floats(1, 50), st.floats(0, 50))
def test_a_level_stays_for_its_time_and_none_is_missing(pays, start_up, stay):
    levels, begun, target = Levels(), {}, 0
    for at, count in enumerate(pays):
        now, before = 10.0 * at, target
        use = [1.0] * count + [0.0] * (8 - count)
        target = levels.update(count, now, use=use, start_up=start_up, stay=stay)
        assert count <= target <= max(count, before)
        for k in range(1, 9):
            if k <= target:
                begun.setdefault(k, now)
                assert levels.asked(k) == begun[k]
            elif k in begun:
                assert now - begun.pop(k) >= start_up + stay
                assert levels.asked(k) is None


def test_it_learns_from_pauses():
    levels, now = Levels(), 0.0
    given = {"use": [1.0] * 3, "start_up": 60.0, "stay": 0.0}
    for _ in range(5):
        assert levels.update(3, now, **given) == 3
        assert levels.update(0, now + 1, **{**given, "use": [0.0] * 3}) == 3
        now += 40.0
    levels.update(3, now, **given)
    assert levels.pauses == (40.0,) * 15


def test_a_worker_that_is_missed_again_and_again_is_asked_for_at_last():
    levels, asked = Levels(), []
    for second in range(600):
        busy = second % 60 < 12  # too short for a worker that comes after 30 s
        use = [1.0, 9.0 * busy, 0.2 * busy]
        pays = 2 if busy and asked[-31:-30] == [2] else 1  # once it is there
        asked.append(levels.update(pays, float(second), use=use, start_up=30.0, stay=60.0))
    assert asked[:15] == [1] * 15
    assert asked[100:] == [2] * 500  # and it is kept between two of them


def test_what_is_missed_is_forgotten():
    levels = Levels()
    for second in range(0, 36000, 60):
        use = [1.0, 1.0 if second % 3600 < 60 else 0.0]
        target = levels.update(1, float(second), use=use, start_up=30.0, stay=60.0)
        assert target == 1


def test_a_worker_that_would_mostly_be_idle_is_not_asked_for():
    levels = Levels()
    for second in range(36000):
        busy = second % 120 < 20  # worth 50 seconds of it, of the 120 that it would cost
        use = [1.0, 2.5 * busy]
        assert levels.update(1, float(second), use=use, start_up=30.0, stay=60.0) == 1
