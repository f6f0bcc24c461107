"""Steering: owners get what they deserve, and running jobs can be changed, paused and stopped."""

import asyncio
import functools
import itertools

import dask
import pytest
from distributed import Event, as_completed
from distributed.utils_test import inc
from driving import (
    HELD,
    another_client,
    asked_to_stop,
    begun,
    in_job,
    inside,
    jobs,
    let_end,
    on_virtual,
    on_virtual_clock,
    state_of,
    tasks_of,
    until,
    used_in,
    wait_for,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.client import introduce
from dask_slaq.core.errors import InvalidSetting, NotAllowed, UnknownJob
from dask_slaq.scheduler.views import in_words

WEIGHTS = {"ann": {"weight": 1}, "bob": {"weight": 3}}


@pytest.mark.parametrize(("policy", "least"), [("fair", None), ("las", None), ("max-total", 1e9)])
def test_owners_get_what_they_deserve(policy, least):

    async def scenario(client, cluster, plugin):
        async with (
            cluster.client() as one,
            cluster.client() as two,
            slaq.job("a1", owner="ann@x", min_share=least, client=one) as a1,
            slaq.job("a2", owner="ann@x", client=one),
            slaq.job("a3", owner="ann@x", client=one),
            slaq.job("b1", owner="bob@y", client=two) as b1,
        ):
            futures = many_tasks(two, "b1", 0.5, 160)
            for name in ("a1", "a2", "a3"):
                futures += many_tasks(one, name, 0.5, 60)
            for i in range(10):  # ann's job improves, bob's does not
                a1.report(0.5**i)
                b1.report(1.0 - 0.001 * i)
            await asyncio.sleep(2)
            found = await used_in(plugin, 20)
            del futures
            return found

    got = on_virtual_clock(scenario, [2, 2], policy=policy, owners=WEIGHTS)
    assert sum(got.values()) == pytest.approx(80, rel=0.03)
    assert got["bob@y"] == pytest.approx(60, rel=0.05)


async def always_busy(client, seconds, stop):
    """Keep 16 tasks on the scheduler."""
    with client.as_current():
        tasks = as_completed(client.map(asyncio.sleep, [seconds] * 16, pure=False))
    async for _ in tasks:
        if stop.is_set():
            return
        tasks.add(client.submit(asyncio.sleep, seconds, pure=False))


async def boosting(client, workers, owner, seconds, stop):
    """Train again and again, each time in a job with one pinned task per worker."""
    for k in itertools.count():
        gang = {"slaq_gang": f"{k}", "slaq_gang_size": len(workers), "slaq_threads": 1}
        async with slaq.job("boosting", owner=owner, client=client):
            with dask.annotate(slaq_job="boosting", **gang):
                sleep = functools.partial(client.submit, asyncio.sleep, seconds, pure=False)
                tasks = [sleep(workers=[address]) for address in workers]
            await client.gather(tasks)
        if stop.is_set():
            return


@pytest.mark.parametrize("gangs", ["ann", "bob"])
@on_virtual([1] * 4, policy="first-to-target", owners=WEIGHTS)
async def test_gangs_and_unowned_tasks_share_by_owners_weights(client, cluster, plugin, gangs):
    stop = asyncio.Event()
    async with cluster.client() as one, cluster.client() as two:
        await introduced(two, "ann" if gangs == "bob" else "bob")
        workers = list(cluster.scheduler.workers)
        work = [boosting(one, workers, gangs, 1.0, stop), always_busy(two, 0.1, stop)]
        work = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(4)
        got = await used_in(plugin, 16)
        stop.set()
        await asyncio.gather(*work)
    assert got["bob"] / sum(got.values()) == pytest.approx(0.75, rel=0.05)


def many_tasks(client, name, seconds, count):
    with tasks_of(name):
        return client.map(asyncio.sleep, [seconds] * count, pure=False)


async def introduced(client, owner):
    with dask.config.set({"slaq.owner": owner}):
        await introduce(client)


LIMITED = {"ann": {"max-threads": 1}, "default": {"weight": 2}}


@on_virtual([2, 2], policy="max-total", owners=LIMITED)
async def test_an_owner_stays_within_its_limit_and_takes_what_others_leave(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two, jobs(one, "a", owner="ann"):
        futures = many_tasks(one, "a", 0.1, 150)
        alone = (await used_in(plugin, 3))["ann"]
        reason = (await slaq.status(one))["jobs"]["a"]["reason"]
        assert reason.endswith(": its owner is at its limit of max-threads (1)")
        async with slaq.job("b", owner="bob", client=two):
            futures += many_tasks(two, "b", 0.1, 270)
            bob = (await used_in(plugin, 8))["bob"]
            standing = (await slaq.status(one))["owners"]
        del futures
    assert alone == pytest.approx(3, abs=0.3)
    assert bob == pytest.approx(24, abs=1.5)
    assert standing["ann"]["max_threads"] == 1
    assert standing["bob"]["deserved"] == pytest.approx(3, abs=0.1)


@with_plugin([1, 1])
async def test_a_stopped_job_ends_at_its_next_report(c, s, plugin, a, b):
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        await slaq.stop("a", client=c)
        await until(lambda: asked_to_stop(job))
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            job.report(0.5)
        await until(lambda: inside(plugin).reports["a"] == 2)
        assert (await slaq.status(c))["jobs"]["a"]["state"] == "stopping"
    async with slaq.job("a", client=c) as job:
        job.report(1.0)


@with_plugin([1, 1])
async def test_settings_change_while_a_job_runs_or_nothing_does(c, s, plugin, a, b):
    async with slaq.job("a", client=c, min_share=0.5) as job:
        await job.set(weight=3, max_share=1)
        status = (await slaq.status(c))["jobs"]["a"]
        assert (status["weight"], status["min_share"], status["max_share"]) == (3, 0.5, 1)
        for wrong in ({"weight": -1}, {"min_share": 2}, {"target": float("nan")}):
            with pytest.raises(InvalidSetting):
                await slaq.change("a", client=c, **wrong)
        with pytest.raises(InvalidSetting, match="cannot be changed"):
            await c.scheduler.slaq_steer(job="a", client=c.id, what="set", gang=True)
        after = (await slaq.status(c))["jobs"]["a"]
        assert all(after[k] == status[k] for k in ("weight", "min_share", "max_share", "target"))
        await job.set(max_share=float("inf"))
        assert inside(plugin).job("a").max_share is None
        with pytest.raises(UnknownJob, match="'x' is running; running are: 'a'"):
            await slaq.pause("x", client=c)


@with_plugin([1, 1], operators=["root"])
async def test_only_owners_and_operators_steer(c, s, plugin, a, b):
    async with another_client(s) as other, slaq.job("a", client=c, owner="ann@x"):
        with dask.config.set({"slaq.owner": "eve@x"}):
            for change in (slaq.pause, slaq.stop):
                with pytest.raises(NotAllowed, match=r"'eve@x' may not .* job 'a' of ann@x"):
                    await change("a", client=other)
            with pytest.raises(NotAllowed, match=r"only operators may \(root\)"):
                await slaq.set_policy("fair", client=other)
        assert not inside(plugin).pool("a").paused
        with dask.config.set({"slaq.owner": "ann@x"}):
            await slaq.pause("a", client=other)
        with dask.config.set({"slaq.owner": "root@y"}):
            await slaq.unpause("a", client=other)
            await slaq.set_policy("fair", client=other)
        assert (await slaq.status(c))["policy"] == "fair"


@with_plugin([1], prefetch=0)
async def test_the_reason_says_what_a_job_waits_for(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        first = await begun(s, in_job(c, "a").submit(wait_for, "go", key="first"))
        waits = in_job(c, "b").submit(inc, 1, key="waits")
        await state_of(s, waits, *HELD)
        found = await slaq.explain("b", client=c)
        assert found["position"] == 0
        assert "its next task gets the next free thread" in found["text"]
        assert "It would change with" in found["text"]
        for line in found["text"].splitlines()[1:]:
            assert line[2].isupper() and line.endswith("."), line
        await slaq.pause("b", client=c)
        assert "paused" in (await slaq.explain("b", client=c))["text"]
        await slaq.unpause("b", client=c)
        await let_end(c, [first, waits])
        assert "driver computes" in (await slaq.explain("b", client=c))["reason"]
        with pytest.raises(UnknownJob):
            await slaq.explain("c", client=c)


@with_plugin([1, 1], owners={"ann": {"max-threads": 1}})
async def test_limits_are_told_before_anybody_has_a_job(c, s, plugin, a, b):
    (ann,) = (await slaq.status(c))["owners"].values()
    assert (ann["max_threads"], ann["jobs"], ann["deserved"]) == (1, 0, None)


@with_plugin([1, 1], owners={"unknown": {"max-threads": 1}})
async def test_tasks_outside_jobs_belong_to_somebody(c, s, plugin, a, b):
    with dask.config.set({"distributed.client.preload": ["dask_slaq"], "slaq.owner": "eve"}):
        says = await another_client(s)
    async with says, another_client(s) as known, another_client(s) as unknown, jobs(c, "a"):
        async with slaq.job("b", client=known, owner="bob"):
            pass
        clients = (known, unknown, says)
        futures = [f for x in clients for f in x.map(wait_for, ["go"] * 4, pure=False)]
        await until(lambda: all(f"other:{x.id}" in inside(plugin).owners for x in clients))
        await until(lambda: sum(map(len, (ws.processing for ws in s.workers.values()))) == 2)
        owners = [inside(plugin).owners[f"other:{x.id}"] for x in clients]
        assert owners == ["bob", "unknown@127.0.0.1", "eve"]
        await until(lambda: inside(plugin).pool(f"other:{unknown.id}").group is not None)
        assert plugin.pools.groups["unknown@127.0.0.1"].most == 1
        await Event("go").set()
        await asyncio.gather(*(future.result() for future in futures))


@with_plugin([1], owners={"ann": {"weight": 2}})
async def test_owners_deserve_nothing_once_the_last_job_has_ended(c, s, plugin, a):
    async def deserved():
        return (await slaq.status(c))["owners"]["ann"]["deserved"]

    async with slaq.job("a", owner="ann", client=c):
        held = c.submit(wait_for, "go")
        await until(lambda: inside(plugin).pool("a").running)
        plugin.run_once()
        assert await deserved() == 1
        await let_end(c, held)
    assert await deserved() is None


@with_plugin([1])
async def test_tasks_are_counted_whether_they_are_held_or_not(c, s, plugin, a):
    async def counts():
        found = await slaq.explain("a", client=c)
        assert f"{found['running']} run and {found['ready']} are ready" in found["text"]
        return found["running"], found["ready"]

    async with slaq.job("a", client=c):
        futures = in_job(c, "a").map(wait_for, ["go"] * 6, pure=False)
        await until(lambda: a.state.executing_count == 1)
        assert await counts() == (1, 5)
        async with slaq.job("b", client=c):
            await until(lambda: s.plugins["slaq"].pools.holds_or_releases)
            assert await counts() == (1, 5)
            await slaq.pause("a", client=c)
            assert "1 task that began before" in (await slaq.explain("a", client=c))["reason"]
            await slaq.unpause("a", client=c)
        await let_end(c, futures)


@with_plugin([1, 1], prefetch=0)
async def test_a_job_at_its_cap_is_told_of_others_only_if_these_wait(c, s, plugin, a, b):
    async with slaq.job("alone", client=c, max_share=1), slaq.job("idle", client=c):
        with tasks_of("alone"):
            futures = [c.submit(wait_for, "go", key=f"x-{i}") for i in range(3)]
        pool = inside(plugin).pool("alone")
        await until(lambda: len(pool.running) >= 1 and len(pool.unfinished) == 3)
        plugin.run_once()
        reason = (await slaq.explain("alone", client=c))["reason"]
        assert "at its max_share of 1 thread" in reason and "others" not in reason
        await let_end(c, futures)


def test_an_end_that_is_only_late_is_a_sentence():
    ends = dict.fromkeys(("expected", "low", "high", "promised", "fair"))
    found = in_words({**ends, "of": "all", "late": "two jobs came"})
    assert found == "later than it was promised at first: two jobs came"
