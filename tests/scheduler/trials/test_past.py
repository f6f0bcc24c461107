"""The next search of a kind begins with what ended best in the last one."""

import math
import time

from driving import gen_cluster, inside, start_plugin, until, with_plugin

import dask_slaq as slaq
from dask_slaq.run_history.file import prune


def train(lr, seen="", data=None):
    for k in range(3):
        slaq.report(abs(lr - 3) + 1 / (k + 1))
        time.sleep(0.002)
    return lr


async def run(c, values, **given):
    """Search the values; return them in the order in which their models began."""
    async with slaq.search("grid", client=c, steps=3, max_waiting=0) as search:
        futures = search.map(train, values, **given)
        assert await c.gather(futures) == values
        rows = {row["key"]: row for row in await search.trials()}
    began = sorted(futures, key=lambda future: rows[future.key]["began"])
    return [values[futures.index(future)] for future in began]


@with_plugin([1])
async def test_the_next_search_begins_with_what_was_best(c, s, plugin, a):
    values = [0, 1, 2, 3, 4, 5, 6, 7]
    await run(c, values)
    order = await run(c, values, data="other", pure=False)
    assert order[0] == 3 and order.index(2) < order.index(0) and order.index(4) < order.index(7)


@gen_cluster(client=True, nthreads=[1])
async def test_a_later_scheduler_knows_it_from_the_file(c, s, a, tmp_path):
    plugin = await start_plugin(c, s, run_history=str(tmp_path / "runs.db"))
    await run(c, [0, 1, 2, 3, 4])
    await until(lambda: inside(plugin).store.events("searches"))
    plugin = await start_plugin(c, s, run_history=str(tmp_path / "runs.db"))
    await until(lambda: plugin.run_history.searches._models)
    assert (await run(c, [0, 1, 2, 3, 4], data=math.nan, pure=False))[0] == 3
    await until(lambda: len(inside(plugin).store.events("searches")) == 2)
    prune(tmp_path / "runs.db", kind="other")
    assert len(inside(plugin).store.events("searches")) == 2
    prune(tmp_path / "runs.db", kind="grid")
    assert inside(plugin).store.events("searches") == []


@with_plugin([1])
async def test_keys_that_are_given_stay_with_their_models(c, s, plugin, a):
    await run(c, [0, 1, 2, 3, 4])
    keys = [f"model-{lr}" for lr in (0, 1, 2, 3, 4)]
    async with slaq.search("grid", client=c, steps=3) as search:
        futures = search.map(train, [0, 1, 2, 3, 4], key=keys, pure=False)
        assert [future.key for future in futures] == keys
        assert await c.gather(futures) == [0, 1, 2, 3, 4]


@with_plugin([1])
async def test_scores_are_another_past(c, s, plugin, a):
    await run(c, [0, 1, 2, 3, 4])
    async with slaq.search("grid", client=c, steps=3, maximize=True) as search:
        assert "past" not in search._opened or not search._opened["past"]


@with_plugin([1])
async def test_a_search_that_no_worker_can_run_says_so(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=3) as search:
        futures = search.map(train, [1, 2], resources={"GPU": 1})
        await until(lambda: len(s.tasks) == 2)
        plugin.run_once()
        job = (await slaq.status(c))["jobs"]["grid"]
        assert "GPU: 1" in job["reason"] and job["ends"] is None
        for future in futures:
            await future.cancel()
