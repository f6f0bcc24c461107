"""Dispatches wake only for what can be served, and what grows with jobs and tasks does not."""

import asyncio

import pytest
from driving import jobs, on_virtual, tasks_of, work


def counted(plugin):
    """Count dispatches, and those that sent nothing, from now on."""
    found, dispatch = {"all": 0, "empty": 0}, plugin.pools.dispatch

    def count():
        before = len(plugin.pools.sent)
        send, sent = plugin.pools.tracker.send, []
        plugin.pools.filling.send = lambda choice: sent.append(choice) or send(choice)
        dispatch()
        found["all"] += 1
        found["empty"] += not sent
        return before

    plugin.pools.dispatch = count
    return found


@pytest.mark.parametrize(("shape", "empty"), [("roots", 0.1), ("chains", 0.4)])
@on_virtual([2] * 10)
async def test_dispatches_are_few_and_seldom_empty(client, cluster, plugin, shape, empty):
    async with jobs(client, "a", "b"):
        found, futures = counted(plugin), []
        for name in ("a", "b"):
            with tasks_of(name):
                seconds = [0.1 + 0.002 * (k % 40) for k in range(100)]
                last = client.map(work, seconds, pure=False)
                for _ in range(3 if shape == "chains" else 0):
                    last = client.map(work, seconds, last, pure=False)
                futures += last
        await client.gather(futures)
    found, tasks = found, len(cluster.scheduler.tasks)
    assert found["all"] <= 1.1 * tasks
    assert found["empty"] <= empty * found["all"]


@on_virtual([2, 2], epoch="1h")
async def test_a_task_that_takes_longer_than_expected_wakes_nobody(client, cluster, plugin):
    async with jobs(client, "a", "b"):
        for name in ("a", "b"):
            with tasks_of(name):
                await client.gather(client.map(work, [0.1] * 8, pure=False, key=f"work-{name}"))
        long = []
        for name in ("a", "b"):
            with tasks_of(name):
                keys = [f"work-{name}-{k}" for k in range(40)]
                long += client.map(work, [20.0] * 40, key=keys)
        await asyncio.sleep(1)
        found = counted(plugin)
        await asyncio.sleep(15)  # within the first tasks
        few = found["all"]
        await client.cancel(long)
    assert few <= 2


class Big:
    """A result whose inputs' worker is preferred."""

    def __sizeof__(self):
        return 10**7


async def big(after):
    await asyncio.sleep(after)
    return Big()


@on_virtual([1, 1], epoch="1h")
async def test_a_task_with_a_busy_home_goes_to_a_worker_that_has_become_free_meanwhile(
    client, cluster, plugin
):
    a, b = (worker.address for worker in cluster.workers)
    async with jobs(client, "x", "y"):
        with tasks_of("x"):
            data = client.submit(big, 2, pure=False, workers=[a])
            use = client.submit(work, 0.1, data, pure=False)
            other = client.submit(work, 1, pure=False, workers=[b])
            await asyncio.sleep(0.1)
        with tasks_of("y"):  # waits on the worker, and begins when its thread is free
            long = [client.submit(work, 30, pure=False, workers=[a])]
        await other  # now the other worker is free, and nothing is ready
        begin = asyncio.get_running_loop().time()
        await use
        seconds = asyncio.get_running_loop().time() - begin
        await client.cancel(long)
    assert seconds < 5


@on_virtual([1, 1], epoch="1s")
async def test_a_task_moves_when_its_home_is_late_within_some_epochs(client, cluster, plugin):
    a, _ = (worker.address for worker in cluster.workers)
    async with jobs(client, "x", "y"):
        with tasks_of("y"):
            for k in range(3):  # such tasks usually take 50 ms
                await client.submit(work, 0.05, key=f"y-{k}", workers=[a])
        with tasks_of("x"):
            data = client.submit(big, 0.1, pure=False, workers=[a])
            # One is sent ahead of the end of the task there, and waits behind it.
            uses = [client.submit(work, 0.1, data, pure=False) for _ in range(2)]
            await asyncio.sleep(0.05)
        with tasks_of("y"):
            long = client.submit(work, 30, key="y-9", workers=[a])
        begin = asyncio.get_running_loop().time()
        waits = [asyncio.ensure_future(each.result()) for each in uses]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        seconds = asyncio.get_running_loop().time() - begin
        await client.cancel([long, *uses])
        await asyncio.wait(waits)
    assert seconds < 3
