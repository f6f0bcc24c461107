"""Jobs at once per owner, and owners and limits that operators change while jobs run."""

import asyncio
import contextlib
import functools
import json
import random

import dask
import pytest
from distributed import Client, Event, worker_client
from distributed.client import CancelledError
from distributed.utils_test import captured_logger, inc
from driving import (
    Spans,
    alerts_of,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    on_virtual,
    on_virtual_clock,
    ready,
    running,
    spend,
    start_plugin,
    tasks_of,
    until,
    wait_for,
    with_plugin,
    work,
)
from hypothesis import given
from hypothesis import strategies as st

import dask_slaq as slaq
from dask_slaq.client.block import running_job
from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.recording.replay import replay

ONE_JOB, ONE_THREAD = {"ann": {"max-jobs": 1}}, {"ann": {"max-threads": 1}}


@contextlib.asynccontextmanager
async def elsewhere(client, name, make=slaq.job, nested=False, **settings):
    """A job that opens and ends as in another process; `end()` ends it before the block does.

    If it is `nested`, it is in the block of this one.
    """
    opened, over = asyncio.Event(), asyncio.Event()

    async def run():
        if not nested:
            running_job.set(None)  # in this task alone
        async with make(name, client=client, owner="ann", **settings) as block:
            block.end = end
            found.append(block)
            opened.set()
            await over.wait()

    async def end():
        over.set()
        await task

    found = []
    task = asyncio.create_task(run())
    await opened.wait()
    try:
        yield found[0]
    finally:
        await end()


@pytest.mark.parametrize(
    ("how", "limit"), [("worker", "owner"), ("host", "job"), ("loosely", "owner"), ("uses", "job")]
)
def test_a_limit_holds_for_pinned_tasks(how, limit):
    owners, settings = (ONE_THREAD, {}) if limit == "owner" else (None, {"max_share": 1})

    @with_plugin([2, 2], owners=owners, lend=limit == "owner", prefetch=0)
    async def test(c, s, plugin, a, b):
        async with slaq.job("a", owner="ann", client=c, **settings):
            at = {"workers": ["127.0.0.1"] if how == "host" else [a.address]}
            used = []
            if how == "uses":
                used, at = [c.submit(inc, 1, **at)], {}
                await c.gather(used)
            at |= {"allow_other_workers": True} if how == "loosely" else {}
            some = [c.submit(wait_for, "go", k, *used, pure=False, **at) for k in range(4)]
            await until(lambda: ready(plugin, "a") == 3)
            plugin.run_once()
            ran = [ts for ws in s.workers.values() for ts in ws.processing]
            assert (len(ran), ready(plugin, "a")) == (1, 3)
            if how == "host":
                inside(plugin).slots_changed(b.address)  # as if a worker had joined there
            await Event("go", client=c).set()
            assert await asyncio.wait_for(c.gather(some), 20) == [0, 1, 2, 3]
            if how in ("worker", "uses"):
                assert {w for ts in some for w in s.tasks[ts.key].who_has} == {s.workers[a.address]}

    test()


@with_plugin([2, 2], owners=ONE_JOB, epoch="20ms")
async def test_a_chain_of_blocks_has_one_place_for_the_first_level_only(c, s, plugin, a, b):
    alerts = await alerts_of(c, s)
    blocks = [slaq.job, slaq.search, *[slaq.job] * 3]  # those of the first three may be needed
    for makes, run in (([slaq.job] * 5, 2), ([slaq.search] * 5, 2), (blocks, 3)):
        async with contextlib.AsyncExitStack() as stack:
            for k, make in enumerate(makes):
                await stack.enter_async_context(make(f"{run}-{k}", owner="ann", client=c))
            assert inside(plugin).queued == {f"{run}-{k}" for k in range(run, 5)}
            await until(lambda n=5 - run: sum(x["event"] == "blocked" for x in alerts) == n)
            assert "have all 1 jobs of ann" in alerts[-1]["message"]
        alerts.clear()


@with_plugin([2, 2], owners={"ann": {"max-jobs": 2}})
async def test_jobs_within_another_one_count_beyond_its_own_place(c, s, plugin, a, b):
    async with slaq.job("outer", owner="ann", client=c):
        async with (
            elsewhere(c, "first", nested=True) as first,  # in the place of the outer one
            elsewhere(c, "second", nested=True),
            elsewhere(c, "third", nested=True),
        ):
            assert inside(plugin).queued == {"third"}
            assert inside(plugin).admission.jobs_at_once("ann") == (2, 2)
            found = await slaq.explain("third", client=c)
            assert found["reason"] == "waits: 2 of ann's 2 jobs run"
            async with slaq.job("other", owner="ann", client=c):
                assert "other" in inside(plugin).queued
            future = in_job(c, "third").submit(inc, 1, pure=False)
            await first.end()
            assert await future == 2
        async with slaq.job("last", owner="ann", client=c):
            assert not inside(plugin).queued
            assert await c.submit(inc, 2, pure=False) == 3


