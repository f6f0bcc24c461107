"""While the scheduler is what tasks wait for, Dask sends those that are too short to be chosen."""

from __future__ import annotations

import asyncio
import logging

import pytest
from driving import jobs, on_virtual_clock, tasks_of, until, work

from benchmarks.virtual import clock
from dask_slaq.core.dispatch import LINGER
from dask_slaq.scheduler.pools import pools as of_pools

SHORT = 0.001


class Busy:
    """CPU time of a scheduler that has no time left, or, once it is `calm`, much."""

    def __init__(self) -> None:
        self.calls, self.calm = 0, False

    def __call__(self) -> float:
        from benchmarks import virtual

        self.calls += not self.calm
        return (0.0 if self.calm else virtual.now()) + 0.003 * self.calls


@pytest.fixture
def busy(monkeypatch):
    clock.install()  # otherwise the real clock would be put back
    found = Busy()
    monkeypatch.setattr(of_pools, "thread_time", found)
    return found


def submit(client, job, seconds, count):
    with tasks_of(job):
        return client.map(work, [seconds] * count, pure=False)


def reason(plugin, job):
    return plugin.messages.handler("explain")(job)["reason"]


def test_they_pass_until_the_scheduler_has_time(busy, caplog):
    caplog.set_level(logging.INFO, "dask_slaq")

    async def scenario(client, cluster, plugin):
        async with jobs(client, "a", "b") as (a, _):
            futures = [submit(client, name, SHORT, 2000) for name in ("a", "b")]
            await asyncio.sleep(0.6)
            seen = reason(plugin, "a"), plugin.pools.tracker.holding
            status = plugin.jobs.pools.pools["a"].counts(False)
            await client.gather(futures)
            a.report(1.0)
            used = [plugin.engine.jobs[name].runtime.attained for name in ("a", "b")]
            busy.calm = True
            await asyncio.sleep(LINGER + 3)
            again = [submit(client, name, 0.5, 20) for name in ("a", "b")]
            await asyncio.sleep(0.7)
            held = plugin.pools.tracker.holding, reason(plugin, "a")
            await client.gather(again)
            reasons = {each.reason for each in plugin.pools.bindings}
            return seen, status, used, held, reasons

    seen, (_, ready), used, held, reasons = on_virtual_clock(scenario, [2] * 4)
    assert seen == ("runs under plain Dask: its tasks are too short to be chosen one by one", False)
    assert ready > 0
    assert used == pytest.approx([2000 * SHORT] * 2, rel=0.5)
    assert held[0] and "plain Dask" not in held[1]
    assert reasons & {"granted", "lent"}
    said = [each.message for each in caplog.records if "has no time to choose" in each.message]
    assert len(said) == 1 and "2 of 2 jobs" in said[0]


def test_jobs_of_longer_tasks_and_those_with_promises_are_held_on(busy):
    async def scenario(client, cluster, plugin):
        promised = {"min_share": 2}
        async with jobs(client, "a", "b"), jobs(client, "c", **promised), jobs(client, "d"):
            pools = plugin.pools.pools
            futures = [submit(client, name, SHORT, 1000) for name in ("a", "b", "c")]
            await asyncio.sleep(0.6)
            before = {name: pool.passes for name, pool in pools.items()}
            assert not plugin.pools.tracker.holding  # only one is held, and competes with nobody
            futures.append(submit(client, "d", 0.3, 200))
            await until(lambda: not pools["d"].passes)
            assert plugin.pools.tracker.holding  # with the other one it competes
            await asyncio.sleep(1)
            running = len(pools["d"].running)
            await client.gather(futures)
            return before, running

    before, running = on_virtual_clock(scenario, [2] * 4)
    assert before == {"a": True, "b": True, "c": False, "d": True}
    assert running >= 8


def test_a_job_that_passes_may_be_paused(busy):
    async def scenario(client, cluster, plugin):
        async with jobs(client, "a", "b"):
            futures = [submit(client, name, SHORT, 1500) for name in ("a", "b")]
            await asyncio.sleep(0.4)
            assert plugin.pools.pools["a"].passes
            plugin.jobs.pause("a", True)
            await asyncio.sleep(0.2)
            left = sum(not each.done() for each in futures[0])
            await asyncio.sleep(0.5)
            still = sum(not each.done() for each in futures[0])
            plugin.jobs.pause("a", False)
            await client.gather(futures)
            return left, still

    left, still = on_virtual_clock(scenario, [2] * 4)
    assert left == still > 0


def test_nothing_passes_while_the_scheduler_has_time():
    async def scenario(client, cluster, plugin):
        async with jobs(client, "a", "b"):
            futures = [submit(client, name, SHORT, 800) for name in ("a", "b")]
            await asyncio.sleep(0.3)
            assert plugin.pools.tracker.holding
            assert not any(pool.passes for pool in plugin.pools.pools.values())
            await client.gather(futures)

    on_virtual_clock(scenario, [2] * 4)
