"""The order of jobs, one rule at a time."""

from __future__ import annotations

import pytest

from dask_slaq.core.dispatch import Contender, Order, Place
from dask_slaq.core.dispatch.contender import Group
from dask_slaq.core.dispatch.order import owner_has_room


def test_jobs_are_owed_since_their_balance_began_to_grow():
    order = Order()
    for balance, rate, since in ((2.0, 0.5, 96.0), (1.0, 1.0, 99.0)):
        job = Contender("a", balance=balance, rate=rate, accrued_at=100.0, most_accrued=60.0)
        job.index = 1.0
        assert order.key(job, 100.0).lag == pytest.approx(since)


def test_an_owner_at_its_limit_sends_nothing_ahead_while_a_thread_is_free_anywhere():
    group = Group(most=1.0, running=1.0)
    free, busy = Place("a", 2, 1), Place("b", 1, 1)
    assert not owner_has_room(group, [free, busy], [busy])
    assert owner_has_room(Group(most=2.0, running=1.0), [free, busy], [busy])
