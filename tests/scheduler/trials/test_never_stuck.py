"""Searches come to their end where resources, pins, limits and pauses leave few ways to go on."""

import asyncio
import time

from distributed import Event, Status, worker_client
from distributed.utils_test import inc, slowinc
from driving import inside, pause, steal, until, wait_for, with_plugin
from moving import STEPS, begin, check, descend, let_some_leave, train

import dask_slaq as slaq

GPU = ("127.0.0.1", 1, {"resources": {"GPU": 1}})
#: Seconds after which a search counts as stuck. Each of these takes one or two.
STUCK = 15


def ends(futures):
    return asyncio.wait_for(asyncio.gather(*futures), STUCK)


@with_plugin([GPU], epoch="50ms")
async def test_a_model_that_waits_keeps_no_resource_that_another_search_needs(c, s, plugin, a):
    given = {"steps": 9, "pure": False}
    async with slaq.search("one", client=c, resources={"GPU": 1}, steps=9, max_waiting=0):
        futures = c.map(descend, range(4), seconds=0.02, workers=[a.address], **given)
        async with slaq.search("two", client=c, resources={"GPU": 1}, min_share=1.0):
            futures += c.map(descend, range(4), **given)
    await ends(futures)


@with_plugin([GPU, GPU])
async def test_no_model_moves_where_one_that_waits_has_the_resource(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS, resources={"GPU": 1}):
        futures = c.map(train, range(8), pure=False)
        alive = inside(plugin).trials("grid").alive
        await until(lambda: sum(t.checkpoint.usable and t.reports > 4 for t in alive.values()) == 2)
        pause(b)
        check(await ends(futures))


@with_plugin([GPU, GPU])
async def test_a_task_that_was_stolen_takes_its_resource_along(c, s, plugin, a, b):
    given = {"resources": {"GPU": 1}, "pure": False, "workers": [a.address]}
    async with slaq.job("one", client=c), slaq.job("two", client=c):  # tasks are held
        first = c.submit(wait_for, "go", **given)
        moved = c.submit(inc, 1, allow_other_workers=True, key="moved", **given)
        await until(lambda: "moved" in s.tasks and s.tasks["moved"].processing_on is not None)
        ts = s.tasks["moved"]
        if ts.processing_on.address == a.address:
            steal(s, ts, b)
        assert await asyncio.wait_for(moved, STUCK) == 2
        await Event("go").set()
        await first
        assert [ws.used_resources for ws in s.workers.values()] == [{"GPU": 0}] * 2
    assert plugin.failed is None


@with_plugin([2, 1], owners={"ann": {"max-threads": 1}})
async def test_the_one_thread_of_an_owner_is_where_its_models_may_run(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, owner="ann", steps=STEPS, max_waiting=2):
        futures = [c.submit(train, k, pure=False, workers=[a.address]) for k in range(8)]
        check(await ends(futures))


@with_plugin([1, 1])
async def test_no_model_is_sent_to_a_worker_that_was_paused_since_the_choice(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    await let_some_leave(c, plugin, b)
    key, ts = next(iter(inside(plugin).migrating.items()))
    pause(a)
    ws = s.workers[a.address]
    await until(lambda: ws not in s.running)
    choices = plugin.searches.choices
    choices._to_send.append((search, key, a.address))
    choices._send_models()
    assert ts.state == "no-worker" and ts in s.unrunnable
    a.status = Status.running
    await slaq.unpause("grid", client=c)
    check(await ends(futures))


def train_with_tasks(number: int) -> int:
    for k in range(20):
        time.sleep(0.01)
        slaq.report(number + 1 / (k + 1))
        if k % 5 == 3:
            with worker_client() as client:
                client.gather(client.map(slowinc, range(3), delay=0.05, pure=False))
    return number


@with_plugin([1, 1])
async def test_a_search_ends_whose_models_were_cancelled_beside_their_tasks(c, s, plugin, a, b):
    async with slaq.search("grid", client=c):
        futures = c.map(train_with_tasks, range(6), pure=False)
    await until(lambda: inside(plugin).pool("grid").inner)
    await c.cancel(futures)
    await until(lambda: not inside(plugin).reports, STUCK)


@with_plugin([4])
async def test_a_cap_holds_only_while_others_want_the_threads(c, s, plugin, a):
    begin = time.monotonic()
    async with slaq.search("grid", client=c, steps=12, max_share=1.0):
        futures = c.map(descend, range(8), steps=12, seconds=0.03, pure=False)
        await ends(futures)
    # With one thread it takes 1.0 of what the models compute, with four a quarter.
    assert time.monotonic() - begin < 0.7 * 8 * 12 * 0.03
