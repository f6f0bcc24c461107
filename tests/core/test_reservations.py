"""Reservations: who deserves what while they last, and which are refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.reservations import Reservations
from dask_slaq.core.owners.terms import OwnerTerms
from dask_slaq.core.policies import fair_fill


def deserved(threads, demand, reserved, owners=None, spare=()):
    engine = Engine("fair", owners=owners)
    for owner, tasks in demand.items():
        engine.add_job(owner, 0.0, owner=owner)
        engine.observe_demand(owner, tasks)
    engine.set_reserved(reserved)
    engine.set_spare(spare)
    for at in range(1, 30):  # past the epoch in which newcomers count as if they could use all
        for owner, tasks in demand.items():
            engine.observe_demand(owner, tasks)
        grants = engine.reallocate({"w": threads}, float(at)).owners
    return {owner: grants[owner].deserved for owner in demand} if grants else {}


def test_what_is_reserved_is_deserved_as_far_as_it_is_wanted():
    both = {"ann@desk": 99, "bob": 99}
    assert deserved(20, both, {"ann": 16.0}) == pytest.approx({"ann@desk": 16, "bob": 4})
    weights = {"ann": OwnerTerms(9.0)}
    assert deserved(20, both, {"ann": 16.0}, weights)["ann@desk"] == pytest.approx(18)
    limited = {"ann": OwnerTerms(max_threads=3.0)}
    assert deserved(20, both, {"ann": 16.0}, limited)["ann@desk"] == pytest.approx(3)
    assert deserved(20, both, {"eve": 16.0}, {})["bob"] == pytest.approx(10)
    over = deserved(20, both, {"ann": 16.0}, {}, {"ann@desk"})
    assert over["bob"] == pytest.approx(20, abs=1e-3)  # the budget holds


def test_machines_of_a_user_share_what_is_reserved_and_too_much_is_scaled_down():
    three = {"ann@desk": 99, "ann@lab": 99, "bob": 99}
    assert deserved(20, three, {"ann": 16.0}) == pytest.approx(
        {"ann@desk": 8, "ann@lab": 8, "bob": 4}
    )
    found = deserved(20, {"ann": 99, "bob": 99, "eve": 99}, {"ann": 60.0, "bob": 20.0})
    assert found == pytest.approx({"ann": 10, "bob": 10, "eve": 0}, abs=1e-6)


amounts = st.lists(
    st.tuples(st.floats(0.5, 30), st.floats(0, 30), st.floats(0.1, 5)), min_size=1, max_size=5
)


@given(amounts, st.floats(1, 40))
def test_nobody_deserves_less_than_is_reserved_while_that_fits(rows, capacity):
    cap, floor, weight = np.array(rows).T
    found = fair_fill(weight, floor, cap, capacity)
    assert found.sum() <= capacity + 1e-6
    if np.minimum(floor, np.minimum(cap, capacity)).sum() <= capacity:
        assert (found >= np.minimum(floor, np.minimum(cap, capacity)) - 1e-6).all()


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 9)), max_size=20)


@given(spans, st.integers(0, 90))
def test_they_count_from_their_begin_to_their_end(spans, at):
    known, made = Reservations(), []
    for begin, length, threads in spans:
        one = known.add("ann", threads, begin, begin + length, now=-1.0)
        made.append(one)
        assert known.most(one.begin, one.end) >= threads
    expected = sum(one.threads for one in made if one.begin <= at < one.end)
    assert known.at(at).get("ann", 0.0) == expected
    listed = [one["number"] for one in known.as_dicts(at)]
    assert sorted(listed) == [one.number for one in made if one.end > at]
    if listed:
        known.remove(listed[0])
        with pytest.raises(InvalidSetting, match=f"no reservation {listed[0]}"):
            known.remove(listed[0])
    later = known.add("bob", 1, at, at + 5, now=at)
    assert later.number == len(made) + 1  # no number is given twice


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("", 1, 0, 1), "owner must be"),
        (("ann", 0, 0, 1), "threads must be a number > 0"),
        (("ann", math.nan, 0, 1), "threads must be a number > 0"),
        (("ann", 1, 0, "x"), "from a time to another"),
        (("ann", 1, 5, 5), "must end after it begins"),
        (("ann", 1, -9, -1), "must end after it begins"),
        (("ann", 1, 0, 1e9), "within 366 days"),
    ],
)
def test_wrong_ones_are_refused(given, words):
    known = Reservations()
    with pytest.raises(InvalidSetting, match=words):
        known.add(*given, now=0.0)
    assert known.by_number == {}
