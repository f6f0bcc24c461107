"""Guards where tasks run: neither piled up on one worker, nor kept from a thread they could use."""

import asyncio
import functools

import pytest
from driving import Fixed, in_job, on_virtual, on_virtual_clock, work

import dask_slaq as slaq
from benchmarks import virtual

POLICY = "max-total"
MB = 10**6


async def pinned_beside_others(client, cluster, plugin):
    """Return the seconds of pinned tasks alongside a job that may run anywhere."""
    async with slaq.job("many", client=client), slaq.job("pinned", client=client):
        many = in_job(client, "many").map(work, [0.08] * 300, pure=False)
        await asyncio.sleep(0.5)
        begin, alone = virtual.now(), cluster.workers[1].address
        pinned = in_job(client, "pinned").map(work, [0.05] * 20, pure=False, workers=alone)
        await client.gather(pinned)
        took = virtual.now() - begin
        await client.gather(many)
        return took


@pytest.mark.parametrize("policy", ["fair", Fixed(many=(7.0, 2.0), pinned=(2.0, 1.0))])
def test_tasks_that_can_only_run_on_one_worker_keep_it(policy):
    took = on_virtual_clock(pinned_beside_others, [8, 1], policy=policy)
    assert took < 20 * 0.05 + 2 * 0.08 + 0.05


@on_virtual([2, 2], policy=POLICY)
async def test_no_more_threads_are_kept_for_a_job_than_it_can_use(one, cluster, plugin):
    """Few core-seconds are lost while a chain, which is behind, runs beside many tasks."""
    chain = slaq.job("chain", client=one)
    async with cluster.client() as two, chain, slaq.job("many", client=two):
        begin = virtual.now()
        many = two.map(work, [0.044] * 240, pure=False)
        link = None
        for _ in range(40):
            link = one.submit(work, 0.018, link, pure=False)
            await link
        await two.gather(many)
        took = virtual.now() - begin
        assert 4 * took - 240 * 0.044 - 40 * 0.018 < 40 * 0.02 + 0.4


async def both_need(policy, threads, resources, needs, others):
    """Return the seconds of two jobs of 40 tasks of 0.1 s, with the resources they need."""
    cluster = virtual.Cluster(threads, resources=[resources] * len(threads))
    async with cluster, cluster.client() as one, cluster.client() as two:
        if policy != "none":
            await one.register_plugin(slaq.SlaqPlugin(policy=policy))

        async def job(client, name, count, needed):
            block = cluster.client() if policy == "none" else slaq.job(name, client=client)
            async with block:
                begin = virtual.now()
                tasks = client.map(work, [0.1] * count, pure=False, resources=needed)
                await client.gather(tasks)
                return virtual.now() - begin

        return await asyncio.gather(job(one, "one", 40, needs), job(two, "two", 40, others))


def test_resources_may_come_in_any_amount():
    # Amounts were once taken for numbers of tasks, and all other tasks were sent at once.
    memory = {"MEMORY": 100e9}
    given = [2] * 2, memory, {"MEMORY": 70e9}, {}
    plain = max(virtual.run(both_need, "none", *given))
    assert max(virtual.run(both_need, POLICY, *given)) <= 1.02 * plain + 0.1


def test_jobs_that_need_the_same_resource_take_turns():
    one, two = virtual.run(both_need, POLICY, [4] * 2, {"GPU": 1}, {"GPU": 1}, {"GPU": 1})
    assert abs(one - two) <= 0.3, (one, two)


@on_virtual([1] * 4, policy=POLICY)
async def test_data_loaded_on_one_worker_may_be_used_on_others(one, cluster, plugin):
    """By 40 tasks of 0.1 s."""
    other_job = slaq.job("other", client=one)
    async with cluster.client() as two, other_job, slaq.job("using", client=two):
        other = one.map(work, [0.05] * 20, pure=False)
        first = cluster.workers[0].address
        loaded = two.submit(virtual.work, nbytes=10**6, key="loaded", workers=first)
        begin = virtual.now()
        await two.gather([two.submit(work, 0.1, loaded, pure=False) for _ in range(40)])
        await one.gather(other)
        assert virtual.now() - begin < 40 * 0.1 / 4 + 20 * 0.05 / 4 + 0.4


@on_virtual([8, 1, 1], policy=POLICY)
async def test_short_tasks_of_unknown_length_do_not_move_large_inputs(client, cluster, plugin):
    """Of which the smaller workers have all."""
    large, *small = (worker.address for worker in cluster.workers)
    async with slaq.job("other", client=client), slaq.job("short", client=client):
        other = in_job(client, "other").map(work, [0.1] * 60, pure=False, workers=large)
        inputs = [
            await client.scatter(virtual.Sized(i, 40 * MB), workers=[address], hash=False)
            for i, address in enumerate(small * 3)
        ]
        await asyncio.sleep(0.5)
        begin = virtual.now()
        use = functools.partial(in_job(client, "short").submit, work, 0.002)
        await client.gather([use(inputs[i % 6], key=f"use-{i}") for i in range(240)])
        # At home it takes 0.24 s. Each input takes 0.4 s to move, and a worker sends one at a time.
        assert virtual.now() - begin < 0.5
        del other
