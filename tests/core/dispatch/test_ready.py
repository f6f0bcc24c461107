"""Ready tasks of one kind, against a plain list of them; and the order of jobs, rule by rule."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.dispatch import DurationEstimate, Guarantee, Handover, JobQueue, Order
from dask_slaq.core.dispatch.job_queue import OWED, WITHIN_CAP
from dask_slaq.core.dispatch.ready import Ready

WORKERS, NOBODY = ("a", "b", "c"), JobQueue("")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(-2, 2), st.sets(st.sampled_from(WORKERS))),
        st.tuples(st.just("pop"), st.integers(0, 10**6), st.none()),
        st.tuples(st.just("take"), st.integers(0, 3), st.none()),
    ),
    max_size=40,
)


@given(steps)
def test_the_first_at_each_home_is_that_of_a_plain_list(steps):
    ready, kept = Ready(), []
    for count, (what, number, preferred) in enumerate(steps):
        if what == "push":
            rank, preferred = (False, (number,), count), tuple(sorted(preferred))
            task = Handover(NOBODY, count, DurationEstimate(), rank, preferred=preferred)
            ready.push(task)
            kept.append(task)
        elif kept and what == "pop":
            task = kept.pop(number % len(kept))
            assert ready.pop(task) and not ready.pop(task)
        elif kept:  # what is first somewhere goes first
            task = ready.at(("", *WORKERS)[number])
            if task is not None:
                kept.remove(task)
                ready.pop(task)
        at = {home: [e for e in kept if home in (e.preferred or ("",))] for home in ("", *WORKERS)}
        counts = Counter({home: len(some) for home, some in at.items() if some})
        assert ready.count_at == counts and set(ready.preferred) == set(counts)
        assert len(ready) == len(kept) and all(task in ready for task in kept)
        for home, some in at.items():
            assert ready.at(home) is (min(some, key=lambda task: task.rank) if some else None)


NOW = 100.0


def test_jobs_are_owed_since_their_balance_began_to_grow():
    order = Order()
    for balance, rate, since in ((2.0, 0.5, 96.0), (1.0, 1.0, 99.0)):
        job = JobQueue("a", account=Guarantee(balance, rate, 100.0, 60.0))
        job.granted.index = 1.0
        assert order.key(job, 100.0).lag == pytest.approx(since)


def test_whoever_prefers_is_told_only_while_others_compete():
    told = []
    order = Order(prefers=told.append)
    first = JobQueue("first", "owner", index_of=order.waiting)
    first.push(Handover(first, "x", DurationEstimate(1.0), (False, (-5, 0), 0)))
    order.before([first], NOW)
    assert not told
    other = JobQueue("other", "another", index_of=order.waiting)
    other.push(Handover(other, "y", DurationEstimate(1.0), (False, (0, 1), 1)))
    order.before([first, other], NOW)
    assert told == ([first] if first.user_priority() < 0 else [])


def test_a_job_that_is_owed_nothing_comes_in_its_turn_and_one_without_an_account_first():
    order = Order()
    one, first = JobQueue("a"), JobQueue("b")
    one.granted.index, first.granted.index = 1.0, math.inf
    assert (order.key(one, NOW).standing, order.key(one, NOW).rank) == (WITHIN_CAP, 1)
    assert (order.key(first, NOW).standing, order.key(first, NOW).rank) == (OWED, 0)
    assert order.key(one, NOW).owner_lag == order.key(first, NOW).owner_lag == 0.0


def test_a_job_with_strict_sets_is_entitled_to_its_share_and_to_a_fraction_by_tokens():
    order, job = Order(lend=False), JobQueue("a")
    job.granted.index, job.granted.share = 1.0, 1.5
    job.tokens = Guarantee(-0.5, 1.5, NOW)
    assert order.key(job, NOW).entitled
    job.enter(Handover(job, "x", DurationEstimate()), "w", moves=False)
    assert not order.key(job, NOW + 0.3).entitled
    assert order.key(job, NOW + 0.34).entitled
    job.enter(Handover(job, "y", DurationEstimate()), "w", moves=False)
    assert not order.key(job, NOW + 9).entitled
    assert order.key(job, NOW + 9).standing == WITHIN_CAP
