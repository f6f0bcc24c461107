"""Searches under workers by worth: workers come for models, and go as these end."""

import asyncio
import time

import pytest
from distributed import get_worker
from distributed.deploy import Adaptive
from driving import inside, on_virtual, until, with_plugin
from moving import STEPS, begin, check

import dask_slaq as slaq
from benchmarks.autoscale.elastic import Elastic
from benchmarks.autoscale.running import model

TERMS = {"price": 0.1, "maximum": 8, "stay": 0, "start-up": "10s"}


def only_one(plugin):
    """Let one worker be enough."""
    inside(plugin).scaler.terms = inside(plugin).scaler.terms._replace(maximum=1)


@with_plugin([1, 1], scaling=TERMS)
async def test_models_with_states_leave_a_worker_that_drains(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    only_one(plugin)
    assert s.adaptive_target() == 1
    (going,) = inside(plugin).draining
    there = {key for key, trial in search.trials.alive.items() if trial.worker == going}
    assert there
    if any(not trial.state.migrates for key, trial in search.trials.alive.items() if key in there):
        assert s.workers_to_close(target=1) == []  # they compute
    await until(lambda: s.adaptive_target() == 1 and s.workers_to_close(target=1) == [going])
    assert there & search.trials.alive.keys()  # they go on at the other worker
    await c.retire_workers([going])
    check(await c.gather(futures))


@with_plugin([1, 1], scaling=TERMS)
async def test_models_without_states_keep_their_worker_until_they_end(c, s, plugin, a, b):
    def train(offset):
        for step in range(1, STEPS + 1):
            time.sleep(0.01)
            slaq.report(offset + 1 / step)
        return get_worker().address

    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(train, range(8), pure=False)
    alive = inside(plugin).trials("grid").alive
    await until(lambda: {trial.worker for trial in alive.values()} == set(s.workers))
    only_one(plugin)
    assert s.adaptive_target() == 1
    (going,) = inside(plugin).draining
    there = {key for key, trial in alive.items() if trial.worker == going}
    await until(lambda: s.adaptive_target() == 1 and s.workers_to_close(target=1) == [going])
    assert there and not there & alive.keys()
    ran = zip(futures, await c.gather(futures), strict=True)
    assert {future.key for future, address in ran if address == going} >= there
    await c.retire_workers([going])


@pytest.mark.slow
@on_virtual([], scaling=TERMS)
async def test_workers_come_for_models_and_go_as_these_end(client, cluster, plugin):
    models, steps = 8, 20
    elastic = Elastic(cluster, 10.0, 1)
    adaptive = Adaptive(elastic, interval=1.0, minimum=0, maximum=8, wait_count=3)
    counts = []  # of workers, by the number of models that have not ended
    async with slaq.search("grid", steps=steps, client=client) as search:
        futures = [
            client.submit(model, f"m-{i}", search._run, i, steps, 5.0 + i, key=f"m-{i}")
            for i in range(models)
        ]
        while not all(future.done() for future in futures):
            counts.append((sum(not f.done() for f in futures), len(elastic.observed)))
            await asyncio.sleep(1.0)
        assert [trial["iteration"] for trial in await search.trials()] == [steps] * models
        assert await client.gather(futures) == list(range(models))
    await asyncio.sleep(60.0)
    counts.append((0, len(elastic.observed)))  # it has the results
    del futures
    await asyncio.sleep(60.0)
    assert (elastic.starts, len(elastic.plan)) == (models, 0)
    adaptive.stop()
    await elastic.close()
    assert not inside(plugin).scaling_error
    last = dict(counts)  # workers when the next model ended
    assert last[models] == models and last[0] == 1
    assert all(workers <= max(n, 1) + 1 for n, workers in last.items()), last
