"""The paper's scheduler on Dask's: tokens enforce shares, and a job without tokens waits."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest
from distributed import Client
from driving import in_job, on_virtual, small_cluster, train, work

import dask_slaq as slaq
from benchmarks import virtual


@on_virtual([2, 2], policy="slaq2017")
async def test_a_job_uses_its_share_and_leaves_threads_of_others_idle(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two, slaq.job("idle", client=two):
        begin = virtual.now()
        async with slaq.job("busy", client=one):
            tasks = in_job(one, "busy").map(work, [0.1] * 80, pure=False)
            await asyncio.sleep(1.03)
            why = (await slaq.explain("busy", client=one))["text"]
            await one.gather(tasks)
        took = virtual.now() - begin
    assert took == pytest.approx(80 * 0.1 / 2, rel=0.1)  # two threads of four
    assert "tokens" in why


@on_virtual([2, 2], policy="slaq2017")
async def test_who_learns_gets_more_and_nobody_less_than_one_core(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two:
        steep = asyncio.create_task(train(one, "steep", 0.95, iterations=60))
        flat = asyncio.create_task(train(two, "flat", 0.05, iterations=60))
        await asyncio.sleep(8)
        begin = await used(one)
        shares = {job: each["share"] for job, each in (await slaq.status(one))["jobs"].items()}
        await asyncio.sleep(6)
        end = await used(one)
        steep.cancel()
        flat.cancel()
        await asyncio.gather(steep, flat, return_exceptions=True)
    assert shares == {"steep": 3.0, "flat": 1.0}
    assert (end["flat"] - begin["flat"]) / 6 == pytest.approx(1.0, abs=0.2)
    assert (end["steep"] - begin["steep"]) / 6 == pytest.approx(3.0, abs=0.4)


@on_virtual([2], policy="slaq2017")
async def test_more_jobs_than_threads_share_these_by_service(client, cluster, plugin):
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(cluster.client()) for _ in range(4)]
        how = {"iterations": 12, "tasks": 2}
        each = (train(one, f"job-{i}", 0.9, **how) for i, one in enumerate(clients))
        took = await asyncio.gather(*each)
    total = 4 * 12 * 2 * 0.1 / 2
    assert max(took) < 1.3 * total and min(took) > 0.6 * total


@on_virtual([2, 2], policy="slaq2017")
async def test_another_policy_lifts_the_limit(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two, slaq.job("idle", client=two):
        async with slaq.job("busy", client=one):
            tasks = in_job(one, "busy").map(work, [0.1] * 80, pure=False)
            await asyncio.sleep(1.0)
            plugin.set_policy("fair")
            begin = virtual.now()
            await one.gather(tasks)
        assert virtual.now() - begin < (80 * 0.1 - 2.0) / 4 + 0.3


async def used(client):
    return {job: each["attained"] for job, each in (await slaq.status(client))["jobs"].items()}


def test_in_real_time_too_all_jobs_end():
    def trained(name, fall):
        with Client(client.scheduler.address) as own, slaq.job(name, client=own) as job:
            for k in range(15):
                own.gather(own.map(time.sleep, [0.01] * 8, pure=False))
                job.report(fall**k)
        return True

    with small_cluster(4) as client, ThreadPoolExecutor(3) as pool:
        client.register_plugin(slaq.SlaqPlugin(policy="slaq2017", epoch="100ms"))
        falls = {"steep": 0.95, "flat": 0.05, "slow": 0.999}
        assert all(pool.map(trained, falls, falls.values()))