jobs_opened = st.lists(st.tuples(st.sampled_from(["open", "end"]), st.integers(0, 20)), max_size=40)


@given(jobs_opened, st.integers(1, 3))
def test_jobs_stay_within_the_limit_however_they_are_nested(steps, most):
    """Jobs within others, which end in any order; a job never waits for ones that wait for it."""

    async def scenario(client, cluster, plugin):
        jobs, opened = plugin.jobs, []
        for number, (what, which) in enumerate(steps):
            if what == "open":
                within = opened[which % len(opened)] if opened and which % 3 else None
                name = f"job {number}"
                jobs.open(name, client.id, owner="ann", resources={}, within=within)
                opened.append(name)
            elif opened:
                plugin.end_job(opened.pop(which % len(opened)))
            running = set(opened) - jobs.queued
            count, limit = jobs.admission.jobs_at_once("ann")
            assert count <= limit == most
            assert bool(running) == bool(opened)  # somebody goes on
            around = {jobs.within.get(name) for name in running}
            if count < most:  # who waits then, waits for the job around it
                assert all(jobs.within.get(name) in jobs.queued for name in jobs.queued)
            for name in running - around:
                assert jobs.within.get(name) not in jobs.queued
        for name in opened:
            plugin.end_job(name)

    on_virtual_clock(scenario, [1], owners={"ann": {"max-jobs": most}})


def test_a_job_submitted_within_another_one_does_not_wait_for_it(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(owners=ONE_JOB))
    with slaq.job("outer", owner="ann", client=local_client):
        own = {"name": "inner", "owner": "ann"}
        assert slaq.submit(lambda: local_client.submit(inc, 1).result(), **own).result() == 2


@with_plugin([2, 2], owners=ONE_JOB)
async def test_a_waiting_job_can_be_steered_and_lost(c, s, plugin, a, b):
    async with elsewhere(c, "a"):
        async with Client(s.address, asynchronous=True) as other, elsewhere(other, "lost"):
            assert inside(plugin).queued == {"lost"}
            await other.close()
            await until(lambda: not inside(plugin).queued)
        async with elsewhere(c, "b") as block:
            future = in_job(c, "b").submit(inc, 1, pure=False)
            await until(lambda: ready(plugin, "b") == 1)
            await block.pause()
            assert "paused" in (await slaq.explain("b", client=c))["reason"]
            await block.unpause()
            assert ready(plugin, "b") == 1
            await block.stop()  # otherwise it could never report, and so never end
            assert await future == 2


@pytest.mark.parametrize("seed", range(2))
@on_virtual([2, 2], owners=ONE_THREAD)
async def test_tasks_of_unlike_times_reach_a_limit_and_keep_to_it(client, cluster, plugin, seed):
    """A task that waits on a worker takes the first thread there, whoever's task ends."""
    rng = random.Random(seed)
    times = [rng.uniform(0.1, 1.0) for _ in range(190)]
    Spans.seen.clear()
    async with jobs(client, "a", owner="ann"), jobs(client, "b", owner="bob"):
        futures = in_job(client, "a").map(spend, ["ann"] * 40, times[:40], pure=False)
        others = in_job(client, "b").map(spend, ["bob"] * 150, times[40:], pure=False)
        await client.gather(futures)
        await client.cancel(others)
    assert Spans.at_once("ann") == 1
    took = max(end for name, _, end in Spans.seen if name == "ann")
    took -= min(begin for name, begin, _ in Spans.seen if name == "ann")
    assert took < 1.15 * sum(times[:40])


@with_plugin([2, 2], owners=ONE_THREAD)
async def test_without_jobs_no_limit_of_an_owner_holds_tasks(c, s, plugin, a, b):
    async with slaq.job("a", owner="ann", client=c):
        plugin.run_once()
        assert await c.submit(inc, 1) == 2
        assert inside(plugin).holds
    assert not inside(plugin).holds and "is_rootish" not in vars(s)


@with_plugin([2, 2], owners=ONE_JOB)
async def test_jobs_of_an_owner_are_counted_once_however_many_wait(c, s, plugin, a, b, monkeypatch):
    counted, admission = [], inside(plugin).admission
    count = admission.jobs_at_once
    monkeypatch.setattr(admission, "jobs_at_once", lambda o: counted.append(o) or count(o))
    async with contextlib.AsyncExitStack() as stack:
        blocks = [await stack.enter_async_context(elsewhere(c, f"job-{n}")) for n in range(9)]
        counted.clear()
        await blocks[0].end()
        assert len(counted) <= 2
        assert len(inside(plugin).queued) == 7


