"""A cell that was interrupted and is run again: what it left belongs to the job that names it."""

import asyncio
import contextlib
import time

import pytest
from distributed import Event
from driving import another_client, inside, let_end, until, wait_for, with_plugin

import dask_slaq as slaq
from dask_slaq.worker.trial_agent import agent_of

MODELS = 16


def train(offset: float, name: str = "go") -> float:
    """A model that waits after three reports, and then goes on to its end."""
    for k in range(8):
        time.sleep(0.002)
        slaq.report(offset + 1 / (k + 1))
        if k == 2:
            Event(name).wait()
    return offset


def by_map(client):
    return client.map(train, range(MODELS))


def by_submit(client):
    return [client.submit(train, k) for k in range(MODELS)]


@contextlib.asynccontextmanager
async def beside(client, name):
    """Another job, which has a task that runs; none without a name."""
    if name is None:
        yield
        return
    async with slaq.job(name, client=client):
        task = client.submit(wait_for, "beside")
        yield
        await let_end(client, task, "beside")


@pytest.mark.parametrize(("submit", "other"), [(by_map, None), (by_submit, "other-job")])
@with_plugin([1, 1])
async def test_an_interrupted_search_knows_all_its_models_again(c, s, plugin, a, b, submit, other):
    async with beside(c, other):
        with pytest.raises(KeyboardInterrupt):
            async with slaq.search("grid", client=c, steps=8):
                before = submit(c)  # a notebook's variable
                await until(lambda: any(future.key in s.tasks for future in before))
                await asyncio.sleep(0.2)
                raise KeyboardInterrupt
        await until(lambda: "grid" not in inside(plugin).reports)
        async with slaq.search("grid", client=c, steps=8) as search:
            futures = submit(c)
            await until(lambda: len(inside(plugin).pool("grid").tasks) == MODELS, 20)
            keys = sorted(future.key for future in futures)
            assert sorted(trial["key"] for trial in await search.trials()) == keys
            running = inside(plugin).search("grid")
            assert running.promised.trials is running.trials  # whose threads are kept free
            assert await let_end(c, futures) == list(range(MODELS))
            trials = await search.trials()
            assert sorted(trial["key"] for trial in trials) == keys
            assert {(trial["state"], trial["iteration"]) for trial in trials} == {("done", 8)}


@with_plugin([1, 1])
async def test_models_that_had_not_reported_keep_what_they_report_meanwhile(c, s, plugin, a, b):
    def begin_late(number):
        Event("begin").wait()
        return train(number)

    with pytest.raises(KeyboardInterrupt):
        async with slaq.search("grid", client=c, steps=8):
            before = c.map(begin_late, range(2))
            await until(lambda: all(ws.processing for ws in s.workers.values()))
            raise KeyboardInterrupt
    await until(lambda: "grid" not in inside(plugin).reports)
    await Event("begin").set()
    slots = [agent_of(worker).slots for worker in (a, b)]
    await until(lambda: [slot.reports for some in slots for slot in some.values()] == [3, 3])
    async with slaq.search("grid", client=c, steps=8) as search:
        futures = c.map(begin_late, range(2))
        assert await let_end(c, futures) == await c.gather(before) == [0, 1]
        assert [trial["iteration"] for trial in await search.trials()] == [8, 8]


@with_plugin([1, 1])
async def test_tasks_of_an_interrupted_job_move_to_the_job_that_names_them(c, s, plugin, a, b):
    async with beside(c, "other-job"):
        with pytest.raises(KeyboardInterrupt):
            async with slaq.job("etl", client=c):
                before = c.map(wait_for, ["go"] * 40, range(40))
                await until(lambda: len(s.tasks) >= 40)
                raise KeyboardInterrupt
        async with slaq.job("etl", client=c):
            futures = c.map(wait_for, ["go"] * 40, range(40))
            pool = inside(plugin).pool("etl")
            await until(lambda: len(pool.tasks) == 40, 20)
            assert len(pool.unfinished) == 40
            assert await let_end(c, futures) == await c.gather(before) == list(range(40))
            s.validate_state()
            inside(plugin).check()


