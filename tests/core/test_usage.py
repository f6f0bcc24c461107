"""Usage and budgets of owners: bounded rows, days that fade, and who yields above a budget."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners import usage
from dask_slaq.core.owners.budgets import ALERT_PART, Budgets
from dask_slaq.core.owners.owners import Owners
from dask_slaq.core.owners.terms import OwnerTerms, check_owners
from dask_slaq.core.owners.usage import (
    DAY_SECONDS,
    EARLIER_DAY,
    OTHERS,
    Ledger,
    Spent,
    Usage,
    check_by,
    decayed,
    sum_by,
)


def total(ledger):
    return sum(row.core_seconds for row in ledger.rows.values())


def test_jobs_beyond_the_bound_of_a_day_are_added_up():
    ledger = Ledger()
    for n in range(5000):
        ledger.of(7, "ann", "svm", f"svm-{n}").core_seconds += 1
    assert len(ledger.rows) == usage.MOST_ROWS_BY_JOB + 1 and total(ledger) == 5000
    by_kind = sum_by(ledger.rows.items(), ["kind", "day"])
    assert by_kind == {("svm", 7): Usage(core_seconds=5000)}
    assert sum_by(ledger.rows.items(), ["job"])[OTHERS,].core_seconds == 4000


def test_owners_beyond_the_bound_of_a_day_are_added_up_over_several_writes():
    ledger, seen = Ledger(), 0.0
    for n in range(5000):
        ledger.of(7, f"owner-{n}", "", "").core_seconds += 1
        if n % 100 == 0:
            seen += sum(row.core_seconds for _, row in ledger.drain())
    assert len(ledger.rows) < 100 and total(ledger) + seen == 5000
    assert ledger.of(7, "owner-0", "", "") is not ledger.of(7, "owner-4999", "", "")


def test_former_days_are_added_up_where_nothing_takes_them():
    ledger = Ledger()
    for day in range(300):
        for n in range(200):
            ledger.of(day, "ann", "svm", f"svm-{n}").core_seconds += 1
        ledger.of(day, "bob", "", "").done += 1
    assert len(ledger.rows) <= usage.MOST_ROWS and total(ledger) == 300 * 200
    assert sum_by(ledger.rows.items(), ["owner"])["bob",].jobs == 300
    assert sum_by(ledger.rows.items(), ["kind"]).keys() <= {("svm",), ("",), (OTHERS,)}


def test_use_fades_by_the_half_life():
    now = 100 * DAY_SECONDS + DAY_SECONDS / 2
    assert decayed(EARLIER_DAY, 9e9, now, 7 * DAY_SECONDS) == 0
    assert decayed(93, 800.0, now, 7 * DAY_SECONDS) == pytest.approx(400.0)
    assert decayed(100, 8.0, now, DAY_SECONDS / 4) == pytest.approx(4.0)  # a quarter of a day ago


@pytest.mark.parametrize("by", ["week", [], ["owner", "x"], None, 3, [["owner"]]])
def test_it_is_summed_by_what_it_has(by):
    with pytest.raises(InvalidSetting, match="owner, kind, job, day"):
        check_by(by)
    assert check_by("day") == ("day",) and check_by(["day", "job", "day"]) == ("day", "job")


NAMES = ("ann", "ann@desk", "ann@lab", "bob", "bob@desk", "eve")
steps = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(NAMES), st.floats(-1e5, 1e5)), max_size=60
)
budget = st.builds(
    OwnerTerms,
    core_hours=st.floats(0.1, 100),
    period=st.integers(1, 8).map(lambda n: n * DAY_SECONDS),
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
    assert all(each.part >= ALERT_PART for each in told)
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
        days = terms[own].period / DAY_SECONDS
        used = sum(s for day, n, s in entries if n in mine and today - days < day <= today)
        assert (0.0 if found is None else found.used) == pytest.approx(used / 3600, abs=1e-6)
        if found is not None:
            assert found.is_over == (found.used >= terms[own].core_hours)


def test_each_level_is_told_once_and_again_after_it_was_left():
    spent, owners = Spent(), Owners({"ann": OwnerTerms(core_hours=1.0, period=2 * DAY_SECONDS)})
    budgets, told = Budgets(spent), []
    for day, seconds in zip((0, 0, 0, 0, 1, 2, 2), (2e3, 1e3, 0, 900, 60, 60, 3e3), strict=True):
        spent.add(day, "ann", seconds)
        told.append([each.is_over for each in budgets.update(owners, day)])
    assert told == [[], [False], [], [True], [], [], [False]]
    owners.terms = {"ann": OwnerTerms(core_hours=2.0, period=2 * DAY_SECONDS)}
    assert budgets.update(owners, 2) == [] and not budgets.of("ann").is_over
    assert Budgets(spent).update(Owners({"ann": OwnerTerms(2.0)}), 2) == []


def test_what_was_spent_is_bounded_and_the_newest_days_stay(monkeypatch):
    spent = Spent()
    for day in (*range(500), 3, EARLIER_DAY):
        spent.add(day, "ann", 1.0)
    assert len(spent.days) == usage.MOST_DAYS and min(spent.days) == 500 - usage.MOST_DAYS
    monkeypatch.setattr(usage, "MOST_SPENT_NUMBERS", 40)
    for n in range(90):
        spent.add(500 + n // 30, f"owner-{n}", 1.0)
    assert sum(map(len, spent.days.values())) == spent._size <= 40
    assert 502 in spent.days and len(spent.days[502]) == 30


@pytest.mark.parametrize("policy", ["fair", "first-to-target"])
def test_an_owner_over_its_budget_deserves_what_nobody_else_can_use(policy):
    engine = Engine(policy, owners={"ann": OwnerTerms(5.0)})
    for owner, demand in (("ann", 99), ("bob", 99)):
        engine.add_job(owner, 0.0, owner=owner)
        engine.observe_demand(owner, demand)
    assert engine.reallocate({"w": 12}, 1.0).owners["ann"].deserved == pytest.approx(10.0)
    engine.set_spare({"ann"})
    owners = engine.reallocate({"w": 12}, 2.0).owners
    assert owners["ann"].on_leftovers and not owners["bob"].on_leftovers
    assert owners["ann"].deserved < 0.01 and owners["bob"].deserved > 11.99
    engine.pause("bob")
    assert engine.reallocate({"w": 12}, 3.0).owners["ann"].deserved == pytest.approx(12.0)
    engine.pause("bob", False)
    assert engine.set_spare(()) and not engine.set_spare(())
    assert engine.reallocate({"w": 12}, 4.0).owners["ann"].deserved == pytest.approx(10.0)


def test_budgets_are_read_and_mistakes_named():
    given = {"core-hours": 2000, "period": "30d", "over": "wait"}
    found = check_owners({"ann": {"weight": 2, "budget": given}})["ann"]
    assert found == OwnerTerms(2.0, core_hours=2000.0, period=30 * DAY_SECONDS, over="wait")
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
