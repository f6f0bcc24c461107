"""Parts of a job: served in its place and charged to it, seen one by one."""

from __future__ import annotations

import contextlib

import pytest
from distributed import Event
from distributed.utils_test import slowinc
from driving import (
    assert_nothing_left,
    gen_cluster,
    jobs,
    start_plugin,
    state_of,
    tasks_of,
    until,
    where,
)
from driving import wait_for as held_until

import dask_slaq as slaq
from dask_slaq.client.parts import divide

ONE = [("127.0.0.1", 1)]


@contextlib.asynccontextmanager
async def contended(client, scheduler, **settings):
    """The plugin, and the parts of a job `whole` beside others; the one thread is taken."""
    settings = {"short_task": 0, "ahead": 0, "floor": 0, **settings}
    plugin = await start_plugin(client, scheduler, **settings)
    async with jobs(client, "first", "other", "whole"):
        parts = await divide(client, "whole", ["p", "q"])
        with tasks_of("first"):
            first = client.submit(held_until, "go", key="first")
            await state_of(scheduler, first, "processing")
        yield plugin, parts
        await Event("go").set()


def send(client, job, *keys, **settings):
    """Tasks that depend on nothing."""
    with tasks_of(job):
        return [client.submit(slowinc, 1, delay=0.02, key=key, **settings) for key in keys]


def chain(client, job, length):
    """Tasks that wait for each other."""
    with tasks_of(job):
        futures = [client.submit(where, key=f"{job}-0")]
        for i in range(1, length):
            futures.append(client.submit(where, futures[-1], key=f"{job}-{i}"))
    return futures


async def served(client, plugin, futures, ready):
    """Let all run once so many are ready; their keys in the order in which they were sent."""
    pools = plugin.pools.pools
    await until(lambda: sum(len(pool.ready) for pool in pools.values()) == ready)
    begin = len(plugin.pools.bindings)
    await Event("go").set()
    await client.gather(futures)
    return [b.key for b in list(plugin.pools.bindings)[begin:]]


@gen_cluster(client=True, nthreads=ONE)
async def test_parts_have_their_jobs_turns_and_not_one_each(c, s, a):
    async with contended(c, s) as (plugin, _):
        futures = [
            *send(c, "other", *(f"other-{i}" for i in range(6))),
            *send(c, "whole/p", *(f"p-{i}" for i in range(3))),
            *send(c, "whole/q", *(f"q-{i}" for i in range(3))),
        ]
        order = await served(c, plugin, futures, ready=12)
    assert 2 <= sum(key.startswith("other") for key in order[:6]) <= 4


@pytest.mark.parametrize("higher", ["other", "whole"])
def test_parts_have_the_index_of_their_job(higher):
    @gen_cluster(client=True, nthreads=ONE)
    async def check(c, s, a):
        async with contended(c, s) as (plugin, _):
            futures = [*send(c, "other", "o"), *send(c, "whole/p", "p"), *send(c, "whole/q", "q")]
            plugin.pools.pools[higher].index = 9.0
            order = await served(c, plugin, futures, ready=3)
        assert order.index("o") == (0 if higher == "other" else 2)

    check()


@gen_cluster(client=True, nthreads=ONE)
async def test_the_part_with_most_work_left_comes_first(c, s, a):
    async with contended(c, s) as (plugin, _):
        pools = plugin.pools.pools
        for name in ("whole/p", "whole/q"):
            pools[name].ended, pools[name].attained = 1, 0.1
        futures = [*chain(c, "whole/p", 1), *chain(c, "whole/q", 3)]
        await until(lambda: len(pools["whole/q"].unfinished) == 3)
        order = await served(c, plugin, futures, ready=2)
    assert order == ["whole/q-0", "whole/q-1", "whole/p-0", "whole/q-2"]


@gen_cluster(client=True, nthreads=ONE)
async def test_what_is_sent_ahead_comes_last_until_it_is_needed(c, s, a):
    async with contended(c, s) as (plugin, parts):
        pools = plugin.pools.pools
        for name, loss in zip(parts.names, (0.5, 0.3), strict=True):
            parts.report(name, loss)
            pools[name].foremost = 0
        await until(lambda: pools["whole/q"].loss == 0.3)
        early_p = send(c, "whole/p", "early-p", priority=-1)
        early_q = send(c, "whole/q", "early-q", priority=-1)
        now = send(c, "whole/p", "now")
        own = send(c, "whole", "own")
        order = await served(c, plugin, [*early_p, *early_q, *now, *own], ready=4)
    assert order == ["own", "now", "early-q", "early-p"]


