"""Whether the scheduler is what tasks wait for: it begins after some looks, and ends later."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.dispatch import LINGER, Look, Overload
from dask_slaq.core.dispatch.constants import CALM, CHOOSING, IDLE, LOOKS, OVERLOADED, PATIENT

BUSY = Look(seconds=0.1, computed=0.095, choosing=0.03, ended=200)
share = st.floats(0, 1)
looks = st.builds(
    lambda seconds, computed, choosing, ended: Look(
        seconds, seconds * computed, seconds * computed * choosing, ended
    ),
    st.floats(0.1, 2.0),
    share,
    share,
    st.integers(0, 1000),
)


def of(*some: Look) -> Overload:
    overload = Overload()
    for look in some:
        overload.look(look)
    return overload


@given(st.lists(looks, max_size=20))
def test_it_begins_only_after_looks_in_a_row_that_are_busy_with_choosing(some):
    overload = Overload()
    for i, look in enumerate(some):
        before = overload.lasts
        overload.look(look)
        if overload.lasts and not before:
            for each in some[i + 1 - LOOKS : i + 1]:
                assert each.computed > OVERLOADED * each.seconds
                assert each.choosing > CHOOSING * each.computed
                assert each.ended


@given(st.lists(looks, max_size=40))
def test_it_ends_only_after_it_was_calm_for_long(some):
    overload, calm = of(*[BUSY] * LOOKS), 0.0
    assert overload.lasts
    for look in some:
        overload.look(look)
        calm = calm + look.seconds if look.computed < CALM * look.seconds else 0.0
        assert overload.lasts == (calm < LINGER)
        if not overload.lasts:
            return


def test_a_graph_that_takes_the_scheduler_long_is_no_overload():
    assert not of(*[BUSY._replace(choosing=0.001)] * 50).lasts


@pytest.mark.parametrize(
    ("change", "begins"),
    [({}, True), ({"idle": IDLE}, False), ({"computed": 0.009}, False), ({"ended": 0}, False)],
)
def test_it_begins_where_threads_idle_while_the_scheduler_waits_for_a_core(change, begins):
    slow = Look(seconds=0.1, computed=0.02, choosing=0.005, ended=30, idle=0.9)
    assert not of(*[slow] * (PATIENT - 1)).lasts
    assert not of(*[slow] * (PATIENT - 1), slow._replace(idle=0.0), slow).lasts
    overload = of(*[slow] * (PATIENT - 1), slow._replace(**change))
    assert overload.lasts == begins
    if begins:  # it computes no more while it waits for a core, and so it is not calm
        for _ in range(200):
            overload.look(slow)
        assert overload.lasts


def test_tasks_are_short_that_all_threads_end_faster_than_the_scheduler_chooses():
    overload = of(*[BUSY] * LOOKS)
    cost = BUSY.computed / BUSY.ended
    assert math.isclose(overload.cost, cost)
    assert overload.is_short(15 * cost, threads=16) and not overload.is_short(17 * cost, threads=16)
    assert overload.is_short(math.nan, threads=16), "nothing is known of a new job"
    assert not Overload().is_short(0.0, threads=16)
