"""Guards root tasks: they neither fill the memory nor leave threads idle, as under plain Dask."""

import asyncio
import contextlib

import pytest
from driving import hook, work

import dask_slaq as slaq
from benchmarks import virtual

POLICIES = ["fair", "max-total"]


async def load_and_use(client, gpus, priority, n=60):
    """Load inputs, and use each: in two graphs, so that by priority all are loaded first."""
    loaded = client.map(virtual.work, range(n), seconds=0.05, key="load", pure=False)
    await asyncio.sleep(0.2)  # what is submitted later comes later in the order of priorities
    needs = {"resources": {"GPU": 1} if gpus else None, "priority": priority}
    used = client.map(virtual.work, loaded, seconds=0.05, key="use", **needs)
    del loaded
    await client.gather(used)


async def beside_another_job(policy, gpus, priority):
    """Return the seconds that loading and using took, and how many inputs were in memory."""
    cluster = virtual.Cluster([2, 2], resources=[{"GPU": 1}] * 2)
    async with cluster, cluster.client() as one, cluster.client() as two:
        if policy != "none":
            await one.register_plugin(slaq.SlaqPlugin(policy=policy))
        held, counts = set(), []

        def count(key, start, finish, *args, **kwargs):
            if str(key).startswith("load-"):
                (held.add if finish == "memory" else held.discard)(key)
                counts.append(len(held))

        hook(cluster.scheduler, "transition", count)

        def job(name, client):
            none = contextlib.nullcontext()
            return none if policy == "none" else slaq.job(name, client=client)

        async with job("short", two), job("long", one):
            begin = virtual.now()
            others = two.map(work, [0.03] * 20, pure=False)
            await asyncio.gather(load_and_use(one, gpus, priority), two.gather(others))
            return virtual.now() - begin, max(counts)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("gpus", "priority"), [(False, 0), (True, 0), (False, -1)])
def test_inputs_are_used_as_soon_and_as_fast_as_under_plain_dask(policy, gpus, priority):
    plain_seconds, plain_most = virtual.run(beside_another_job, "none", gpus, priority)
    seconds, most = virtual.run(beside_another_job, policy, gpus, priority)
    assert most <= 1.1 * plain_most + 4
    assert seconds <= 1.02 * plain_seconds + 0.05  # one task more
