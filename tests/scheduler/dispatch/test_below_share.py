"""Guards jobs below their share: others' tasks that wait on workers do not hold them up."""

import asyncio

from driving import Fixed, on_virtual_clock, tasks_of, work

import dask_slaq as slaq
from dask_slaq.simulation import virtual

LONG, SHORT = 0.5, 0.02


async def last_start(client, cluster, plugin):
    """Return how long short tasks wait of a job that runs one task, and has all threads."""
    async with slaq.job("high", client=client), slaq.job("low", client=client):
        with tasks_of("low"):
            waiting = client.map(work, [LONG] * 100, pure=False)
        await asyncio.sleep(4.1 * LONG)
        with tasks_of("high"):
            running = client.submit(work, 6 * LONG, pure=False)
            await asyncio.sleep(1.2 * LONG)  # it has begun, and the others have begun new tasks
            begin = virtual.now()
            await client.gather(client.map(work, [SHORT] * 3, pure=False))
            took = virtual.now() - begin
        await client.cancel([*waiting, running])
    return took


def test_a_job_below_its_share_overtakes_waiting_tasks_of_lower_index():
    policy = Fixed(high=(4.0, 5.0), low=(0.0, 1.0))
    took = on_virtual_clock(last_start, [1] * 4, policy=policy, ahead=2 * LONG)
    assert took < LONG + 2 * SHORT