@with_plugin([1, 1])
async def test_tasks_of_another_client_or_name_stay_where_they_are(c, s, plugin, a, b):
    async with slaq.job("etl", client=c):
        mine = c.map(wait_for, ["go"] * 4, range(4))
        await until(lambda: len(s.tasks) >= 4)
    async with another_client(s) as other, slaq.job("etl", client=other):
        theirs = other.map(wait_for, ["go"] * 4, range(10, 14))
        await until(lambda: len(inside(plugin).pool("etl").tasks) == 4, 20)
        await asyncio.sleep(0.05)
        assert {ts.key for ts in inside(plugin).pool("etl").tasks} == {f.key for f in theirs}
        assert await let_end(c, mine) == list(range(4))
        assert await other.gather(theirs) == list(range(10, 14))


async def interrupted(client, submit, until_done=False):
    """Run a cell with a search that is interrupted; its futures are a notebook's variable."""
    with pytest.raises(KeyboardInterrupt):
        async with slaq.search("grid", client=client, steps=8, prune={"patience": 8}):
            futures = submit()
            await (let_end(client, futures) if until_done else asyncio.sleep(0.2))
            raise KeyboardInterrupt
    return futures


def train_edited(offset, steps=8, lower=0):
    for k in range(steps):
        time.sleep(0.002)
        slaq.report(offset + 1 / (k + 1) - lower)
    return offset


@with_plugin([1, 1])
async def test_models_of_the_cell_before_its_edit_prune_nothing(c, s, plugin, a, b):
    futures = await interrupted(c, lambda: c.map(train_edited, range(MODELS), steps=12, lower=100))
    async with slaq.search("grid", client=c, steps=8) as search:
        futures = c.map(train_edited, range(MODELS))
        assert await c.gather(futures) == list(range(MODELS))
        trials = inside(plugin).trials("grid")
        await until(lambda: not trials.alive, 20)
        assert len(await search.trials()) == MODELS and trials.best > 0


@with_plugin([1, 1])
async def test_another_search_in_between_takes_nothing_away(c, s, plugin, a, b):
    futures = await interrupted(c, lambda: by_map(c))
    async with slaq.search("other", client=c):
        pass
    async with slaq.search("grid", client=c, steps=8) as search:
        assert await let_end(c, by_map(c)) == list(range(MODELS))
        trials = await search.trials()
        assert len(trials) == MODELS and {trial["iteration"] for trial in trials} == {8}
    assert len(futures) == MODELS


@with_plugin([1, 1])
async def test_models_that_had_ended_are_known_to_a_wider_grid(c, s, plugin, a, b):
    futures = await interrupted(c, lambda: c.map(train_edited, range(8)), until_done=True)
    async with slaq.search("grid", client=c, steps=8) as search:
        assert await c.gather(c.map(train_edited, range(12))) == list(range(12))
        assert len(await search.trials()) == 12
    assert len(futures) == 8


@with_plugin([1, 1])
async def test_a_cell_that_is_run_again_knows_models_whose_results_are_there(c, s, plugin, a, b):
    def train(number):
        for k in range(8):
            slaq.report({"loss": number + 1 / (k + 1), "step": k})
        if number == 3:
            raise ValueError(number)
        return number

    tables = []
    for _ in range(3):
        async with slaq.search("grid", client=c, maximize=True) as search:
            futures = c.map(train, range(4))  # the futures of the last run are held meanwhile
            await c.gather(futures, errors="skip")
            pool = inside(plugin).pool("grid")
            await until(lambda pool=pool: len(pool.tasks) == 4)
        rows = sorted(await search.trials(), key=lambda row: row["loss"])
        tables.append(repr(rows))  # nan is not equal to itself
        assert (await search.best())[:2] == ({"number": 2}, 2.125)
    assert [row["state"] for row in rows] == ["done"] * 3 + ["failed"]
    assert tables[0] == tables[1] == tables[2]
