"""Limits of an owner hold for the models of its searches: those that train, and what they hold."""

import asyncio

import pytest
from distributed import worker_client
from driving import with_plugin
from moving import AtOnce

import dask_slaq as slaq

GPUS = [("127.0.0.1", 4, {"resources": {"GPU": 4}})] * 2


def check(limit):
    """Check that a limit held, and was reached. Late messages may let two more make a step."""
    above = sum(now > limit for now in AtOnce.begun)
    assert limit <= max(AtOnce.begun) <= limit + 2
    assert above <= 0.1 * len(AtOnce.begun), (above, len(AtOnce.begun))


@pytest.fixture(autouse=True)
def nothing_trains():
    AtOnce.forget()


def train(p, steps=10, seconds=0.05, moves=False):
    begin = slaq.resume() or 0 if moves else 0
    for k in range(begin, steps):
        AtOnce.make(seconds)
        slaq.report(p % 5 + 1 / (k + 1), **({"state": k + 1} if moves else {}))
    return p


@pytest.mark.parametrize(("epoch", "moves"), [("20ms", False), ("1h", True)])
@with_plugin(GPUS, owners={"ann": {"max-threads": 2}})
async def test_models_train_on_no_more_threads_than_the_owner_may(c, s, plugin, a, b, moves, epoch):
    plugin.timer.callback_time = 20 if epoch == "20ms" else 3_600_000
    async with slaq.search("grid", owner="ann", steps=10, client=c) as search:
        futures = search.map(train, range(8), moves=moves, pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == list(range(8))
        assert [row["state"] for row in await search.trials()] == ["done"] * 8
    check(2)


@with_plugin(GPUS, owners={"ann": {"max-threads": 3}})
async def test_searches_and_jobs_of_an_owner_are_within_its_limit_together(c, s, plugin, a, b):
    async def search(name):
        async with slaq.search(name, owner="ann", steps=8, client=c) as search:
            await c.gather(search.map(train, range(5), steps=8, pure=False))

    async def job():
        async with slaq.job("job", owner="ann", client=c):
            await c.gather(c.map(AtOnce.make, [0.1] * 10, pure=False))

    await asyncio.wait_for(asyncio.gather(search("one"), search("two"), job()), 60)
    check(3)


@with_plugin(GPUS, owners={"ann": {"max-resources": {"GPU": 2}}, "bob": {}})
async def test_models_that_wait_hold_no_more_of_a_resource_than_the_limit(c, s, plugin, a, b):
    """The other GPUs are for others: Dask gives nobody that of a model that waits."""
    held = []

    async def watch():
        while True:
            held.append(sum(ws.used_resources["GPU"] for ws in s.workers.values()))
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    async with slaq.search("grid", owner="ann", steps=10, client=c) as search:
        futures = search.map(train, range(8), resources={"GPU": 1}, pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == list(range(8))
    watching.cancel()
    assert max(held) == 2
    check(2)


@with_plugin(GPUS, owners={"ann": {"max-threads": 1}})
async def test_models_that_have_left_their_thread_keep_no_task_from_it(c, s, plugin, a, b):
    def train(p):
        for k in range(3):
            with worker_client() as client:
                slaq.report(p + 1 / (k + 1))  # it has left its thread, and takes no turn
                client.gather(client.map(AtOnce.make, [0.02] * 3, pure=False))
        return p

    async with slaq.search("grid", owner="ann", steps=3, client=c) as search:
        futures = search.map(train, range(4), pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == list(range(4))
    check(1)
