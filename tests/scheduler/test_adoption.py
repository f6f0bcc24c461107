"""Guards tasks submitted before the first job: they get their share, as later ones do."""

import asyncio

import dask
import pytest
from distributed.utils_test import inc

import dask_slaq as slaq
from benchmarks import virtual


async def nap(n):
    await asyncio.sleep(0.1)
    return n


def on_virtual_clock(scenario, policy):
    async def run():
        config = {"distributed.scheduler.validate": True}
        cluster = virtual.Cluster([2, 2], config=config)
        client = cluster.client
        async with cluster, client() as before, client() as a, client() as b:
            await before.register_plugin(slaq.SlaqPlugin(policy=policy))
            return await scenario(cluster.scheduler, before, a, b)

    return virtual.run(run)


async def job_of(client, name):
    async with slaq.job(name, client=client):
        with dask.annotate(slaq_job=name):
            futures = client.map(nap, range(60), pure=False)
        await client.gather(futures)
        return virtual.now()


@pytest.mark.parametrize("policy", ["fair", "max-total"])
def test_a_queue_from_before_the_first_job_is_not_starved_by_jobs(policy):
    async def scenario(scheduler, before, a, b):
        futures = before.map(nap, range(60), pure=False)
        await asyncio.sleep(0.3)
        ends = asyncio.gather(job_of(a, "a"), job_of(b, "b"))
        assert await before.gather(futures) == list(range(60))
        end = virtual.now()
        ends = await ends
        return end, ends

    end, ends = on_virtual_clock(scenario, policy)
    assert end <= max(ends)  # last of all without adoption


def test_what_computes_and_what_waits_for_it_is_adopted_and_nothing_is_left():
    async def scenario(scheduler, before, a, b):
        leaves = before.map(nap, range(40), pure=False)
        sums = [before.submit(sum, leaves[i : i + 4], key=f"sum-{i}") for i in range(0, 40, 4)]
        del leaves
        await asyncio.sleep(0.15)
        plugin = scheduler.plugins["slaq"]
        async with slaq.job("a", client=a):
            await asyncio.sleep(0.01)
            pool = plugin.pools.pools[f"other:{before.id}"]
            unfinished = [ts for ts in scheduler.tasks.values() if ts.state != "memory"]
            assert set(pool.unfinished) == set(unfinished)
            computing = [ts for ts in unfinished if ts.state == "processing"]
            assert len(pool.running) == len(computing) > 0
            assert await a.submit(inc, 1) == 2
            total = sum(await before.gather(sums))
        del sums
        await asyncio.sleep(1)
        return total, plugin.failed, plugin.pools.left_over()

    assert on_virtual_clock(scenario, "fair") == (sum(range(40)), None, [])


def test_nothing_is_adopted_after_the_last_job_has_ended():
    async def scenario(scheduler, before, a, b):
        futures = before.map(nap, range(2000), pure=False)
        await asyncio.sleep(0.1)
        async with slaq.job("a", client=a):
            pass
        await asyncio.sleep(0.5)
        plugin = scheduler.plugins["slaq"]
        assert not plugin.pools.pools and not plugin.pools.tracker.owner
        assert len(scheduler.queued) > 1500  # Dask's own again
        await before.cancel(futures)
        return plugin.failed, plugin.pools.left_over()

    assert on_virtual_clock(scenario, "fair") == (None, [])
