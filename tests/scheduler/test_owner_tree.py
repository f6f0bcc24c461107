"""Owners in teams: what a team gets and may use, whatever its members call themselves."""

import asyncio
import contextlib

import dask
import pytest
from distributed.utils_test import inc
from driving import Spans, in_job, inside, on_virtual, ready, spend, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting


async def compute(client, jobs, seconds=12, most=60):
    """Let jobs, each of an owner, compute for a while; return the status at the end."""
    async with contextlib.AsyncExitStack() as stack:
        futures = []
        for name, owner in jobs.items():
            await stack.enter_async_context(slaq.job(name, owner=owner, client=client))
            futures += in_job(client, name).map(spend, [name] * most, [0.4] * most, pure=False)
        await asyncio.sleep(seconds)
        status = await slaq.status(client)
        await client.cancel(futures)
        return status


@on_virtual([4, 4], owners={"a": {}})
async def test_a_team_of_three_gets_as_much_as_one_owner(client, cluster, plugin):
    Spans.seen.clear()
    jobs = {"one": "a/ann", "two": "a/bob", "three": "a/eve", "four": "dan"}
    status = await compute(client, jobs, most=200)
    whole = Spans.seconds("one", "two", "three", "four")
    assert Spans.seconds("one", "two", "three") / whole == pytest.approx(0.5, abs=0.06)
    assert Spans.seconds("one") / whole == pytest.approx(1 / 6, abs=0.04)
    team, members = status["teams"]["a/"], ("a/ann", "a/bob", "a/eve")
    assert team["jobs"] == 3 and team["deserved"] == pytest.approx(4)
    of_members = sum(status["owners"][name]["core_seconds"] for name in members)
    assert team["core_seconds"] == of_members


ATTEMPTS = {
    "members": ("a/ann", "a/bob"),
    "no team": ("ann", "bob@desk"),
    "the team itself": ("a", "a@desk"),
    "teams within the team": ("a/x/ann", "a/y/ann"),
}


@pytest.mark.parametrize("names", ATTEMPTS.values(), ids=ATTEMPTS)
@on_virtual([4, 4], owners={"a": {"max-threads": 3}, "a/ann": {}, "a/bob": {"max-threads": 2}})
async def test_two_owners_cannot_get_around_the_limit_of_their_team(client, cluster, plugin, names):
    """Whatever they say who they are, in jobs and outside of them."""
    Spans.seen.clear()
    first, second = names
    async with cluster.client() as other:
        others = asyncio.create_task(compute(other, {"free": "c"}))
        await asyncio.sleep(1)
        async with slaq.job("before", owner=first, client=client):
            pass  # from now on the tasks of this client outside of jobs are of that owner
        futures = client.map(spend, ["outside"] * 60, [0.4] * 60, pure=False)
        await compute(client, {"inner": second, "third": first}, seconds=9)
        await client.cancel(futures)
        await others
    assert Spans.at_once("inner", "third", "outside") == 3
    assert Spans.at_once("free") == 8  # alone at first
    assert Spans.seconds("inner", "third", "outside") > 0.9 * 3 * 9


@with_plugin([2, 2], owners={"a": {"max-jobs": 2}, "a/ann": {"max-jobs": 1}})
async def test_jobs_at_once_are_limited_at_each_level(c, s, plugin, a, b):
    @contextlib.asynccontextmanager
    async def elsewhere(name, owner):
        """A job of another program: it is not within the block around."""
        inside(plugin).open(name, c.id, owner=owner, resources={})
        yield
        plugin.end_job(name)

    async with contextlib.AsyncExitStack() as stack:
        owners = {"one": "a/ann@desk", "two": "a/bob", "three": "a/eve", "four": "c"}
        for name, owner in owners.items():
            await stack.enter_async_context(elsewhere(name, owner))
        assert inside(plugin).queued == {"three"}
        found = await slaq.explain("three", client=c)
        change = "a higher max-jobs of a, or the end of another job there"
        assert found["reason"] == "waits: 2 of a's 2 jobs run"
        assert list(found["would_change"]) == [change]
        future = in_job(c, "three").submit(inc, 1)
        await until(lambda: ready(plugin, "three") == 1)
        plugin.end_job("two")
        assert await future == 2
        inside(plugin).open("two", c.id, owner="a/bob", resources={})
        assert inside(plugin).queued == {"two"}
        await slaq.set_owner("a/", max_jobs=9, client=c)
        assert not inside(plugin).queued
    assert not inside(plugin).jobs.teams


@with_plugin([2, 2], owners={"a": {"max-jobs": 1}})
async def test_members_whose_jobs_are_within_one_another_do_not_wait_for_ever(c, s, plugin, a, b):
    async with slaq.job("1", owner="a/ann", client=c), slaq.job("2", owner="a/bob", client=c):
        assert await c.submit(inc, 1) == 2
        async with slaq.job("3", owner="a/ann", client=c):
            assert await c.submit(inc, 2) == 3


@on_virtual([4, 4], resources=[{"GPU": 4}] * 2, owners={"a": {"max-resources": {"GPU": 3}}})
async def test_a_team_uses_no_more_of_a_resource_than_its_limit(client, cluster, plugin):
    Spans.seen.clear()
    with dask.annotate(resources={"GPU": 1}):
        jobs = {"one": "a/ann", "two": "a/bob", "three": "c"}
        task = asyncio.create_task(compute(client, jobs, seconds=6))
        await asyncio.sleep(3)
        reason = (await slaq.explain("one", client=client))["reason"]
        assert "a is at its limit of GPU (3)" in reason
        await task
    assert Spans.at_once("one", "two") == 3
    assert Spans.at_once("three") >= 5


@with_plugin([2, 2], owners={"a": {"weight": 2, "max-threads": 1}})
async def test_the_terms_of_a_team_are_shown_and_set_as_those_of_owners(c, s, plugin, a, b):
    async with slaq.job("one", owner="a/ann", client=c):
        plugin.run_once()
        await slaq.set_owner("a", max_threads=3, client=c)
        plugin.run_once()
        status = await slaq.status(c)
        assert (status["teams"]["a/"]["weight"], status["teams"]["a/"]["max_threads"]) == (2, 3)
        assert status["owners"].keys() == {"a/ann"}
        with pytest.raises(InvalidSetting, match="must be a string"):
            await slaq.set_owner("/", weight=1, client=c)
        assert await c.submit(inc, 1) == 2
