"""Owners and their teams: shares, limits and use count at each level; who used much yields."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.budgets import Budgets
from dask_slaq.core.owners.owners import LEAST_FACTOR, Owners
from dask_slaq.core.owners.terms import OwnerTerms, check_owners, standings
from dask_slaq.core.owners.tree import OwnerTree
from dask_slaq.core.owners.usage import Spent
from dask_slaq.core.policies import fair_fill


def owners_of(used, max_slowdown=2.0, owners=None, names=("ann", "bob"), **settings):
    """The grants of owners with a job each, which could use all of twelve threads."""
    engine = Engine("max-total", owners=owners or {}, max_slowdown=max_slowdown)
    for name in names:
        engine.add_job(f"job of {name}", 0.0, owner=name, **settings.get(name, {}))
        engine.observe_demand(f"job of {name}", 99)
    engine.observe_use(used)
    return engine.reallocate({"w": 12}, 1.0).owners


@pytest.mark.parametrize(
    ("max_slowdown", "ann"), [(math.inf, 2.4), (5.0, 2.4), (2.0, 3.0), (1.0, 6.0)]
)
def test_an_owner_that_used_all_lately_yields_within_its_promise(max_slowdown, ann):
    found = owners_of({"ann": 50.0}, max_slowdown)
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
    found = owners_of({"ann": 50.0}, math.inf, ann={"max_slowdown": 1.5})
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


NAMES = ("a", "a/x", "a/y", "a/z/p", "a/z/q", "b/x", "b/x@desk", "c", "d@desk")


def engine_of(owners, *names, threads=12, tasks=99, **known):
    """An engine with a job of each owner, which could use so many `tasks`."""
    engine = Engine("max-total", owners=check_owners(owners), max_slowdown=math.inf)
    for name in names:
        engine.add_job(f"job of {name}", 0.0, owner=name)
        engine.observe_demand(f"job of {name}", known.get(name.replace("/", "_"), tasks))
    return engine


def deserved(*args, used=None, **known):
    """Return the threads of each owner and team after some decisions."""
    engine = engine_of(*args, **known)
    engine.observe_use(used or {})
    found = engine.reallocate({"w": 12}, 1.0)
    return {name: pytest.approx(grant.deserved) for name, grant in found.owners.items()}


def test_weights_and_limits_hold_at_each_level():
    owners = {
        "a": {"weight": 9, "max-threads": 8},
        "a/x": {"weight": 3},
        "b": {"weight": 1},
        "b/default": {"max-threads": 1},
    }
    found = deserved(owners, "a/x@desk", "a/y", "b/x", "b/y", "c")
    # b is at the limits of its members, and a at its own; c takes what they leave.
    assert found["a/"] == 8 and found["a/x@desk"] == 6 and found["a/y"] == 2
    assert found["b/"] == 2 and found["b/x"] == found["b/y"] == 1
    assert found["c"] == 2


def test_what_a_member_leaves_goes_to_its_team_first():
    tree = OwnerTree(("a/x", "a/y", "b"), Owners({}).line)
    one = np.ones(4)
    share = tree.fill(one, 0 * one[:3], np.array([1.0, 9.0, 9.0]), 9 * one, 12.0)
    assert share.tolist() == [1, 5, 6, 6]


def test_a_team_that_owns_jobs_itself_has_no_second_share_or_limit():
    owners = {"a": {"max-threads": 4, "weight": 2}}
    engine = engine_of(owners, "a", "a@elsewhere", "a/x", "b")
    grants = engine.reallocate({"w": 12}, 1.0)
    for name in ("a", "a@elsewhere", "a/x"):
        assert engine.owners.line(name) == (name, "a/")
        assert grants.owners[name].deserved == pytest.approx(4 / 3)
        assert grants.owners[name].max_threads == math.inf
    assert grants.owners["a/"].max_threads == 4
    for name in ("a", "a@elsewhere", "a/x"):
        engine.remove_job(f"job of {name}", now=2.0)
    assert not engine.jobs.teams
    assert engine.owners.line("a") == ("a",)  # without members it is an owner as all others


def test_who_is_listed_in_a_team_cannot_leave_it_by_another_name():
    owners = Owners(check_owners({"a": {"max-threads": 2}, "a/ann": {}, "b/ann": {}, "bob": {}}))
    for name in ("ann", "ann@desk", "a/ann@lab", "a//ann", "/a/ann"):
        assert owners.line(name) == (name, "a/")
    assert owners.line("b/ann") == ("b/ann", "b/")
    assert owners.line("bob@desk") == ("bob@desk",) and owners.line("eve") == ("eve",)


def test_use_of_a_team_lowers_its_weight_and_that_of_its_member_within_it():
    found = deserved({}, "a/x", "a/y", "b", used={"a/x": 60.0})
    assert found["a/"] == pytest.approx(12 * 0.25 / 1.25) and found["b"] == 12 / 1.25
    assert found["a/x"] == pytest.approx(2.4 * 0.25 / 1.25)


def test_a_reservation_for_a_team_is_for_all_of_its_members():
    engine = engine_of({}, "a/x", "a/y", "b", "c", "d", "e")
    engine.set_reserved({"a": 9.0})
    owners = engine.reallocate({"w": 12}, 1.0).owners
    assert owners["a/"].deserved == pytest.approx(9)
    assert owners["a/x"].deserved == owners["a/y"].deserved == pytest.approx(4.5)
    assert owners["b"].deserved == pytest.approx(0.75)


def test_budgets_count_at_each_level_and_the_one_that_limits_is_shown():
    budget = {"core-hours": 3, "period": "2d"}
    owners = Owners(
        check_owners({"a": {"budget": budget}, "a/x": {"budget": {**budget, "over": "wait"}}})
    )
    spent = Spent()
    spent.add(0, "a/x@desk", 3600.0)
    spent.add(1, "a/y", 5400.0)
    spent.add(1, "a", 3600.0)
    spent.add(1, "b/x", 99_999.0)
    budgets = Budgets(spent)
    told = budgets.update(owners, today=1)
    assert [(each.account, each.used) for each in told] == [("a", 3.5)]
    assert budgets.of("a/y").account == budgets.of("a/x").account == "a"
    assert budgets.of("a/y").is_over and not budgets.of("a/y").waits
    assert budgets.of("b/x") is None
    spent.add(1, "a/x", 7200.0)
    budgets.update(owners, today=1)
    assert budgets.of("a/x@lab").account == "a/x" and budgets.of("a/x").waits
    assert budgets.of("a/y").used == 5.5


some_owners = st.lists(st.sampled_from(NAMES), min_size=1, max_size=9, unique=True)
some_terms = st.dictionaries(
    st.sampled_from(("a", "a/x", "a/z", "a/z/p", "b", "c", "d", "a/default", "default")),
    st.builds(
        OwnerTerms, st.floats(0.1, 10), st.one_of(st.just(math.inf), st.integers(1, 12).map(float))
    ),
)


@given(some_owners, some_terms, st.lists(st.integers(0, 12), min_size=9, max_size=9))
def test_shares_keep_to_the_limits_of_all_levels_and_waste_nothing(names, terms, wanted):
    names = tuple(sorted(names))
    tree = Owners(terms).tree(names)
    weight = np.array([Owners(terms).of(name).weight for name in tree.names])
    limit = np.array([Owners(terms).of(name).max_threads for name in tree.names])
    cap = np.array(wanted[: len(names)], float)
    share = tree.fill(weight, 0 * cap, cap, limit, 12.0)
    assert (share <= limit + 1e-9).all() and (share[: len(names)] <= cap + 1e-9).all()
    assert share == pytest.approx(tree.sums(share[: len(names)]))
    # What is left over nobody could use: each who wants more is at a limit, its own or above.
    left = 12 - share[: len(names)].sum()
    for i, want in enumerate(cap):
        if left > 1e-6 and share[i] < want - 1e-6:
            at = [i]
            while tree.above[at[-1]] >= 0:
                at.append(tree.above[at[-1]])
            assert any(share[k] >= limit[k] - 1e-6 for k in at)


@given(some_owners, st.lists(st.floats(0.1, 10), min_size=9, max_size=9))
def test_flat_weights_share_as_the_tree_does_if_all_want_all(names, weights):
    names = tuple(sorted(names))
    tree = Owners({}).tree(names)
    weight = np.array((weights * 2)[: len(tree.names)])
    n, one = len(names), np.ones(len(tree.names))
    share = tree.fill(weight, np.zeros(n), 12 * np.ones(n), 99 * one, 12.0)
    flat = tree.flat(weight, np.ones(n) > 0)
    assert 12 * flat / flat.sum() == pytest.approx(share[:n])


@given(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), st.data())
def test_without_a_slash_nothing_changes(names, data):
    n = len(names)
    numbers = st.lists(st.floats(0.1, 12), min_size=n, max_size=n)
    weight, cap, floor = (np.array(data.draw(numbers)) for _ in range(3))
    tree = Owners({}).tree(tuple(names))
    assert tree.names == tuple(names) and tree.flat(weight, cap > 1).tolist() == weight.tolist()
    filled = tree.fill(weight, floor, cap, np.full(n, math.inf), 12.0)
    assert filled.tolist() == fair_fill(weight, floor, cap, 12.0).tolist()


@pytest.mark.parametrize("name", ["a\nb", "/ann", "a//b", "default/x", "a/default/x", "\x1b[31m"])
def test_names_that_nobody_can_read_or_be_are_refused(name):
    with pytest.raises(InvalidSetting, match=r"must have names like|printable characters"):
        check_owners({name: {}})
    check_owners({"ann": {}, "ann@desk": {}, "a/b/default": {}, "default": {}, "a/": {}})


def test_an_owner_without_jobs_is_owed_nothing_for_the_time_without_any():
    engine = Engine("fair", owners={})
    engine.add_job("before", 0.0, owner="ann")
    engine.observe_demand("before", 9)
    engine.reallocate({"w": 2}, 1.0)
    engine.remove_job("before", 2.0, "done")
    for owner in ("ann", "bob"):  # nothing was decided meanwhile
        engine.add_job(f"job of {owner}", 100.0, owner=owner)
        engine.observe_demand(f"job of {owner}", 9)
    owners = engine.reallocate({"w": 2}, 101.0).owners
    assert owners["ann"].tokens <= owners["bob"].tokens