@gen_cluster(client=True, nthreads=[2, 2])
async def test_operators_change_owners_while_jobs_run(c, s, a, b, tmp_path):
    log = tmp_path / "log.jsonl"
    plugin = await start_plugin(c, s, operators=["root"], log=str(log))
    with dask.config.set({"slaq.owner": "root"}):
        async with jobs(c, "a", owner="ann@desk"), jobs(c, "b", owner="bob"):
            await slaq.set_owner("ann", max_threads=1, weight=2, client=c)
            plugin.run_once()
            futures = in_job(c, "a").map(wait_for, ["go"] * 3, pure=False)
            await until(lambda: (running(plugin, "a"), ready(plugin, "a")) == (1, 2))
            plugin.run_once()
            assert ready(plugin, "a") == 2
            standing = (await slaq.status(c))["owners"]["ann@desk"]
            assert (standing["weight"], standing["max_threads"]) == (2, 1)
            await slaq.set_owner("ann", max_threads=float("inf"), max_slowdown=3, client=c)
            await until(lambda: not ready(plugin, "a"))
            assert inside(plugin).terms.of("ann@desk").weight == 2
            with pytest.raises(InvalidSetting, match="'speed' is not a setting of an owner"):
                await c.scheduler.slaq_owner(owner="ann", by="root", speed=1)
            with pytest.raises(InvalidSetting, match="max-jobs of owner 'ann' must be a whole"):
                await slaq.set_owner("ann", max_jobs=1.5, client=c)
            with pytest.raises(InvalidSetting, match="no setting of ann is given"):
                await slaq.set_owner("ann", client=c)
            await let_end(c, futures)
    with dask.config.set({"slaq.owner": "eve"}):
        with pytest.raises(NotAllowed):
            await slaq.set_owner("eve", weight=100, client=c)
        with pytest.raises(NotAllowed):
            await slaq.set_limit("database", 100, client=c)
    await plugin.close()
    found = replay(map(json.loads, log.read_text().splitlines()))
    assert found.decisions and found.reproduced == found.decisions


