"""Owners that used much lately yield to others, as far as the promises of their jobs allow."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.owner_terms import OwnerTerms, standings
from dask_slaq.core.owners import LEAST_FACTOR


def owners_of(used, latest=2.0, owners=None, names=("ann", "bob"), **settings):
    """The grants of owners with a job each, which could use all of twelve threads."""
    engine = Engine("max-total", owners=owners or {}, latest=latest)
    for name in names:
        engine.add_job(f"job of {name}", 0.0, owner=name, **settings.get(name, {}))
        engine.observe_demand(f"job of {name}", 99)
    engine.observe_use(used)
    return engine.reallocate({"w": 12}, 1.0).owners


@pytest.mark.parametrize(
    ("latest", "ann"),
    [(math.inf, 2.4), (5.0, 2.4), (2.0, 3.0), (1.0, 6.0)],
)
def test_an_owner_that_used_all_lately_yields_within_its_promise(latest, ann):
    found = owners_of({"ann": 50.0}, latest)
    assert found["ann"].deserved == pytest.approx(ann)
    assert found["bob"].deserved == pytest.approx(12 - ann)
    assert (found["ann"].factor, found["bob"].factor) == (0.25, 1.0)
    assert (found["ann"].lately, found["bob"].lately) == (2.0, 0.0)


def test_use_is_compared_with_the_share():
    owners = {"ann": OwnerTerms(3.0)}
    fair = owners_of({}, owners=owners)
    assert owners_of({"ann": 30.0, "bob": 10.0}, owners=owners)["ann"].deserved == pytest.approx(
        fair["ann"].deserved
    )
    less = owners_of({"ann": 20.0, "bob": 20.0}, owners=owners)
    assert less["ann"].deserved > fair["ann"].deserved == 9.0


def test_one_job_with_a_promise_of_its_own_keeps_it():
    found = owners_of({"ann": 50.0}, math.inf, ann={"latest": 1.5})
    assert found["ann"].deserved == pytest.approx(4.0)


def test_the_factor_is_bounded_and_no_use_changes_nothing():
    names = [f"owner-{n}" for n in range(12)]
    found = owners_of({"owner-3": 1e9}, math.inf, names=names)
    assert found["owner-3"].factor == LEAST_FACTOR and found["owner-3"].lately == 12
    assert found["owner-3"].deserved == pytest.approx(12 * 0.1 / 11.1)
    assert owners_of({"nobody": 5.0}) == owners_of({}) == owners_of({"ann": 0.0})
    assert {grant.factor for grant in owners_of({}).values()} == {1.0}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=9))
def test_threads_are_lent_only_as_far_as_others_borrowed(pairs):
    deserved, got = ({str(i): pair[at] for i, pair in enumerate(pairs)} for at in (0, 1))
    found = standings(deserved, got)
    lent, borrowed = (sum(each[key] for each in found.values()) for key in ("lent", "borrowed"))
    assert lent <= borrowed + 1e-6
    for name, each in found.items():
        assert each["got"] + each["lent"] + each["idle"] - each["borrowed"] == pytest.approx(
            deserved[name], abs=1e-6
        )
