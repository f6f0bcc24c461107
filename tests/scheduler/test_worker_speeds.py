"""Speeds of workers are learned and shown."""

import asyncio

import pytest
from distributed import get_worker
from driving import inside, on_virtual, until, with_plugin

import dask_slaq as slaq
from dask_slaq.cli.status_tables import summary, workers_table
from dask_slaq.client import workers as workers_of
from dask_slaq.scheduler.board.data import data_of
from dask_slaq.scheduler.views.everything import workers_of as view

SECONDS, SLOWER = 0.2, 3.0


async def compute(number, after=None):
    """Take three times as long on the first worker."""
    slow = get_worker().name == "worker-1"
    await asyncio.sleep(SECONDS * (SLOWER if slow else 1))
    return number


async def iterate(client, iterations, tasks):
    """Run iterations of independent tasks."""
    async with slaq.job("training", client=client) as job:
        data = client.map(compute, range(tasks), pure=False)
        await client.gather(data)
        for k in range(iterations):
            await client.gather([client.submit(compute, k, part, pure=False) for part in data])
            job.report(1 / (k + 1))


@on_virtual([1] * 4)
async def test_a_slow_worker_is_shown(client, cluster, plugin):
    await iterate(client, 12, 8)
    found = await workers_of(client)
    status = await slaq.status(client)
    head = data_of(cluster.scheduler).head
    factors = {worker["name"]: worker["factor"] for worker in found.values()}
    assert factors.pop("worker-1") == pytest.approx(SLOWER, rel=0.1)
    assert set(factors.values()) == {1.0}
    slowest = found[min(found, key=lambda a: found[a]["name"])]
    assert slowest["low"] < SLOWER < slowest["high"]
    assert status["speeds"] == "workers: 1 slower"
    assert "workers: 1 slower" in summary(status) and "Workers: 1 slower." in head
    first = workers_table(found).splitlines()[1].split()
    assert first[0] == "worker-1" and first[2:4] == ["1", "3"]


@with_plugin([1], memory=None)
async def test_a_worker_that_left_is_forgotten(c, s, plugin, a):
    for i in range(40):
        for address in (a.address, "tcp://other:1", "tcp://other:2"):
            inside(plugin).speeds.observe(i % 4, address, 0.4 if address == a.address else 0.1)
    inside(plugin).speeds.learn(1.0)
    assert inside(plugin).speeds.factor(a.address) == pytest.approx(4.0)
    await a.close()
    await until(lambda: not s.workers)
    assert a.address not in inside(plugin).speeds.workers
    assert view(s, inside(plugin).speeds) == {}
