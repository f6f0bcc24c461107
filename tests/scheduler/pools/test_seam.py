"""Dask's own decisions: what is held has no restriction of ours, and nothing of ours stays."""

from __future__ import annotations

import time

import pytest
from distributed import Event
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import captured_logger, inc
from driving import (
    LATE,
    TWO,
    Fixed,
    assert_nothing_left,
    gen_cluster,
    jobs,
    ready,
    running,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
)

pytest.importorskip("dask_slaq.scheduler.pools.seam")

#: The methods of Dask's scheduler that are overridden while tasks are held.
OVERRIDDEN = {"is_rootish", "decide_worker_non_rootish"}


def overrides(scheduler):
    return OVERRIDDEN & vars(scheduler).keys()


async def held_tasks(c, plugin, n=8):
    """Tasks of job "a": two run, the others are held."""
    with tasks_of("a"):
        futures = c.map(wait_for, ["go"] * n, range(n), pure=False)
    await until(lambda: running(plugin, "a") == 2 and ready(plugin, "a") == n - 2)
    return futures


@with_plugin(TWO, **LATE)
async def test_a_held_task_has_the_restrictions_that_the_user_gave_it(c, s, plugin, a, b):
    both = {a.address, b.address}
    async with jobs(c, "a", "b"):
        busy = await held_tasks(c, plugin, 2)
        with tasks_of("a"):
            plain = c.submit(where, key="plain")
            chosen = c.submit(where, key="chosen", workers=sorted(both))
        for future, given in ((plain, None), (chosen, both)):
            await state_of(s, future, "no-worker")
            ts = s.tasks[future.key]
            assert plugin.pools.tracker.is_held(ts)
            assert ts.worker_restrictions == given
            assert not ts.host_restrictions and not ts.loose_restrictions
        await Event("go").set()
        await c.gather([*busy, plain, chosen])
        assert s.tasks["plain"].worker_restrictions is None
        assert s.tasks["chosen"].worker_restrictions == both


@pytest.mark.parametrize("end", ["jobs end", "stop", "unregister", "fall back", "hold no more"])
@with_plugin(TWO, **LATE)
async def test_dask_decides_by_itself_once_nothing_is_to_be_held(c, s, plugin, a, b, end):
    with captured_logger("dask_slaq", propagate=False):
        async with jobs(c, "a", "b"):
            futures = await held_tasks(c, plugin)
            assert overrides(s) == OVERRIDDEN
            if end == "stop":
                plugin.stop()
            elif end == "unregister":
                await c.unregister_scheduler_plugin("slaq")
                plugin.run_once()
            elif end == "fall back":
                plugin.fall_back(ZeroDivisionError("on purpose"))
            elif end == "hold no more":
                plugin.pools.hold(False)
            if end != "jobs end":
                await until(lambda: not overrides(s))
        await until(lambda: not overrides(s))
    assert not s.unrunnable
    await Event("go").set()
    assert await c.gather(futures) == list(range(8))


@with_plugin([("127.0.0.1", 1)] * 3, policy=Fixed(a=(1.0, 1.0), b=(2.0, 1.0)), **LATE)
async def test_workers_that_the_user_gave_are_kept_to_and_are_back(c, s, plugin, a, b, d):
    async with jobs(c, "a", "b"):
        plugin.run_once()
        both = set(s.workers) - set(plugin.pools.pools["a"].workers)
        with tasks_of("a"):
            futures = c.map(where, range(12), workers=sorted(both), pure=False)
        assert set(await c.gather(futures)) <= both
        assert all(s.tasks[future.key].worker_restrictions == both for future in futures)
    assert all(s.tasks[future.key].worker_restrictions == both for future in futures)
    assert "passed" not in {binding.reason for binding in plugin.pools.bindings}


def slow_where(n):
    time.sleep(0.02)
    return where()


STEALING = {"distributed.scheduler.work-stealing-interval": "10ms"}


@pytest.mark.parametrize("ahead", [0, "1h"])
@gen_cluster(client=True, nthreads=[("127.0.0.1", 1)] * 4, config=STEALING)
async def test_without_lending_no_task_runs_outside_its_jobs_set(c, s, *workers, ahead):
    """Not by work stealing either: the other job's workers are idle."""
    policy = Fixed(a=(2.0, 1.0), b=(2.0, 1.0))
    plugin = await start_plugin(c, s, policy=policy, lend=False, ahead=ahead)
    async with jobs(c, "a", "b"):
        plugin.run_once()
        mine = set(plugin.pools.pools["a"].workers)
        assert len(mine) == 2
        for _ in range(2):  # the second time it is known how long they take
            with tasks_of("a"):
                futures = c.map(slow_where, range(30), pure=False)
            s.extensions["stealing"].balance()
            assert set(await c.gather(futures)) == mine
    assert_nothing_left(s, plugin)


@with_plugin(TWO, **LATE)
async def test_only_queued_tasks_are_moved_when_holding_begins(c, s, plugin, a, b):
    moved = []

    class Watch(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            moved.append(key)

    async with jobs(c, "a"):
        first = c.map(wait_for, ["go"] * 12, range(12), pure=False)
        then = c.map(inc, first, pure=False)
        await until(lambda: len(s.queued) == 8 and len(s.tasks) == 24)
        states = {key: ts.state for key, ts in s.tasks.items()}
        s.add_plugin(Watch(), name="watch")
        async with jobs(c, "b"):
            await until(lambda: ready(plugin, "a") == 8)
            assert not s.queued
            assert set(moved) <= {key for key, state in states.items() if state == "queued"}
            for future in then:
                ts = s.tasks[future.key]
                assert ts.state == "waiting" and ts.worker_restrictions is None
            s.remove_plugin("watch")
            await Event("go").set()
            assert await c.gather(then) == list(range(1, 13))
