"""Guards where tasks run: neither piled up on one worker, nor kept from a thread they could use."""

import asyncio

import pytest

import dask_slaq as slaq
from dask_slaq.scheduler.dispatch import Pool
from dask_slaq.simulation import virtual

POLICIES = ["fair", "max-total"]


async def work(seconds, *_):
    return await virtual.work(seconds=seconds)


async def pinned_beside_others(policy):
    """Return the seconds of pinned tasks beside a job that is below its share, and could move."""
    cluster = virtual.Cluster([8, 1])
    async with cluster, cluster.client() as one, cluster.client() as two:
        await one.register_plugin(slaq.SlaqPlugin(policy=policy, epoch=1000.0))
        plugin = cluster.scheduler.plugins["slaq"]
        async with slaq.job("many", client=one), slaq.job("pinned", client=two):
            many = one.map(work, [0.08] * 300, pure=False)
            await asyncio.sleep(0.5)
            for name, share, index in (("many", 9.0, 2.0), ("pinned", 2.0, 1.0)):
                pool = plugin.pools.pools[name]
                pool.share, pool.index, pool.tokens = share, index, 0.0
            pool.service += 100.0
            begin = virtual.now()
            alone = cluster.workers[1].address
            await two.gather(two.map(work, [0.05] * 20, pure=False, workers=alone))
            took = virtual.now() - begin
            await one.gather(many)
            return took


@pytest.mark.parametrize("policy", POLICIES)
def test_tasks_that_can_only_run_on_one_worker_keep_it(policy):
    assert virtual.run(pinned_beside_others, policy) < 20 * 0.05 + 2 * 0.08 + 0.05


async def chain_beside_others(policy):
    """Return the core-seconds lost while a chain, which is behind, runs beside many tasks."""
    cluster = virtual.Cluster([2, 2])
    async with cluster, cluster.client() as one, cluster.client() as two:
        await one.register_plugin(slaq.SlaqPlugin(policy=policy))
        async with slaq.job("chain", client=one), slaq.job("many", client=two):
            begin = virtual.now()
            many = two.map(work, [0.044] * 240, pure=False)
            link = None
            for _ in range(40):
                link = one.submit(work, 0.018, link, pure=False)
                await link
            await two.gather(many)
            took = virtual.now() - begin
            return 4 * took - 240 * 0.044 - 40 * 0.018


@pytest.mark.parametrize("policy", POLICIES)
def test_no_more_threads_are_kept_for_a_job_than_it_can_use(policy):
    assert virtual.run(chain_beside_others, policy) < 40 * 0.02 + 0.4


class Worker:
    def __init__(self, address, nthreads):
        self.address, self.nthreads = address, nthreads


def test_a_worker_that_was_sent_nothing_is_owed_one_task_a_thread():
    pool, busy, back = Pool("job", "client"), Worker("busy", 2), Worker("back", 2)
    for _ in range(100):
        pool.sent_homeless(busy, threads=4)
    for _ in range(2):
        pool.sent_homeless(back, threads=4)
    assert pool.made_at["back"] == pool.made_at["busy"]
    assert pool.made == sum(pool.made_at.values())
    pool.forget_worker("busy")
    assert pool.made == pool.made_at["back"]
