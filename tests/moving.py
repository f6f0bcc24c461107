"""A search whose models have states, for tests of what happens to them."""

import time

from driving import until

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


def count_kept(search) -> int:
    return sum(trial.checkpoint.reports for trial in search.trials.alive.values())


async def begin(client, plugin, models=8, **settings):
    """A search of which some models have states and wait: the plugin's record, and futures."""
    async with slaq.search("grid", client=client, steps=STEPS):
        futures = client.map(train, range(models), pure=False, **settings)
    search = plugin.searches.running["grid"]
    await until(lambda: sum(bool(t.checkpoint.reports) for t in search.trials.alive.values()) >= 4)
    return search, futures


async def let_some_leave(client, plugin, worker) -> None:
    """Pause the search, and retire a worker: what leaves it goes nowhere."""
    await slaq.pause("grid", client=client)
    await client.retire_workers([worker.address])
    await until(lambda: plugin.pools.tracker.away)
