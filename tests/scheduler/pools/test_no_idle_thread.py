"""Whatever happens, no thread stays free that a fill of all workers would take."""

import asyncio
import contextlib
import random
from itertools import islice

import dask
import pytest
from driving import jobs, on_virtual_clock, tasks_of

from benchmarks import virtual
from dask_slaq.core.dispatch import Dispatcher

#: Virtual seconds between two looks, and of a scenario.
EVERY, LONG = 0.0137, 4.0
#: Virtual seconds for which a task may wait that is moved at last, as its home is busy for hardly
#: longer than moving takes (1 s here): an event tells that what computes there takes longer.
HAIR = 0.25


def missed(plugin):
    """Return the first task that a fill would send to a free thread, although none is scheduled."""
    pools = plugin.pools
    if pools.wakes.due or not pools.records.holding or pools.rounds.dispatcher.has_kept_slots:
        return []
    now = virtual.now()
    dispatcher = Dispatcher(pools.order, pools.cluster, 0.0)
    for ws in pools.scheduler.running:
        slots = pools.sent.on(ws)
        if slots.has_thread:
            dispatcher.look(slots, now)
    some = islice(dispatcher.choices(now), 1)
    return [(task.pool.name, task.ts.key, task.preferred, task.worker, task.why) for task in some]


async def some_work(client, cluster, name, rng):
    """Submit some tasks of a job, or of no job, and wait for them."""
    shape = rng.choice(["roots", "chains", "preferred", "gpu", "pinned", "labels", "one"])
    seconds = [rng.choice([0.0005, 0.01, 0.05, 0.3]) * rng.uniform(0.5, 3) for _ in range(12)]
    work = virtual.work
    with tasks_of(name) if name else contextlib.nullcontext():
        made = [
            client.submit(work, seconds=s, nbytes=rng.choice([0, 10**6, 10**8]), pure=False)
            for s in (seconds if shape != "one" else seconds[:1])
        ]
    addresses = sorted(cluster.scheduler.workers)
    pinned = {"workers": rng.sample(addresses, rng.randint(1, len(addresses)))}
    notes = {
        "gpu": {"resources": {"GPU": 1}}, "pinned": pinned, "labels": {"slaq_limit": "some"},
    }.get(shape, {})  # fmt: skip
    with tasks_of(name) if name else contextlib.nullcontext(), dask.annotate(**notes):
        then = [
            client.submit(work, m, seconds=rng.choice(seconds), nbytes=10**6, pure=False)
            for m in (made if shape != "roots" else made[:2])
        ]
    if rng.random() < 0.2:
        await asyncio.sleep(rng.uniform(0, 0.5))
        await client.cancel(rng.sample(then, len(then) // 2))
    await asyncio.wait([asyncio.ensure_future(client.gather(made + then, errors="skip"))])


async def take_part(client, cluster, name, rng):
    end = virtual.now() + LONG
    while virtual.now() < end:
        await asyncio.sleep(rng.choice([0.0, 0.005, 0.2]))
        await some_work(client, cluster, name, rng)


async def workers_come_and_go(cluster, rng):
    for _ in range(3):
        await asyncio.sleep(rng.uniform(0.3, 1))
        if rng.random() < 0.6 or len(cluster.workers) < 3:
            await cluster.add_worker(rng.randint(1, 3), {"GPU": 1} if rng.random() < 0.5 else None)
        else:
            await cluster.kill_worker(rng.choice(cluster.workers))


def free_threads_that_are_missed(seed):
    """Return what the dispatcher missed in a random scenario."""
    rng = random.Random(seed)

    async def scenario(client, cluster, plugin):
        names = ["a", "b", "c"][: rng.randint(2, 3)]
        async with jobs(client, *names, gang=rng.random() < 0.1), cluster.client() as stranger:
            parts = [
                take_part(client, cluster, name, random.Random(rng.random())) for name in names
            ]
            parts.append(workers_come_and_go(cluster, rng))
            if rng.random() < 0.5:
                parts.append(take_part(stranger, cluster, None, random.Random(rng.random())))
            all_of_them = asyncio.gather(*parts)
            while not all_of_them.done():
                await asyncio.sleep(EVERY)
                if missed(plugin):
                    await asyncio.sleep(HAIR)
                if found := missed(plugin):
                    all_of_them.cancel()
                    return found
            await all_of_them
        return []

    threads = [rng.randint(1, 4) for _ in range(rng.randint(2, 4))]
    resources = [{"GPU": 1} if rng.random() < 0.6 else None for _ in threads]
    resources[0] = {"GPU": 1}
    with dask.config.set({"slaq.limits": {"some": 2}}):
        return on_virtual_clock(scenario, threads, resources=resources, epoch="1h")


@pytest.mark.parametrize("seed", [0, 6])
def test_no_thread_stays_free_beside_a_task_that_may_take_it(seed):
    assert free_threads_that_are_missed(seed) == []