@gen_cluster(client=True, nthreads=ONE)
async def test_what_was_sent_ahead_is_served_in_its_turn_once_it_is_needed(c, s, a):
    async with contended(c, s) as (plugin, _):
        pools = plugin.pools.pools
        for name, seconds in (("whole/p", 0.1), ("whole/q", 0.2)):
            pools[name].ended, pools[name].attained, pools[name].foremost = 1, seconds, 0
        early = send(c, "whole/q", "early", priority=-1)
        now = send(c, "whole/p", "now")
        await until(lambda: pools["whole/q"].ready)
        assert pools["whole/q"].ahead
        with tasks_of("whole/q"):
            late = c.submit(where, *early, key="late")
        await until(lambda: not pools["whole/q"].ahead)
        order = await served(c, plugin, [*early, *now, late], ready=2)
    assert order == ["early", "late", "now"]


@gen_cluster(client=True, nthreads=ONE)
async def test_a_job_is_charged_for_its_parts(c, s, a):
    async with contended(c, s) as (plugin, parts):
        await served(c, plugin, chain(c, "whole/p", 2), ready=1)
        for name in ("whole/p", "whole/q"):
            parts.report(name, 1.0)
        parts.report("whole/q", 0.5)
        await until(lambda: plugin.jobs.reports["whole/q"] == 2)
        plugin.reallocate()
        status = (await slaq.status(c))["jobs"]
        whole, p, q = (status[name] for name in ("whole", "whole/p", "whole/q"))
        assert set(plugin.engine.jobs) == {"first", "other", "whole"}
        assert whole["attained"] == pytest.approx(p["attained"]) and p["attained"] > 0
        assert (p["iteration"], p["loss"], q["iteration"], q["loss"]) == (1, 1.0, 2, 0.5)
        for what in ("weight", "share"):
            assert p[what] == q[what] == whole[what] / 2
        history = await slaq.history(c)
        assert history.loss.sel(job="whole/q").values[-1] == 0.5


@gen_cluster(client=True, nthreads=ONE)
async def test_what_a_part_leaves_is_its_jobs(c, s, a):
    async with contended(c, s) as (plugin, parts):
        futures = chain(c, "whole/p", 2)
        await until(lambda: len(plugin.pools.pools["whole/p"].ready) == 1)
        parts.end(["whole/p", "whole/nobody"])
        await until(lambda: "whole/p" not in plugin.pools.pools)
        assert len(plugin.pools.pools["whole"].ready) == 1
        assert s.tasks["whole/p-0"].state == "no-worker"
        assert plugin.jobs.divisions.parts("whole") == ["whole/q"]
        await served(c, plugin, futures, ready=1)
        assert {b.job for b in plugin.pools.bindings} == {"first", "whole"}
    del futures
    await until(lambda: not plugin.pools._owner)
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=ONE)
async def test_names_of_parts_are_taken(c, s, a):
    await start_plugin(c, s)
    async with jobs(c, "whole", "whole/r"):
        with pytest.raises(slaq.core.errors.DuplicateJob, match="'whole/r' is running already"):
            await divide(c, "whole", ["q", "r"])
        await divide(c, "whole", ["q"])
        with pytest.raises(slaq.core.errors.DuplicateJob, match="part of the running job 'whole'"):
            async with jobs(c, "whole/q"):
                pass
        assert set((await slaq.status(c))["jobs"]) == {"whole", "whole/q", "whole/r"}


@gen_cluster(client=True, nthreads=ONE)
async def test_parts_can_follow_parts_of_the_same_names_at_once(c, s, a):
    plugin = await start_plugin(c, s)
    async with jobs(c, "whole"):
        for _ in range(5):
            parts = await divide(c, "whole", ["p", "q"])
            parts.report("whole/p", 1.0)
            parts.end(["whole/p", "whole/q"])  # sent after the next request, which takes no batch
        await until(lambda: not plugin.jobs.divisions.parts("whole"))


@gen_cluster(client=True, nthreads=ONE * 2)
async def test_a_cap_bounds_all_parts_together(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, lend=False)
    async with jobs(c, "whole", max_share=1):
        await divide(c, "whole", ["p", "q"])
        futures = []
        for part in "pq":
            with tasks_of(f"whole/{part}"):
                futures.append(c.submit(held_until, f"go-{part}", key=part))
        pools = plugin.pools.pools
        await until(lambda: pools["whole"].running and pools["whole"].demand == 2)
        running = [name for name in ("p", "q") if pools[f"whole/{name}"].running]
        assert len(running) == 1
        await Event(f"go-{running[0]}").set()
        await until(lambda: s.tasks[{"p": "q", "q": "p"}[running[0]]].state == "processing")
        await Event("go-p").set()
        await Event("go-q").set()
        await c.gather(futures)
