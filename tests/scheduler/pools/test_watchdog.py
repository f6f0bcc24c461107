"""No task waits forever while a thread that it may use is free, even if a dispatch is lost."""

import asyncio
import logging

import dask
import pytest
from distributed import wait
from driving import inside, on_virtual_clock

import dask_slaq as slaq
from benchmarks import virtual

#: Seconds after which a task that was forgotten must run: the watchdog looks once per epoch.
SOON = 10.0


async def add(x, y=1):
    """Takes its time: Dask's work stealing takes what does not for seceded."""
    await asyncio.sleep(0.01)
    return x + y


def with_another_job(main):
    """Run `main(client, plugin, workers)` in a job alongside another one that is open."""

    async def scenario(client, cluster, plugin):
        workers = sorted(cluster.scheduler.workers)
        async with slaq.job("a", client=client), slaq.job("b", client=client):
            return await main(client, plugin, workers)

    return on_virtual_clock(scenario, [1] * 4)


def test_tasks_whose_dispatch_was_lost_run_all_the_same(caplog):
    async def main(client, plugin, workers):
        inside(plugin).dispatch = list  # fills no slot
        futures = client.map(add, range(4), pure=False)
        await asyncio.sleep(SOON / 2)
        del inside(plugin).dispatch
        begin = virtual.now()
        assert await client.gather(futures) == [1, 2, 3, 4]
        return virtual.now() - begin

    with caplog.at_level(logging.WARNING, "dask_slaq"):
        assert with_another_job(main) < SOON / 2
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

    assert with_another_job(main) < 1
    ours = (record for record in caplog.records if record.name.startswith("dask_slaq"))
    assert not [record for record in ours if record.levelno >= logging.WARNING]
