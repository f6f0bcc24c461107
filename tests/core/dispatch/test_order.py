"""The order of jobs, one rule at a time."""

from __future__ import annotations

import pytest

from dask_slaq.core.dispatch import Contender, Like, Order, Place, Sent
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


def test_it_lets_a_task_wait_only_where_one_of_its_own_is_about_to_end():
    group = Group(most=1.0, running=1.0)
    mine, others = Contender("mine", group=group), Contender("others")
    group.pools.append(mine)
    like = Like()

    def at(name: str, job: Contender) -> Place:
        sent = Sent(job, like, True, "", (), 0.0, 1.0, 0.5)
        sent.start = 99.5
        return Place(name, 1, 1, [sent], now=100.0)

    ends, stays = at("a", mine), at("b", others)
    assert owner_has_room(group, [ends, stays], [stays, ends])
    assert not owner_has_room(group, [ends, stays], [stays])


def test_beside_a_full_team_it_waits_for_one_that_is_of_both():
    team = Group(most=1.0, running=1.0)
    group = Group(most=1.0, running=1.0, team=team)
    mine, of_team = Contender("mine", group=group), Contender("of team", group=Group(team=team))
    group.pools.append(mine)
    team.pools += [mine, of_team]

    def at(job: Contender) -> Place:
        sent = Sent(job, Like(), True, "", (), 0.0, 1.0, 0.5)
        sent.start = 99.5
        return Place("w", 1, 1, [sent], now=100.0)

    assert owner_has_room(group, [], [at(mine)])
    assert not owner_has_room(group, [], [at(of_team)])
