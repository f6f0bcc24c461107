"""Which slot a task takes or leaves, in numbers: one situation each, of a few workers and jobs."""

from __future__ import annotations

import math

import pytest

from dask_slaq.core.dispatch import (
    ANY,
    Contender,
    Entry,
    Group,
    Inputs,
    Like,
    Order,
    Pinned,
    Place,
    Sent,
    TaskKind,
    Turn,
    decide,
)

NOW = 100.0


def runs_at(place: Place, job: Contender, seconds: float) -> Sent:
    """Let a task of a job run at a place, with some seconds left."""
    sent = Sent(job, Like(seconds), True, "", (), 0.0, seconds, seconds)
    sent.worker, sent.start = place.address, NOW
    place.sent, place.load = [*place.sent, sent], place.load + 1
    job.running[f"runs-{place.address}-{len(place.sent)}"] = sent
    job.use(1.0)
    return sent


def ready(job: Contender, count: int, seconds: float, homes=(), kind=ANY, name="t") -> Entry:
    entry = Entry(False, (0, count), count, f"{job.name}-{count}", kind, homes, Like(seconds))
    entry = entry._replace(name=name)
    job.push(entry)
    return entry


def turn_of(*places: Place, fetch: float = 0.0, **more) -> Turn:
    by_name = {place.address: place for place in places}
    return Turn(
        {a: p for a, p in by_name.items() if p.has_thread}, NOW, sum(p.nthreads for p in places),
        len(places), by_name.get,
        inputs=lambda entry: Inputs(fetch, entry.homes, lambda address: fetch), **more,
    )  # fmt: skip


def test_a_task_waits_at_its_home_for_the_resource_that_is_taken_there():
    order = Order()
    job, others = Contender("a", index_of=order.waiting), Contender("b", index_of=order.waiting)
    gpu = (("GPU", 1.0),)
    home = Place("home", 2, 0, now=NOW, resources={"GPU": 1.0})
    away = Place("away", 1, 0, now=NOW, resources={"GPU": 1.0})
    runs_at(home, others, 5.0).needs = gpu
    home.used_resources = {"GPU": 1.0}
    ready(job, 0, 1.0, ("home",), TaskKind(None, gpu))
    # A thread is free at home, but its GPU not for 5 s: it moves in 2 s.
    assert [c.address for c in decide(order, turn_of(home, away, fetch=2.0))] == ["away"]


@pytest.mark.parametrize(("room", "started"), [(4, 4), (3, 2), (1, 0)])
def test_members_of_gangs_start_together_only_while_their_label_has_room_for_all(room, started):
    order = Order()
    job = Contender("a", index_of=order.waiting)
    gangs, places = [], []
    for number in range(2):
        members = []
        for k in range(2):
            place = Place(f"w{number}{k}", 1, 0, now=NOW)
            kind = TaskKind(frozenset({place.address}), None, "label")
            entry = Entry(False, (0,), 2 * number + k, f"m-{number}-{k}", kind, (), Like())
            job.push(entry, filed=False)
            places.append(place)
            members.append((entry, place.address, 1.0))
        gangs.append(Pinned(members))
    turn = turn_of(*places, room=lambda label: room, pinned={job: gangs})
    assert len(decide(order, turn)) == started


def test_a_gang_that_needs_a_resource_starts_where_each_has_one():
    order, gpu = Order(), (("GPU", 1.0),)
    job = Contender("a", gang=True, index_of=order.waiting)
    places = [Place(name, 2, 0, now=NOW, resources={"GPU": 1.0}) for name in ("w", "v")]
    for count in range(2):
        ready(job, count, 1.0, kind=TaskKind(None, gpu))
    found = decide(order, turn_of(*places, free=lambda kinds: (4, 4)))
    assert {choice.address for choice in found} == {"w", "v"}
    assert all("all at once" in choice.why for choice in found)


@pytest.mark.parametrize(("running", "kept"), [(1, True), (0, False)])
def test_slots_are_kept_for_a_job_that_catches_up_beyond_its_share(running, kept):
    """Of two slots, one is its share; it gets the other for each task that runs still."""
    order = Order()
    behind, other = (Contender(name, index_of=order.waiting) for name in ("behind", "other"))
    behind.share, behind.gaps.width = 1.0, 4.0
    behind.gaps.mean, behind.gaps.spell, behind.gaps.left_at = 0.001, 1.0, NOW
    order.waiting.coming.add(behind)
    other.service = 1000.0
    home, free = Place("home", 1, 0, now=NOW), Place("free", 2, 0, now=NOW)
    for _ in range(running):
        runs_at(home, behind, 0.005)
        home.nthreads = 1
    if running:
        # What runs elsewhere counts as had: here it runs where a slot is to be kept.
        free = Place("free", 3, 1, [*home.sent], now=NOW)
        home.sent[0].worker = "free"
    ready(other, 0, 5.0)
    turn = turn_of(free)
    found = decide(order, turn)
    assert (found == [], turn.kept) == (kept, kept)


@pytest.mark.parametrize(
    ("index", "others", "spare", "kept"),
    [(100.0, 1.0, False, True), (5.0, 4.0, False, False), (4.0, 4.0, True, False)],
)
def test_slots_are_kept_for_a_job_that_is_worth_much_more(index, others, spare, kept):
    order = Order()
    back, other = (Contender(name, index_of=order.waiting) for name in ("back", "other"))
    back.index, other.index, back.gaps.width = index, others, 4.0
    back.gaps.mean, back.gaps.spell, back.gaps.left_at = 0.001, 1.0, NOW
    back.group, other.service = Group(spare=spare), 1000.0 * spare
    order.waiting.coming.add(back)
    ready(other, 0, 5.0)
    assert (decide(order, turn_of(Place("w", 1, 0, now=NOW))) == []) == kept


def test_whoever_prefers_is_told_only_while_others_compete():
    told = []
    order = Order(prefers=told.append)
    first = Contender("first", "owner", index_of=order.waiting)
    first.push(Entry(False, (-5, 0), 0, "x", ANY, (), Like(1.0)))
    place = Place("w", 1, 0, now=NOW)
    order.before([first], NOW, [place])
    assert not told
    other = Contender("other", "another", index_of=order.waiting)
    ready(other, 1, 1.0)
    order.before([first, other], NOW, [place])
    assert told == ([first] if first.user_priority() < 0 else [])


def test_a_job_that_is_owed_nothing_comes_in_its_turn_and_one_without_an_account_first():
    order = Order()
    one, first = Contender("a"), Contender("b")
    one.index, first.index = 1.0, math.inf
    assert (order.key(one, NOW).turn, order.key(one, NOW).later) == (2, 1)
    assert (order.key(first, NOW).turn, order.key(first, NOW).later) == (0, 0)
    assert order.key(one, NOW).owner_lag == order.key(first, NOW).owner_lag == 0.0
