"""Guards jobs below their share: others' tasks that wait on workers do not hold them up."""

import asyncio

import pytest

import dask_slaq as slaq
from dask_slaq.simulation import virtual

LONG, SHORT = 0.5, 0.02


async def work(seconds, *_):
    return await virtual.work(seconds=seconds)


def favor(plugin, shares):
    """Keep the share and the index of each pool as given, whatever is decided."""
    for name, share in shares.items():
        pool = plugin.pools.pools[name]
        pool.share, pool.index, pool.tokens = share, 1.0 + share, 0.0


async def last_start(policy):
    """Return how long tasks wait of a job that runs one task, and has a share of four threads."""
    cluster = virtual.Cluster([1] * 4)
    async with cluster, cluster.client() as one, cluster.client() as two:
        plugin = slaq.SlaqPlugin(policy=policy, epoch=1000.0, ahead=2 * LONG)
        await one.register_plugin(plugin)
        plugin = cluster.scheduler.plugins["slaq"]
        async with slaq.job("high", client=one), slaq.job("low", client=two):
            waiting = two.map(work, [LONG] * 100, pure=False)
            await asyncio.sleep(4.1 * LONG)
            favor(plugin, {"high": 4.0, "low": 0.0})
            running = one.submit(work, 6 * LONG, pure=False)
            await asyncio.sleep(1.2 * LONG)  # it has begun, and the others have begun new tasks
            favor(plugin, {"high": 4.0, "low": 0.0})
            begin = virtual.now()
            await one.gather(one.map(work, [SHORT] * 3, pure=False))
            took = virtual.now() - begin
            del waiting, running
    return took


@pytest.mark.parametrize("policy", ["max-total", "fair"])
def test_a_job_below_its_share_overtakes_tasks_of_lower_index(policy):
    took = virtual.run(last_start, policy)
    if policy == "fair":  # both have the same turn
        assert took > LONG
    else:
        assert took < LONG + 2 * SHORT
