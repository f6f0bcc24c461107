"""Guards the use of scarce resources: tasks that need one keep all of its workers busy."""

import asyncio

import pytest
from driving import jobs, on_virtual, tasks_of

import dask_slaq as slaq
from benchmarks import virtual

GPUS = [{"GPU": 1}] * 2


async def process(n):
    await asyncio.sleep(0.5)
    return n


async def load(n):
    await asyncio.sleep(0.05)
    return n


async def of_job(client, name, function, n, **resources):
    async with slaq.job(name, client=client):
        begin = virtual.now()
        with tasks_of(name):
            futures = client.map(function, range(n), pure=False, resources=resources or None)
        assert await client.gather(futures) == list(range(n))
        return virtual.now() - begin


@on_virtual([8, 1], resources=GPUS)
async def test_workers_with_a_resource_serve_those_who_need_it_first(one, cluster, plugin):
    # Without a preference each job would get half of the single thread beside the second GPU, and
    # without late binding the worker with more threads would be sent most of the tasks.
    async with cluster.client() as two:
        needs, others = of_job(one, "gpu", process, 8, GPU=1), of_job(two, "any", load, 400)
        gpu, other = await asyncio.gather(needs, others)
    assert 2.0 <= gpu < 2.2  # four tasks of half a second on each of the two
    assert other < 400 * 0.05 / 7 + 0.2  # seven threads at least


async def made(n):
    return virtual.Sized(n, 1_000_000)


async def used(made):
    return await process(made.value)


@on_virtual([8, 1], resources=GPUS)
async def test_inputs_move_to_a_free_resource_from_a_free_thread(client, cluster, plugin):
    # One task of half a second on each of the two.
    async with jobs(client, "other", "gpu"):
        with tasks_of("gpu"):
            home = [cluster.workers[0].address]
            inputs = client.map(made, range(2), pure=False, workers=home)
            await client.gather(inputs)
            begin = virtual.now()
            futures = client.map(used, inputs, pure=False, resources={"GPU": 1})
            assert await client.gather(futures) == [0, 1]
            assert 0.5 <= virtual.now() - begin < 0.6


@pytest.mark.parametrize(
    ("threads", "n", "seconds", "nbytes"),
    [([2] * 4, 37, 0.0482, 1), ([8, 1], 75, 0.03, 50_000_000)],
    ids=["anywhere", "at home"],
)
def test_loads_go_on_as_under_dask_while_tasks_wait_for_a_resource(threads, n, seconds, nbytes):
    # Half of the threads idled while as many tasks as there are workers waited, wherever they did.
    async def run(ours):
        gpu = [{"GPU": 1}] * len(threads)
        async with virtual.Cluster(threads, resources=gpu) as cluster, cluster.client() as client:
            if not ours:
                return await both(client)
            await client.register_plugin(slaq.SlaqPlugin(policy="fair"))
            other, gpus = slaq.job("other", client=client), slaq.job("gpu", client=client)
            async with other, gpus:
                return await both(client)

    async def both(client):
        begin = virtual.now()
        keys = [[f"{what}-{i}" for i in range(n)] for what in ("load", "use")]
        made = client.map(virtual.work, range(n), seconds=seconds, nbytes=nbytes, key=keys[0])
        needs = {"GPU": 1}
        futures = client.map(virtual.work, made, seconds=0.0479, key=keys[1], resources=needs)
        del made
        await client.gather(futures)
        return virtual.now() - begin

    assert virtual.run(run, True) < 1.05 * virtual.run(run, False)


@pytest.mark.parametrize("need", ["resource", "workers"])
@on_virtual([2, 2], resources=[{"GPU": 8}] * 2)
async def test_a_job_gets_its_share_beside_one_whose_tasks_need_more(one, cluster, plugin, need):
    # The other job's tasks came first without end, and it waited until the last of them.
    async def ended(client, name, n, **needs):
        async with slaq.job(name, client=client):
            keys = [f"{name}-{i}" for i in range(n)]
            futures = [client.submit(load, i, key=key, **needs) for i, key in enumerate(keys)]
            return await asyncio.gather(*map(end_of, futures))

    async def end_of(future):
        await future
        return virtual.now() - 1000

    async with cluster.client() as two:
        every = {"workers": [worker.address for worker in cluster.workers]}
        needs = {"resources": {"GPU": 1}} if need == "resource" else every
        any_ = asyncio.ensure_future(ended(two, "any", 100))
        await asyncio.sleep(0.1)
        both = await asyncio.gather(any_, ended(one, "needs", 100, **needs))
        first, second = [sum(end < 1.5 for end in ends) for ends in both]
    assert first >= 40 and second >= 40  # of 116 or so that end within 1.5 s
