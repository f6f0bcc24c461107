"""How long idle workers are kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.scaling import Levels, seconds_to_keep

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


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.floats(0, 50), st.floats(0, 50))
def test_a_level_stays_for_its_time_and_none_is_missing(wanted, keep, stay):
    levels, begun, last = Levels(), {}, {}
    for at, count in enumerate(wanted):
        now = 10.0 * at
        target = levels.update(count, now, keep, stay)
        assert target >= count
        for k in range(1, 9):
            if k <= count:
                last[k] = now
            if k <= target:
                begun.setdefault(k, now)
            elif k in begun:
                begun.pop(k)
        assert [levels.asked(k) is not None for k in range(1, 9)] == list(np.arange(1, 9) <= target)
        top = [k for k in begun if now - last[k] < keep or now - begun[k] < stay]
        assert target == max([count, *top])


def test_it_learns_from_pauses():
    levels, now = Levels(), 0.0
    for _ in range(5):
        assert levels.update(3, now, 60.0, 0.0) == 3
        assert levels.update(0, now + 1, 60.0, 0.0) == 3
        now += 40.0
    levels.update(3, now, 60.0, 0.0)
    assert levels.pauses == (40.0,) * 15
