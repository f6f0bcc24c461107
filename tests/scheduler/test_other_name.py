"""The plugin may be registered under any name: all that looks for it finds it."""

import json

import pytest
from distributed.utils_test import inc
from driving import ONE, gen_cluster, tasks_of, until, wait_for

import dask_slaq as slaq
from dask_slaq.core.errors import NoPlugin
from dask_slaq.scheduler.board.data import data_of
from tests.scheduler.test_metrics import SERVED, get, scrape


@gen_cluster(client=True, nthreads=ONE, **SERVED)
async def test_everything_finds_a_plugin_of_another_name(c, s, a):
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h"), name="ours")
    plugin = s.plugins["ours"]
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        with tasks_of("a"):
            future = c.submit(inc, 1)
            assert await future == 2
        assert "a" in json.loads(await get(s, "/json/slaq.json"))["jobs"]
        assert (await scrape(s))["jobs"][0].value == 1
        assert data_of(s).head.startswith("Policy")
        page = await get(s, f"/info/task/{future.key}.html")
        assert "job a" in page
        await job.pause()
        with tasks_of("a"):
            more = c.map(wait_for, ["go"] * 30, pure=False)
        await until(lambda: len(plugin.pools.pools["a"].ready) == 30)
        assert s.adaptive_target(target_duration=1) <= 1
        del more
    await c.unregister_scheduler_plugin("ours")
    assert not json.loads(await get(s, "/json/slaq.json"))["registered"]
    with pytest.raises(NoPlugin):
        await slaq.status(c)


@gen_cluster(client=True, nthreads=ONE)
async def test_a_plugin_of_another_name_takes_the_place_of_one(c, s, a):
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    first = s.plugins["slaq"]
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h", policy="fair"), name="other")
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        await until(lambda: s.plugins["other"].jobs.reports == {"a": 1})
        assert not first.jobs.reports
        assert first not in s.plugins.values()
        assert (await slaq.status(c))["policy"] == "fair"
