"""Timers: each rings in time, keeps one entry per value, and rests after work that failed, too."""

import asyncio
import contextlib
import itertools

import pytest
from driving import virtually
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import virtual
from dask_slaq.scheduler.event_loop import Throttle, Timers


@virtually
async def test_an_alarm_keeps_one_entry_per_value_until_it_is_cancelled():
    rung = []
    alarm = Timers(rung.extend)
    for epoch in range(400):
        for worker in range(50):
            alarm.set(virtual.now() + 3600 - epoch, f"worker-{worker}")
    assert len(alarm) == 50
    alarm.forget("worker-7")
    await asyncio.sleep(4000)
    assert sorted(rung) == sorted(f"worker-{i}" for i in range(50) if i != 7)
    assert len(alarm) == 0
    rung.clear()
    alarm.set(virtual.now() + 1, "a")
    alarm.cancel()
    await asyncio.sleep(2)
    assert rung == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=40))
@virtually
async def test_an_alarm_rings_for_each_value_at_the_earliest_time_asked_for(asked):
    """At each value's time; what was asked for later is asked for again by who looks then."""
    begin, rung, earliest = virtual.now(), {}, {}

    def ring(values):
        for value in values:
            rung.setdefault(value, virtual.now() - begin)

    alarm = Timers(ring)
    for value, delay in asked:
        alarm.set(begin + delay, value)
        earliest[value] = min(delay, earliest.get(value, delay))
    await asyncio.sleep(60)
    assert rung.keys() == earliest.keys()
    assert all(abs(rung[value] - at) < 0.001 for value, at in earliest.items())


@pytest.mark.parametrize(("rest", "at"), [(True, 5.0), (False, 1.0)])
@virtually
async def test_what_is_urgent_does_not_wait_for_the_end_of_a_rest(rest, at):
    called = []
    soon = Throttle(lambda: called.append(virtual.now()), 0.0, least=5.0, delay=1.0)
    with soon.work():
        begin = virtual.now()
    soon.ask()
    soon.ask(rest=rest)
    await asyncio.sleep(20)
    assert [each - begin for each in called] == [pytest.approx(at)]


@virtually
async def test_work_that_fails_is_followed_by_a_rest_as_well():
    """Otherwise what fails would be tried again at once, as often as somebody asks."""
    at = []

    def fails():
        at.append(virtual.now())
        with contextlib.suppress(ZeroDivisionError), soon.work():
            raise ZeroDivisionError
        if len(at) < 20:
            soon.ask()

    soon = Throttle(fails, 0.0, least=0.5)
    fails()
    await asyncio.sleep(20)
    assert len(at) == 20
    assert [round(later - before, 3) for before, later in itertools.pairwise(at)] == [0.5] * 19