@with_plugin([2, 2], owners={"default": {"max-jobs": 1}})
async def test_jobs_that_tasks_open_are_within_the_job_of_these(c, s, plugin, a, b):
    def opens_a_job(k):
        with worker_client() as client, slaq.job(f"in-{k}"):
            return sum(client.gather(client.map(abs, range(6), pure=False)))

    async with slaq.job("around", client=c):
        futures = c.map(opens_a_job, range(2), pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == [15, 15]


@with_plugin([2, 2], owners={"ann": {"max-threads": 2}, "default": {"weight": 1}}, epoch="20ms")
async def test_a_gang_above_its_owners_limit_is_told_at_once_and_stop_ends_it(c, s, plugin, a, b):
    def begin(gang):
        terms = {"slaq_gang": gang, "slaq_gang_size": 4, "slaq_threads": 1}
        with dask.annotate(slaq_job="large", **terms):
            at = [a.address, a.address, b.address, b.address]
            return [c.submit(inc, k, workers=[w], pure=False) for k, w in enumerate(at)]

    async def change(members):
        """A higher limit lets them start, and a lower one keeps the next from it."""
        await slaq.set_owner("ann", max_threads=4, client=c)
        assert await c.gather(members) == [1, 2, 3, 4]
        await slaq.set_owner("ann", max_threads=2, client=c)
        return begin("h")

    why = "it needs 4 threads at once, above its owner's limit of 2"
    found = await check_blocked(c, s, lambda: begin("g"), why, then=change)
    assert found["reason"] == f"waits: {why}"
    assert await c.submit(inc, 1, pure=False) == 2


THREE_GPUS = {"ann": {"max-resources": {"GPU": 3}}}


@on_virtual([4, 4], resources=[{"GPU": 4}] * 2, owners=THREE_GPUS)
async def test_tasks_of_an_owner_use_no_more_of_a_resource_than_its_limit(client, cluster, plugin):
    """On two machines of four GPUs and threads; tasks without GPUs and bob's fill the rest."""
    seen, reasons = {"ann": [], "bob": [], "threads": []}, []
    with captured_logger("dask_slaq") as log:
        async with jobs(client, "one", "two", owner="ann"), jobs(client, "his", owner="bob"):
            futures = []
            for name in ("one", "two", "his"):
                with tasks_of(name), dask.annotate(resources={"GPU": 1}):
                    futures += client.map(work, [0.6] * 40, pure=False, key=f"gpu-{name}")
            futures += in_job(client, "two").map(work, [0.6] * 100, pure=False, key="plain")
            for step in range(40):
                await asyncio.sleep(0.25)
                at = [ts for ws in cluster.scheduler.workers.values() for ts in ws.processing]
                on_gpus = ["his" in ts.key for ts in at if ts.resource_restrictions]
                seen["threads"].append(len(at))
                seen["ann"].append(on_gpus.count(False))
                seen["bob"].append(on_gpus.count(True))
                if step < 20 and seen["ann"][-1] == 3:
                    reasons.append((await slaq.explain("one", client=client))["reason"])
                if step == 20:
                    await slaq.set_owner("ann", max_resources={"GPU": 5}, client=client)
            await slaq.set_owner("ann", max_resources={}, client=client)
            await client.gather(futures)
    assert not any(binding.reason == "stuck" for binding in inside(plugin).bindings)
    assert "although slots were free" not in log.getvalue()
    assert any("its owner is at its limit of GPU (3)" in reason for reason in reasons)
    assert max(seen["ann"][:20]) == 3 and max(seen["ann"][20:]) == 5
    assert max(seen["bob"]) >= 4
    assert sorted(seen["threads"])[5] >= 8  # no thread idles for it


ONE_GPU = {"ann": {"max-resources": {"GPU": 1}}, "bob": {}}


@with_plugin([("127.0.0.1", 4, {"resources": {"GPU": 4}})], owners=ONE_GPU, epoch="20ms")
async def test_a_stop_ends_what_no_client_wants_between_two_tasks(c, s, plugin, a):
    def one_of(*inputs):
        return 1

    async with slaq.job("other", client=c, owner="bob"):
        with pytest.raises(CancelledError):
            async with slaq.job("large", client=c, owner="ann") as job:
                f = c.submit(inc, 1, resources={"GPU": 2}, pure=False)
                h = dask.delayed(one_of)
                after = c.compute(h(h(f)), optimize_graph=False)
                await until(lambda: ready(plugin, "large") == 1)
                await job.stop()
                await asyncio.wait_for(after, 5)
        assert await c.submit(inc, 1, pure=False) == 2


async def check_blocked(c, s, submit, why, then=None, **settings):
    """Tasks of ann's that can never start are told of with the reason, and end with a stop.

    Or those to which `then` changes them.
    """
    alerts = await alerts_of(c, s)
    with captured_logger("dask_slaq") as log:
        async with slaq.job("other", client=c, owner="bob"):
            with pytest.raises(CancelledError):
                async with slaq.job("large", client=c, owner="ann", **settings) as job:
                    wanted = submit()
                    await until(lambda: any(x["event"] == "blocked" for x in alerts), 5)
                    found = await slaq.explain("large", client=c)
                    await until(lambda: why in log.getvalue(), 5)
                    wanted = await then(wanted) if then is not None else wanted
                    await job.stop()
                    await asyncio.wait_for(c.gather(wanted), 5)
            await until(lambda: alerts[-1]["event"] == "stopped", 5)
    mine = [x["event"] for x in alerts if x["job"] == "large" and x["event"] != "audit"]
    assert mine == ["blocked", "stopped"]
    return found


TWO_GPUS = {"ann": {"max-resources": {"GPU": 2}, "max-threads": 3}, "bob": {}}


@with_plugin([("127.0.0.1", 4, {"resources": {"GPU": 4}})] * 2, owners=TWO_GPUS, epoch="20ms")
async def test_what_an_owner_may_never_have_at_once_is_told_and_ended(c, s, plugin, a, b):
    def large():
        with dask.annotate(resources={"GPU": 4}):
            return c.submit(sum, c.map(inc, range(3), pure=False))

    why = "each of 3 tasks needs 4 of GPU, above its owner's limit of 2"
    found = await check_blocked(c, s, large, why)
    assert found["reason"] == f"waits: {why}"
    assert "a higher max-resources of its owner for GPU" in found["would_change"][0]
    why = "it needs 4 threads at once, above its owner's limit of 3"
    in_parts = functools.partial(c.map, wait_for, ["go"] * 4, pure=False)
    found = await check_blocked(c, s, in_parts, why, gang=True)
    assert f"{why}: they start in parts, and hang" in found["reason"]
    await Event("go").set()
    async with slaq.job("three", client=c, owner="ann", gang=True):
        assert len(await c.gather(c.map(inc, range(3), pure=False))) == 3
