"""A model that is silent for long is told."""

import threading
import time

import pytest
from distributed import Event, Lock
from driving import inside, let_end, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.settings import ALERT_TOPIC

STEPS = 24


@pytest.mark.parametrize("threads", [1, 2])
@with_plugin([2])
async def test_a_silent_model_is_told_and_the_others_go_on(c, s, plugin, a, threads):
    def train(offset, steps=STEPS):
        for k in range(steps):
            time.sleep(0.01)
            if offset == 0 and k == 5:
                Event("go on").wait()
            slaq.report(offset + 1 / (k + 1))
        return offset

    async with slaq.search("grid", client=c, steps=STEPS, silent=0.3) as search:
        futures = c.map(train, range(threads - 1, 6), pure=False)
        silent = futures[0] if threads == 1 else None
        if silent is not None:
            await until(lambda: count(plugin), 20)
            states = {t["key"]: t["state"] for t in await search.trials()}
            assert states[silent.key] == "stalled"
            assert "1 has stalled" in (await slaq.explain("grid", client=c))["text"]
            (event,) = [e for _, e in s.get_events(ALERT_TOPIC) if e["event"] == "silent"]
            assert silent.key in event["message"] and event["job"] == "grid"
        rest = [future for future in futures if future is not silent]
        assert await c.gather(rest) == list(range(1, 6))
        await let_end(c, futures, "go on")
        assert {t["state"] for t in await search.trials()} == {"done"}
    assert not count(plugin)


def count(plugin) -> int:
    return sum(search.stalled for search in inside(plugin).searches.values())


HELD = threading.Lock()


def holding(number: int, kind: str, reports: int) -> int:
    """Hold a lock from some report on until the end."""
    lock = {"thread": lambda: HELD, "dask": lambda: Lock("gpu")}[kind]()
    for k in range(12):
        if k == reports:
            lock.acquire()
        slaq.report(number + 1 / (k + 1))
    lock.release()
    return number


@pytest.mark.parametrize("kind", ["thread", "dask"])
@pytest.mark.parametrize("reports", [0, 2])
@with_plugin([2])
async def test_models_that_wait_with_a_lock_end(c, s, plugin, a, kind, reports, monkeypatch):
    monkeypatch.setattr("dask_slaq.core.trials.trials.BLOCKED_SECONDS", 0.2)
    async with slaq.search("grid", client=c, steps=12) as search:
        futures = c.map(holding, range(6), kind=kind, reports=reports, pure=False)
        assert await c.gather(futures) == list(range(6))
        assert [t["iteration"] for t in await search.trials()] == [12] * 6
