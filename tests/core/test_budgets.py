"""Budgets of owners: what counts for which, in which days, and who yields to whom above them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core import usage
from dask_slaq.core.budgets import ALERT_AT, Budgets
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owner_settings import check_owners
from dask_slaq.core.owner_terms import OwnerTerms
from dask_slaq.core.owners import Owners
from dask_slaq.core.usage import DAY, EARLIER, Spent

NAMES = ("ann", "ann@desk", "ann@lab", "bob", "bob@desk", "eve")
steps = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(NAMES), st.floats(-1e5, 1e5)), max_size=60
)
budget = st.builds(
    OwnerTerms, core_hours=st.floats(0.1, 100), period=st.integers(1, 8).map(lambda n: n * DAY)
)
terms = st.dictionaries(st.sampled_from(["ann", "ann@lab", "bob", "default"]), budget)


@given(steps, terms, st.integers(6, 13))
def test_each_budget_counts_the_whole_days_of_its_period(steps, terms, today):
    """Against counting every entry anew, for each owner by itself."""
    spent, owners, entries = Spent(), Owners(terms), []
    budgets, told = Budgets(spent), []
    for day, name, seconds in sorted(steps, key=lambda step: step[0]):
        if day <= today:
            spent.add(day, name, seconds)
            entries.append((day, name, seconds))
            told += budgets.update(owners, day)
    told += budgets.update(owners, today)
    assert all(each.part >= ALERT_AT for each in told)
    for name in NAMES:
        own = next((n for n in (name, name.partition("@")[0], "default") if n in terms), None)
        found = budgets.of(name)
        if own is None:
            assert found is None
            continue
        mine = {name} if own == "default" else {n for n in NAMES if n.partition("@")[0] == own}
        if own == "ann":
            mine -= {"ann@lab"} & terms.keys()
        if "@" in own:
            mine = {own}
        days = terms[own].period / DAY
        used = sum(s for day, n, s in entries if n in mine and today - days < day <= today)
        assert (0.0 if found is None else found.used) == pytest.approx(used / 3600, abs=1e-6)
        if found is not None:
            assert found.is_over == (found.used >= terms[own].core_hours)


def test_each_level_is_told_once_and_again_after_it_was_left():
    spent, owners = Spent(), Owners({"ann": OwnerTerms(core_hours=1.0, period=2 * DAY)})
    budgets, told = Budgets(spent), []
    for day, seconds in (
        (0, 2000.0),
        (0, 1000.0),
        (0, 0.0),
        (0, 900.0),
        (1, 60.0),
        (2, 60.0),
        (2, 3000.0),
    ):
        spent.add(day, "ann", seconds)
        told.append([each.is_over for each in budgets.update(owners, day)])
    assert told == [[], [False], [], [True], [], [], [False]]
    owners.terms = {"ann": OwnerTerms(core_hours=2.0, period=2 * DAY)}
    assert budgets.update(owners, 2) == [] and not budgets.of("ann").is_over
    assert Budgets(spent).update(Owners({"ann": OwnerTerms(2.0)}), 2) == []


def test_what_was_spent_is_bounded_and_the_newest_days_stay(monkeypatch):
    spent = Spent()
    for day in (*range(500), 3, EARLIER):
        spent.add(day, "ann", 1.0)
    assert len(spent.days) == usage.MOST_DAYS and min(spent.days) == 500 - usage.MOST_DAYS
    monkeypatch.setattr(usage, "MOST_SPENT", 40)
    for n in range(90):
        spent.add(500 + n // 30, f"owner-{n}", 1.0)
    assert sum(map(len, spent.days.values())) == spent._size <= 40
    assert 502 in spent.days and len(spent.days[502]) == 30


@pytest.mark.parametrize("policy", ["fair", "max-total", "first-to-target", "las"])
def test_an_owner_over_its_budget_deserves_what_nobody_else_can_use(policy):
    engine = Engine(policy, owners={"ann": OwnerTerms(5.0)})
    for owner, demand in (("ann", 99), ("bob", 99)):
        engine.add_job(owner, 0.0, owner=owner)
        engine.observe_demand(owner, demand)
    assert engine.reallocate({"w": 12}, 1.0).owners["ann"].deserved == pytest.approx(10.0)
    engine.set_spare({"ann"})
    owners = engine.reallocate({"w": 12}, 2.0).owners
    assert owners["ann"].spare and not owners["bob"].spare
    assert owners["ann"].deserved < 0.01 and owners["bob"].deserved > 11.99
    engine.pause("bob")
    assert engine.reallocate({"w": 12}, 3.0).owners["ann"].deserved == pytest.approx(12.0)
    engine.pause("bob", False)
    assert engine.set_spare(()) and not engine.set_spare(())
    assert engine.reallocate({"w": 12}, 4.0).owners["ann"].deserved == pytest.approx(10.0)


def test_budgets_are_read_and_mistakes_named():
    given = {"core-hours": 2000, "period": "30d", "over": "wait"}
    found = check_owners({"ann": {"weight": 2, "budget": given}})["ann"]
    assert found == OwnerTerms(2.0, core_hours=2000.0, period=30 * DAY, over="wait")
    assert check_owners({"ann": {"budget": {"core-hours": math.inf}}})["ann"] == OwnerTerms()
    for wrong, words in (
        ({"budget": 2000}, "budget of owner 'ann' must be a mapping such as"),
        ({"budget": {"core-hours": 0}}, "core-hours of owner 'ann' must be a number > 0"),
        ({"budget": {"core-hours": True}}, "core-hours of owner 'ann' must be a number > 0"),
        ({"budget": {"period": "1h"}}, "period of owner 'ann' must be a number of days from 1d"),
        ({"budget": {"period": "9999d"}}, "to 365d, not '9999d'"),
        ({"budget": {"over": "stop"}}, "must be wait or spare: what happens above its budget"),
        ({"budget": {"hours": 3}}, "'hours' is not a setting of an owner"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            check_owners({"ann": wrong})
