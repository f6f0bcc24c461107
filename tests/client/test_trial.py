"""A model that its search gives up returns what it is, instead of failing its task."""

import time

import pytest
from driving import inside, until, with_plugin

import dask_slaq as slaq


@slaq.trial
def train(offset: float, steps: int = 30) -> float:
    """Train."""
    for k in range(steps):
        time.sleep(0.02 if offset else 0.002)  # long enough for a slow machine to give them up
        slaq.report(offset + 1 / (k + 1))
    return offset


@with_plugin([1])
async def test_pruned_models_are_results(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=30, prune=True) as search:
        futures = search.map(train, [0, 50, 60, 70, 80])
        results = await c.gather(futures)
    pruned = [result for result in results if isinstance(result, slaq.Pruned)]
    rows = {row["key"]: row for row in await search.trials()}
    assert results[0] == 0 and pruned
    for future, result in zip(futures, results, strict=True):
        row = rows[future.key]
        if isinstance(result, slaq.Pruned):
            assert row["state"] == "pruned" and result.why == "pruned"
            assert (result.loss, result.step) == (row["loss"], row["iteration"])
            assert row["error"] == ""
        else:
            assert row["state"] == "done"
    assert (await search.best()).params == {"offset": 0}


@with_plugin([1])
async def test_stopped_models_are_results(c, s, plugin, a):
    @slaq.trial
    def endless(offset):
        for k in range(100_000):
            time.sleep(0.002)
            slaq.report(offset + 1 / (k + 1))

    async with slaq.search("grid", client=c):
        future = c.submit(endless, 1)
        await until(lambda: any(s.trials.alive for s in inside(plugin).searches.values()))
        await slaq.stop("grid", client=c)
        result = await future
    assert result.why == "stopped" and result.step >= 1 and result.loss > 1


def test_it_is_the_function_elsewhere():
    assert train.__name__ == "train" and train.__doc__ == "Train."

    @slaq.trial
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
