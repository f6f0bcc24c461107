"""The same function with the same arguments has the same key, whoever submits it.

A search gives up no model that others want, and knows nothing of models that others have trained.
"""

import logging
import time
from contextlib import AsyncExitStack
from contextvars import copy_context

import pytest
from distributed import Event, wait
from driving import another_client, inside, let_end, until, with_plugin

import dask_slaq as slaq

STEPS = 20
GRID = [{"offset": float(offset)} for offset in (3, 0, 2, 1)]


def train(params):
    for k in range(STEPS):
        time.sleep(0.005)
        slaq.report(params["offset"] + 1 / (k + 1))
    return params["offset"]


def train_later(params, event="go"):
    Event(event).wait()
    return train(params)


RESULTS = [params["offset"] for params in GRID]


@pytest.mark.parametrize("how", ["pruned", "stopped", "paused"])
@with_plugin([1, 1])
async def test_what_others_want_is_not_given_up(c, s, plugin, a, b, how):
    # Without others, each model would end at once.
    limit = {"trial_timeout": 1e-6} if how == "pruned" else {}
    async with another_client(s) as other:
        if how == "stopped":  # who submits first, does not matter
            theirs = other.map(train_later, GRID)
            await until(lambda: len(s.tasks) >= len(GRID))
        async with slaq.search("mine", client=c, steps=STEPS, **limit) as search:
            mine = search.map(train_later, GRID)
            await until(lambda: len([ts for ts in s.tasks.values() if ts.processing_on]) >= 2)
            if how == "stopped":
                await search.stop()
            else:
                theirs = other.map(train_later, GRID)
                await until(lambda: all(len(s.tasks[f.key].who_wants) == 2 for f in mine))
            await Event("go", client=c).set()
            if how == "paused":
                done = [f for f in theirs if s.tasks[f.key].processing_on]
                await search.pause()
                assert await other.gather(done) == [await f for f in done]
                await search.unpause()
            assert await other.gather(theirs) == RESULTS
            assert await c.gather(mine) == RESULTS


@with_plugin([1])
async def test_a_model_that_only_its_search_wants_is_given_up_again(c, s, plugin, a):
    def endless(event):
        while True:
            time.sleep(0.01)
            slaq.report(1.0)

    given_up = slaq.search("mine", client=c, trial_timeout=0.01)
    async with another_client(s) as other, given_up as search:
        (future,) = search.map(endless, ["x"])
        await until(lambda: future.key in s.tasks)
        theirs = other.submit(endless, "x", key=future.key)
        await until(lambda: len(s.tasks[future.key].who_wants) == 2)
        trials = inside(plugin).trials("mine")
        await until(lambda: future.key in trials.alive)
        trial = trials.alive[future.key]
        await until(lambda: trial.times.computed > 0.2)
        assert not trial.outcome
        theirs.release()
        await wait(future)
        assert [row["state"] for row in await search.trials()] == ["pruned"]


@with_plugin([1])
async def test_what_depends_on_a_model_wants_it(c, s, plugin, a):
    given_up = slaq.search("mine", client=c, trial_timeout=1e-6)
    async with another_client(s) as other, given_up as search:
        mine = search.map(train_later, GRID)
        await until(lambda: mine[0].key in s.tasks)
        models = other.map(train_later, GRID)
        total = other.submit(sum, models)
        del models
        await until(lambda: total.key in s.tasks and len(s.tasks[mine[0].key].who_wants) == 1)
        assert await let_end(c, total) == sum(RESULTS)


@pytest.mark.parametrize("stops", [False, True])
@with_plugin([1])
async def test_models_that_are_computed_for_others_stay_models(c, s, plugin, a, stops):
    outside = copy_context()
    async with another_client(s) as other, slaq.search("mine", client=c, steps=STEPS) as search:
        mine = search.map(train_later, GRID)
        await until(lambda: len([ts for ts in s.tasks.values() if ts.processing_on]) >= 1)
        # They have a share, as some tasks are theirs alone.
        more = [*GRID, {"offset": 4.0}, {"offset": 5.0}]
        theirs = outside.run(other.map, train_later, more)
        await until(lambda: len(s.tasks) == len(GRID) + 2)
        if stops:
            await search.stop()
        assert await let_end(other, theirs) == [*RESULTS, 4.0, 5.0]
        assert await c.gather(mine) == RESULTS
        of_others = {b.key for b in inside(plugin).bindings if b.job.startswith("other:")}
        assert of_others & {f.key for f in mine}
        rows = [(row["key"], row["state"], row["iteration"]) for row in await search.trials()]
        assert sorted(rows) == sorted((f.key, "done", STEPS) for f in mine)


def key_and_loss(rows):
    return {(row["key"], row["state"], row["loss"], row["params"]["offset"]) for row in rows}


@pytest.mark.parametrize("where", ["no search", "another search"])
@with_plugin([1, 1])
async def test_a_search_whose_models_were_trained_outside_says_so(
    c, s, plugin, a, b, where, caplog
):
    async with AsyncExitStack() as stack:
        if where == "another search":
            await stack.enter_async_context(slaq.search("one", client=c))
        before = c.map(str, range(3))
        await wait(before)
    caplog.set_level(logging.WARNING, logger="dask_slaq.client.messages")
    caplog.clear()
    async with slaq.search("late", client=c) as search:
        await wait(c.map(str, range(3)))
    await until(lambda: [r for r in caplog.records if r.name.endswith(".messages")])
    (text,) = [r.getMessage() for r in caplog.records if r.name.endswith(".messages")]
    assert "3 tasks" in text and "were submitted before" in text and "pure=False" in text
    assert await search.trials() == []


@with_plugin([1, 1])
async def test_a_search_that_is_over_and_found_again_has_tasks(c, s, plugin, a, b, caplog):
    caplog.set_level(logging.WARNING, logger="dask_slaq.client.messages")
    async with slaq.search("kept", client=c, keep=60) as search:
        futures = c.map(train, GRID)
        await wait(futures)
    await until(lambda: "kept" not in inside(plugin).searches)
    async with slaq.search("kept", client=c, keep=60, reattach=True) as again:
        rows = await again.trials()
    assert key_and_loss(rows) == key_and_loss(await search.trials()) != set()
    assert not [r for r in caplog.records if r.name.endswith(".messages")]
    inside(plugin).kept.forget_all()
    del futures
