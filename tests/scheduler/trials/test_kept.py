"""A search with `keep` goes on without its driver, and another program finds it again."""

import subprocess
import sys
import threading
import time

import pytest
from distributed import Client
from distributed.utils_test import captured_logger, poll_for
from driving import inside, small_cluster, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import DuplicateJob, InvalidSetting

STEPS = 12
GO = threading.Event()  # models train on after their third step


@pytest.fixture(autouse=True)
def held():
    GO.clear()
    yield
    GO.set()


def train(offset: int) -> int:
    step = slaq.resume() or 0
    while step < STEPS:
        time.sleep(0.01)
        step += 1
        slaq.report(offset + 1 / step, state=step)
        if step == 3:
            assert GO.wait(30)
    return offset


def clients_of_kept(scheduler) -> list[str]:
    return [name for name in list(scheduler.clients) if name.startswith("slaq-kept")]


async def begin(scheduler, plugin, models=6, **settings):
    """Begin a search in a program that ends at once."""
    async with Client(scheduler.address, asynchronous=True) as first:
        async with slaq.search("grid", client=first, steps=STEPS, keep="1min", **settings):
            futures = first.map(train, range(models), pure=False)
        kept = inside(plugin).kept.find("grid", inside(plugin).owners["grid"])
        await until(lambda: len(inside(plugin).trials("grid").alive) > 0)
    await until(lambda: first.id not in scheduler.clients)
    del futures
    assert len(kept.keys) == models
    return kept


@pytest.mark.parametrize("have", ["begun", "ended"])
@with_plugin([1, 1])
async def test_a_new_program_finds_models_that_train_on_or_have_ended(c, s, plugin, a, b, have):
    await begin(s, plugin)
    assert "grid" in inside(plugin).searches
    GO.set()
    if have == "ended":
        await until(lambda: "grid" not in inside(plugin).reports)
    async with slaq.search("grid", client=c, steps=STEPS, reattach=True) as search:
        assert await c.gather(search.futures) == list(range(6))
        assert [t["state"] for t in await search.trials()] == ["done"] * 6
    await until(lambda: "grid" not in inside(plugin).reports)
    await until(lambda: not clients_of_kept(s))  # the new client wants them
    search.futures.clear()
    await until(lambda: not s.tasks and not inside(plugin).kept)


@with_plugin([1, 1])
async def test_a_search_that_is_over_is_kept_when_its_driver_leaves(c, s, plugin, a, b):
    GO.set()
    async with Client(s.address, asynchronous=True) as first:
        async with slaq.search("grid", client=first, steps=STEPS, keep=60):
            futures = first.map(train, range(3), pure=False)
            await first.gather(futures)
        await until(lambda: "grid" not in inside(plugin).reports)
        assert not clients_of_kept(s)
    async with slaq.search("grid", client=c, steps=STEPS, reattach=True) as search:
        assert await c.gather(search.futures) == list(range(3))


@with_plugin([1, 1])
async def test_what_nobody_finds_again_is_dropped_after_its_time(c, s, plugin, a, b):
    kept = await begin(s, plugin)
    kept.seconds = 0.0
    inside(plugin).kept.look()
    await until(lambda: not s.tasks and not inside(plugin).reports)
    assert not clients_of_kept(s)
    GO.set()


@with_plugin([1, 1])
async def test_an_interrupted_block_keeps_its_search_and_says_so(c, s, plugin, a, b):
    with captured_logger("dask_slaq.client.search_block") as log, pytest.raises(KeyboardInterrupt):
        async with slaq.search("grid", client=c, steps=STEPS, keep=60):
            futures = c.map(train, range(4), pure=False)
            await until(lambda: inside(plugin).trials("grid").alive)
            raise KeyboardInterrupt
    del futures
    assert "slaq.stop('grid') ends it" in log.getvalue()
    with pytest.raises(DuplicateJob, match=r"reattach=True.*slaq.stop\('grid'\)"):
        await slaq.search("grid", client=c).__aenter__()
    async with slaq.search("grid", client=c, reattach=True, keep=60) as search:
        GO.set()
        assert await c.gather(search.futures) == list(range(4))


@with_plugin([1, 1])
async def test_a_driver_that_is_there_may_cancel_its_models(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS, keep=60):
        futures = c.map(train, range(4), pure=False)
    await until(lambda: len(inside(plugin).trials("grid").alive) > 0)
    await c.cancel(futures[:2])
    await until(lambda: len([ts for ts in s.tasks.values() if ts.who_wants]) == 2)
    GO.set()
    assert await c.gather(futures[2:]) == [2, 3]


@with_plugin([1, 1])
async def test_without_anything_kept_a_new_search_begins(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, reattach=True) as search:
        assert search.futures == []
    assert not inside(plugin).kept
    with pytest.raises(InvalidSetting, match="keep"):
        slaq.search("grid", keep=0)


@with_plugin([1, 1])
async def test_another_program_may_stop_it(c, s, plugin, a, b):
    await begin(s, plugin)
    await slaq.stop("grid", client=c)
    GO.set()
    await until(lambda: "grid" not in inside(plugin).reports)


PROGRAM = """
import sys, time
from distributed import Client
import dask_slaq as slaq

def train(number):
    count = []
    for step in slaq.steps(30, count):
        time.sleep(0.05)
        count.append(step)
        slaq.report(number + 1 / (step + 1))
    return number, len(count)

client = Client(sys.argv[1])
with slaq.search("grid", steps=30, keep="1min"):
    futures = client.map(train, range(6))
    print("submitted", flush=True)
    client.gather(futures)
"""


@pytest.mark.slow
def test_a_program_that_is_killed_is_followed_by_another():
    with small_cluster() as client:
        client.register_plugin(slaq.SlaqPlugin())
        command = [sys.executable, "-c", PROGRAM, client.cluster.scheduler_address]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert program.stdout.readline() == "submitted\n"
        time.sleep(1)
        program.kill()
        program.communicate()
        poll_for(lambda: clients_of_kept(client.cluster.scheduler), 60)
        with slaq.search("grid", steps=30, reattach=True) as search:
            results = client.gather(search.futures)
        assert results == [(number, 30) for number in range(6)]
        assert {t["iteration"] for t in search.trials()} == {30}
