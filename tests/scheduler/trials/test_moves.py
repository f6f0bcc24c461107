"""Models with a state leave their worker, go on elsewhere, and are not lost with it."""

from __future__ import annotations

import time

from distributed import Worker
from driving import ONE, TWO, until, with_plugin

import dask_slaq as slaq

STEPS = 24


def train(offset: float, steps: int = STEPS, seconds: float = 0.01) -> list[int]:
    """Return the steps that were made, over all runs of the task."""
    step, made = slaq.resume() or (0, [])
    while step < steps:
        time.sleep(seconds)
        step += 1
        made = [*made, step]
        slaq.report(offset + 1 / step, state=(step, made))
    return made


def check(plugin, results) -> None:
    for made in results:
        assert made == list(range(1, STEPS + 1))
    assert plugin.failed is None


@with_plugin(TWO)
async def test_models_with_states_make_each_step_once(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = c.map(train, [8, 3, 9, 5, 0, 7, 2, 6, 1, 4], pure=False)
        check(plugin, await c.gather(futures))
    assert {t["state"] for t in await search.trials()} == {"done"}
    assert {t["iteration"] for t in await search.trials()} == {STEPS}
    for future in futures:
        future.release()
    del futures, future
    await until(lambda: not s.tasks)
    assert not plugin.searches.states and "slaq-states" not in s.clients


def count(search, what: str) -> int:
    return sum(getattr(trial, what) for trial in search.trials.alive.values())


async def begin(client, plugin, models=8, **settings):
    """A search of which some models have states and wait: the plugin's record, and futures."""
    async with slaq.search("grid", client=client, steps=STEPS):
        futures = client.map(train, range(models), pure=False, **settings)
    search = plugin.searches.running["grid"]
    await until(lambda: sum(bool(t.kept) for t in search.trials.alive.values()) >= 4)
    return search, futures


@with_plugin(TWO)
async def test_models_leave_a_worker_that_is_retired(c, s, plugin, a, b):
    _search, futures = await begin(c, plugin)
    await c.retire_workers([a.address])
    check(plugin, await c.gather(futures))


@with_plugin(TWO)
async def test_models_of_a_worker_that_dies_go_on_from_their_state(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    {key: t.kept for key, t in search.trials.alive.items() if t.kept}
    await until(
        lambda: all(
            s.tasks[n].who_has for some in plugin.searches.states._names.values() for n in some
        )
    )
    await a.close()
    results = await c.gather(futures)
    check(plugin, results)


@with_plugin(ONE, Worker=Worker)
async def test_a_new_worker_gets_models_that_wait(c, s, plugin, a):
    search, futures = await begin(c, plugin)
    async with Worker(s.address, nthreads=1) as b:
        await until(lambda: any(t.worker == b.address for t in search.trials.alive.values()))
        check(plugin, await c.gather(futures))


def guarded(offset: float, steps: int = STEPS) -> tuple[list[int], list[str]]:
    step, made = slaq.resume() or (0, [])
    said = []
    try:
        while step < steps:
            time.sleep(0.01)
            step += 1
            made = [*made, step]
            try:
                slaq.report(offset + 1 / step, state=(step, made))
            except Exception as error:
                said.append(repr(error))
    finally:
        LEFT.append(step)
    return made, said


LEFT: list[int] = []


@with_plugin(TWO)
async def test_code_that_catches_exceptions_lets_its_model_leave(c, s, plugin, a, b):
    LEFT.clear()
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(guarded, range(8), pure=False)
    search = plugin.searches.running["grid"]
    await until(lambda: sum(bool(t.kept) for t in search.trials.alive.values()) >= 4)
    await c.retire_workers([a.address])
    for made, said in await c.gather(futures):
        assert made == list(range(1, STEPS + 1)) and not said
    assert len(LEFT) > 8  # `finally` runs whenever a model leaves
