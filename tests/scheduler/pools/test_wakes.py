"""Dispatches wake only for what can be served, and what grows with jobs and tasks does not."""

import asyncio
from time import monotonic

import pytest
from driving import in_job, inside, jobs, on_virtual, tasks_of, work


def counted(plugin):
    """Count dispatches, and those that sent nothing, from now on."""
    found, dispatch = {"all": 0, "empty": 0}, inside(plugin).dispatch

    def count():
        tracker, sent = inside(plugin).tracker, []
        send = tracker.send
        tracker.send = lambda choice: sent.append(choice) or send(choice)
        dispatch()
        del tracker.send
        found["all"] += 1
        found["empty"] += not sent

    inside(plugin).dispatch = count
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
    assert found["all"] <= 1.1 * len(cluster.scheduler.tasks)
    assert found["empty"] <= empty * found["all"]


@on_virtual([2, 2], epoch="1h")
async def test_a_task_that_takes_longer_than_expected_wakes_nobody(client, cluster, plugin):
    async with jobs(client, "a", "b"):
        for name in ("a", "b"):
            with tasks_of(name):
                await client.gather(client.map(work, [0.1] * 8, pure=False, key=f"work-{name}"))
        long = []
        for name in ("a", "b"):
            keys = [f"work-{name}-{k}" for k in range(40)]
            long += in_job(client, name).map(work, [20.0] * 40, key=keys)
        await asyncio.sleep(1)
        found = counted(plugin)
        await asyncio.sleep(15)  # within the first tasks
        assert found["all"] <= 2
        await client.cancel(long)


class Big:
    """A result whose inputs' worker is preferred."""

    def __sizeof__(self):
        return 10**7


async def big(after):
    await asyncio.sleep(after)
    return Big()


@on_virtual([1, 1], epoch="1h")
async def test_a_task_with_a_busy_home_goes_to_a_freed_worker(client, cluster, plugin):
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
        begin = monotonic()
        await use
        assert monotonic() - begin < 5
        await client.cancel(long)


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
        long = in_job(client, "y").submit(work, 30, key="y-9", workers=[a])
        begin = monotonic()
        waits = [asyncio.ensure_future(each.result()) for each in uses]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert monotonic() - begin < 3
        await client.cancel([long, *uses])
        await asyncio.wait(waits)
