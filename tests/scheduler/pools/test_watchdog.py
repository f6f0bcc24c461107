"""No task waits forever while a thread that it may use is free, even if the dispatcher fails."""

from __future__ import annotations

import asyncio
import logging

import dask
import pytest
from distributed import wait

import dask_slaq as slaq
from dask_slaq.scheduler.pools.watchdog import PATIENCE
from dask_slaq.simulation import virtual


async def add(x, y=1):
    """Takes its time: Dask's work stealing takes what does not for seceded."""
    await asyncio.sleep(0.01)
    return x + y


async def _other_job_open(main, **settings):
    """Run `main(client, plugin, workers)` in a job beside another one that is open."""
    async with virtual.Cluster(threads=[1] * 4) as cluster, cluster.client() as client:
        await client.register_plugin(slaq.SlaqPlugin(**settings))
        plugin = cluster.scheduler.plugins["slaq"]
        workers = sorted(cluster.scheduler.workers)
        async with slaq.job("a", client=client), slaq.job("b", client=client):
            return await main(client, plugin, workers)


def test_what_the_dispatcher_forgets_runs_all_the_same(caplog):
    async def main(client, plugin, workers):
        plugin.pools.dispatcher.matching._may_use = lambda *_: False
        begin = virtual.now()
        assert await client.gather(client.map(add, range(8), pure=False)) == list(range(1, 9))
        return virtual.now() - begin

    with caplog.at_level(logging.WARNING, "dask_slaq"):
        assert PATIENCE < virtual.run(_other_job_open, main) < 5 * PATIENCE
    assert "although slots were free" in caplog.text


@pytest.mark.parametrize("allowed", [[1, 2], [1, 2, 3]])
def test_inputs_that_were_made_elsewhere_keep_no_task_from_its_workers(allowed, caplog):
    """The user pins a step to one worker and lets the next run on others only."""

    async def main(client, plugin, workers):
        with dask.annotate(workers=workers[:1]):
            made = client.map(add, range(4), pure=False)
        await wait(made)
        one = await client.scatter(1, workers=workers[1:2])
        with dask.annotate(workers=[workers[i] for i in allowed]):
            then = [client.submit(add, m, one, pure=False) for m in made]
        begin = virtual.now()
        assert await client.gather(then) == [2, 3, 4, 5]
        return virtual.now() - begin

    assert virtual.run(_other_job_open, main) < PATIENCE
    ours = (record for record in caplog.records if record.name.startswith("dask_slaq"))
    assert not [record for record in ours if record.levelno >= logging.WARNING]
