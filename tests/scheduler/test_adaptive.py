"""Adaptive clusters: only usable tasks ask for workers, and a job's data keeps its workers."""

import functools

import pytest
from distributed import Event, LocalCluster
from distributed.utils_test import poll_for

import dask_slaq as slaq
from tests.driving import (
    HELD,
    ONE,
    PATIENCE,
    gen_cluster,
    jobs,
    start_plugin,
    tasks_of,
    until,
    wait_for,
    with_plugin,
)


@with_plugin(ONE, ahead=0)
async def test_a_paused_job_asks_for_no_workers(c, s, plugin, a):
    async with jobs(c, "a"):
        plugin.jobs.pause("a", True)
        with tasks_of("a"):
            futures = c.map(wait_for, ["go"] * 30, pure=False)
        await until(lambda: len(plugin.pools.pools["a"].ready) == 30)
        assert s.adaptive_target(target_duration=1) <= 1
        plugin.jobs.pause("a", False)
        assert s.handlers["adaptive_target"](target_duration=1) > 5
        await Event("go").set()
        await c.gather(futures)


@with_plugin(ONE, ahead=0, lend=False)
async def test_tasks_above_a_strict_cap_ask_for_no_workers(c, s, plugin, a):
    async with jobs(c, "a", max_share=2):
        with tasks_of("a"):
            futures = c.map(wait_for, ["go"] * 30, pure=False)
        await until(lambda: len(plugin.pools.pools["a"].ready) >= 28)
        assert s.adaptive_target(target_duration=0.1) == 2
        await Event("go").set()
        await c.gather(futures)


@with_plugin(ONE, ahead=0)
async def test_resources_that_no_worker_has_ask_for_no_workers(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            futures = c.map(wait_for, ["go"] * 30, pure=False, resources={"GPU": 1})
        await until(lambda: [ts.state for ts in s.tasks.values()] == ["no-worker"] * 30)
        assert s.adaptive_target(target_duration=0.1) <= 1
        del futures


@with_plugin(
    ONE,
    ahead=0,
    owners={"ann": {"max-resources": {"GPU": 2}}},
    worker_kwargs={"resources": {"GPU": 4}},
)
async def test_resources_above_an_owners_limit_ask_for_no_workers(c, s, plugin, a):
    async with jobs(c, "a", owner="ann"):
        with tasks_of("a"):
            futures = c.map(wait_for, ["go"] * 30, pure=False, resources={"GPU": 1})
        await until(lambda: [ts.state for ts in s.tasks.values()].count(HELD[0]) >= 28)
        assert s.adaptive_target(target_duration=0.1) <= 2
        del futures


@pytest.mark.parametrize("keep", ["1h", 0])
@gen_cluster(client=True, nthreads=ONE * 3)
async def test_data_keeps_workers_for_a_bounded_time(c, s, *workers, keep):
    await start_plugin(c, s, keep_workers=keep)
    async with jobs(c, "a"):
        with tasks_of("a"):
            futures = c.map(lambda x: x, range(9))
        await c.gather(futures)
        with_data = {ws.address for ws in s.workers.values() if ws.has_what}
        closed = set(s.workers_to_close(n=3))
        assert closed == (set(s.workers) - with_data if keep else set(s.workers))
    assert len(s.workers_to_close(n=3)) == 3  # no job keeps any


@pytest.mark.slow
def test_an_adaptive_cluster_grows_with_ready_tasks_keeps_data_and_shrinks():
    wait = functools.partial(poll_for, timeout=PATIENCE, period=0.01)
    cluster = LocalCluster(
        n_workers=0, processes=False, threads_per_worker=1, dashboard_address=None
    )
    asked = []
    with cluster, cluster.get_client() as client:
        scheduler = cluster.scheduler
        client.register_plugin(slaq.SlaqPlugin(epoch="50ms", keep_workers="1h"))
        target = scheduler.handlers["adaptive_target"]

        @functools.wraps(target)
        def count(*args, **kwargs):
            asked.append(target(*args, **kwargs))
            return asked[-1]

        scheduler.handlers["adaptive_target"] = count
        cluster.adapt(minimum=1, maximum=4, interval="20ms", wait_count=3, target_duration="100ms")
        with slaq.job("idle", client=client) as idle:
            idle.report(1.0)
            wait(lambda: len(scheduler.workers) == 1 and len(asked) > 10)
            with slaq.job("busy", client=client):
                futures = client.map(wait_for, ["go"] * 30, range(30), pure=False)
                wait(lambda: len(scheduler.workers) == 4)
                Event("go", client=client).set()
                assert client.gather(futures) == list(range(30))
                # Between two iterations, exactly the workers with data of the job stay.
                place = {future: scheduler.tasks[future.key].who_has for future in futures}
                first = futures[0]
                second = next(f for f in futures if place[f].isdisjoint(place[first]))
                kept = {ws.address for ws in place[first] | place[second]}
                assert len(kept) == 2
                del futures, place
                wait(lambda: set(scheduler.workers) == kept)
                seen = len(asked)
                wait(lambda: len(asked) > seen + 10)
                assert set(scheduler.workers) == kept
                assert client.gather([first, second]) is not None
                # An open job without data or tasks holds no worker.
                del first, second
                wait(lambda: len(scheduler.workers) == 1)
            assert max(asked) >= 4
        wait(lambda: len(scheduler.workers) == 1)
