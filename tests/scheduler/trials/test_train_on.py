"""Models that have ended train on from their last state, also if their results were lost."""

import asyncio

import pytest
from driving import inside, until, with_plugin
from moving import RUN, STEPS, train

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, SlaqError

MORE = 40


@pytest.fixture(autouse=True)
def _states_are_kept_soon(monkeypatch):
    monkeypatch.setattr("dask_slaq.worker.keeping.KEEP_SECONDS", 0.02)
    monkeypatch.setattr("dask_slaq.worker.trial_slot.KEEPING_PART", 1.0)
    RUN.clear()


def first_steps() -> dict[float, int]:
    """Return the lowest step that was made of each model, of those noted in `RUN`."""
    return {offset: min(s for o, s in RUN if o == offset) for offset, _ in RUN}


@pytest.mark.parametrize("where", ["memory", "files"])
@with_plugin([1, 1])
async def test_the_best_train_on_from_their_last_state(c, s, plugin, a, b, where, tmp_path):
    states = str(tmp_path) if where == "files" else None
    async with slaq.search("grid", client=c, steps=STEPS, states=states) as search:
        futures = c.map(train, [3, 0, 2, 1], pure=False)
        await c.gather(futures)
        RUN.clear()
        more = await search.train_on(best=2, steps=MORE)
        assert await c.gather(more) == [list(range(1, MORE + 1))] * 2
        assert sorted({offset for offset, _ in RUN}) == [0, 1]
        assert min(first_steps().values()) > STEPS // 2
        known = {t["key"]: t["iteration"] for t in await search.trials()}
        assert [known[future.key] for future in more] == [MORE] * 2
        # These are the best now, and go on from where they are.
        RUN.clear()
        (best,) = await search.train_on(best=1, steps=MORE + 10)
        assert len(await best) == MORE + 10
        assert first_steps()[0] > STEPS
    for future in (*futures, *more, best):
        future.release()
    del futures, more, future, best
    await until(lambda: not s.tasks)
    assert not inside(plugin).states and "slaq-states" not in s.clients


@with_plugin([1, 1])
async def test_states_outlive_the_results_that_train_on(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        future = c.submit(train, 1.0, pure=False)
        await future
        await slaq.pause("grid", client=c)
        RUN.clear()
        (more,) = await search.train_on([future], steps=MORE)
        await until(lambda: more.key in s.tasks)
        key = future.key
        future.release()
        del future
        await until(lambda: key not in s.tasks)
        await slaq.unpause("grid", client=c)
        assert await more == list(range(1, MORE + 1))
    assert first_steps()[1.0] > STEPS // 2


@with_plugin([1])
async def test_inputs_of_tasks_are_those_of_the_ones_that_train_on(c, s, plugin, a):
    def with_data(offset, data, *, steps=STEPS):
        return train(offset + sum(data), steps)[-1]

    data = c.submit(list, (1.0, 2.0))
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = [c.submit(with_data, k, data, pure=False) for k in range(2)]
        await c.gather(futures)
        (more,) = await search.train_on(futures[1].key, steps=MORE)
        assert await more == MORE
    assert max(step for offset, step in RUN if offset == 4.0) == MORE


@with_plugin([1])
async def test_who_cannot_train_on_is_told(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        fixed = c.submit(lambda: train(0.0), pure=False)
        future = c.submit(train, 1.0, pure=False)
        await c.gather([fixed, future])
        with pytest.raises(InvalidSetting, match="keyword argument 'steps'"):
            await search.train_on(fixed, steps=MORE)
        with pytest.raises(InvalidSetting, match="not a model of this search"):
            await search.train_on(["unknown"], steps=MORE)
        for given in ({}, {"keys": [future], "best": 1}, {"best": 0}, {"best": 1, "steps": 0}):
            with pytest.raises(InvalidSetting):
                await asyncio.wait_for(
                    search.train_on(**{"keys": None, "steps": MORE, **given}), 10
                )
    await until(lambda: not inside(plugin).searches)
    with pytest.raises(SlaqError, match="over"):
        await search.train_on(future, steps=MORE)


@with_plugin([1, 1])
async def test_lost_results_are_made_from_the_last_state(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(train, range(6), pure=False)
        await c.gather(futures)
        lost = [k for k in range(6) if s.workers[a.address] in s.tasks[futures[k].key].who_has]
        states = plugin.searches.states
        await until(lambda: all(len(states.at(f.key)) == 2 for f in futures))
        RUN.clear()
        await a.close()
        assert await c.gather(futures) == [list(range(1, STEPS + 1))] * 6
    assert lost and set(first_steps()) <= set(lost)
    assert not RUN or min(first_steps().values()) > STEPS // 2


@with_plugin([1, 1])
async def test_the_best_are_chosen_among_those_whose_futures_are_held(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = c.map(train, [3, 0, 2, 1], pure=False)
        await c.gather(futures)
        assert await c.gather(await search.train_on(best=2, steps=MORE))
        await until(lambda: not [key for key in s.tasks if str(key).startswith("train-on")])
        # The two best models and what they became: the first are used up, the others dropped.
        more = await search.train_on(best=3, steps=MORE)
        assert await c.gather(more) == [list(range(1, MORE + 1))] * 2
        assert sorted({offset for offset, step in RUN if step > STEPS}) == [0, 1, 2, 3]
        del more
        await until(lambda: not [key for key in s.tasks if str(key).startswith("train-on")])
        with pytest.raises(InvalidSetting, match="no future is held"):
            await search.train_on(best=1, steps=MORE)
