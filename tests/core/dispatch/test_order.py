"""The order of jobs, one rule at a time."""

from __future__ import annotations

import math

import pytest

from dask_slaq.core.dispatch import ANY, Contender, Entry, Like, Order

NOW = 100.0


def test_jobs_are_owed_since_their_balance_began_to_grow():
    order = Order()
    for balance, rate, since in ((2.0, 0.5, 96.0), (1.0, 1.0, 99.0)):
        job = Contender("a", balance=balance, rate=rate, accrued_at=100.0, most_accrued=60.0)
        job.index = 1.0
        assert order.key(job, 100.0).lag == pytest.approx(since)


def test_whoever_prefers_is_told_only_while_others_compete():
    told = []
    order = Order(prefers=told.append)
    first = Contender("first", "owner", index_of=order.waiting)
    first.push(Entry(False, (-5, 0), 0, "x", ANY, (), Like(1.0)))
    order.before([first], NOW)
    assert not told
    other = Contender("other", "another", index_of=order.waiting)
    other.push(Entry(False, (0, 1), 1, "y", ANY, (), Like(1.0)))
    order.before([first, other], NOW)
    assert told == ([first] if first.user_priority() < 0 else [])


def test_a_job_that_is_owed_nothing_comes_in_its_turn_and_one_without_an_account_first():
    order = Order()
    one, first = Contender("a"), Contender("b")
    one.index, first.index = 1.0, math.inf
    assert (order.key(one, NOW).turn, order.key(one, NOW).later) == (2, 1)
    assert (order.key(first, NOW).turn, order.key(first, NOW).later) == (0, 0)
    assert order.key(one, NOW).owner_lag == order.key(first, NOW).owner_lag == 0.0
