"""Workers by their value: how many are asked for, which go, and what people are told."""

import asyncio
import functools
import math
import sys
import time

import pytest
from distributed import Event, LocalCluster
from distributed.utils_test import poll_for
from driving import (
    PATIENCE,
    in_job,
    inside,
    jobs,
    let_end,
    on_virtual,
    on_virtual_clock,
    tasks_of,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting

TERMS = {"price": 0.1, "maximum": 8, "stay": 0, "start-up": "10s"}


def limit(plugin, **terms):
    """Change terms of the scaling."""
    inside(plugin).scaler.terms = inside(plugin).scaler.terms._replace(**terms)


async def submitted(client, plugin, job, n):
    """Tasks of a job, all of which have arrived, and end with the event "go"."""
    futures = in_job(client, job).map(wait_for, ["go"] * n, pure=False)
    await until(lambda: len(inside(plugin).pool(job).unfinished) == n)
    return futures


@with_plugin([], scaling=TERMS)
async def test_without_workers_any_work_asks_for_one(c, s, plugin):
    assert s.adaptive_target() == 0
    outside = c.submit(wait_for, "go", key="outside")
    await until(lambda: s.tasks)
    assert s.adaptive_target() == 1
    outside.release()
    await until(lambda: not s.tasks)
    async with jobs(c, "a"):
        futures = await submitted(c, plugin, "a", 3)
        assert s.adaptive_target() == 1
        del futures
        await until(lambda: not s.tasks)


@with_plugin([1], scaling=TERMS, prefetch=0)
async def test_long_work_asks_for_workers_as_many_as_it_can_use(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        futures = await submitted(c, plugin, "a", 5)
        assert s.adaptive_target() == 1  # nothing is known of them
        s.task_prefixes["wait_for"].duration_average = 600
        assert 3 <= s.handlers["adaptive_target"]() <= 5
        more = await submitted(c, plugin, "b", 50)
        assert s.adaptive_target() == 8
        found = await slaq.whatif(client=c)
        assert found["target"] == 8
        assert found["text"].startswith("8 workers pay now, and no more are allowed: another")
        found = await slaq.whatif(4, client=c)
        assert found["last"] > 600 and found["jobs"] == 2
        assert found["text"].startswith("4 workers instead of 1: all ends ")
        with pytest.raises(InvalidSetting):
            await slaq.whatif(-1, client=c)
        inside(plugin).pause("b", True)
        assert s.adaptive_target() == 8  # a worker that was asked for is kept for a while
        assert inside(plugin).advise()["target"] <= 5
        await Event("go").set()
        inside(plugin).pause("b", False)
        await c.gather([*futures, *more])


WORTHS = {"lab": {"value-per-hour": 500}, "lab/bob": {"value-per-hour": 2}}


@with_plugin([1], scaling={**TERMS, "price": 1.0}, prefetch=0, owners=WORTHS)
async def test_the_value_of_time_is_that_of_the_job_or_its_owner_or_team(c, s, plugin, a):
    async def worths():
        found = {}
        for owner in ("ann", "lab/ann", "lab/bob@desk"):
            async with slaq.job("a", owner=owner, client=c):
                found[owner] = inside(plugin).value_of("a")
        return found

    found = await worths()
    assert math.isnan(found["ann"])
    assert (found["lab/ann"], found["lab/bob@desk"]) == (500, 2)
    await slaq.set_owner("ann", value_per_hour=7.5, client=c)
    assert (await worths())["ann"] == 7.5
    async with slaq.job("a", owner="lab/bob", client=c) as job:
        futures = await submitted(c, plugin, "a", 20)
        s.task_prefixes["wait_for"].duration_average = 4
        plain = inside(plugin).advise()["target"]
        await job.set(value_per_hour=500)
        assert plain < inside(plugin).advise()["target"]
        await slaq.change("a", value_per_hour=2, client=c)
        assert inside(plugin).advise()["target"] == plain
        for wrong in (0, -1, "much", float("inf")):
            with pytest.raises(InvalidSetting, match="value_per_hour"):
                await job.set(value_per_hour=wrong, weight=3)
            with pytest.raises(InvalidSetting, match="value"):
                await slaq.set_owner("ann", value_per_hour=wrong, client=c)
        assert inside(plugin).job("a").weight == 1
        await let_end(c, futures)
    async with slaq.search("grid", steps=3, owner="lab/bob", client=c) as search:
        await search.set(value_per_hour=9)
        assert inside(plugin).value_of("grid") == 9


@with_plugin([1, 1], scaling=TERMS, prefetch=0)
async def test_a_worker_drains_before_it_is_given_back(c, s, plugin, a, b, monkeypatch):
    async with jobs(c, "a"):
        first = in_job(c, "a").map(wait_for, ["go"] * 2, pure=False)
        await until(lambda: all(ws.processing for ws in s.workers.values()))
        limit(plugin, maximum=1)
        assert s.adaptive_target() == 1
        (going,) = inside(plugin).draining
        assert s.workers_to_close(target=1) == []  # it runs a task
        plugin.run_once()
        rest = in_job(c, "a").map(wait_for, ["go"] * 6, pure=False)
        await until(lambda: len(inside(plugin).pool("a").unfinished) == 8)
        await let_end(c, [*first, *rest])
        ran = {next(iter(s.tasks[f.key].who_has)).address for f in rest}
        assert ran == set(s.workers) - {going}
        assert s.adaptive_target() == 1
        assert s.workers_to_close(target=1) == [going]
        plugin.run_once()
        assert inside(plugin).draining == {going}
        monkeypatch.setattr("dask_slaq.scheduler.by_value.PATIENCE_SECONDS", 0.0)
        plugin.run_once()  # nobody asks any more: the cluster is no longer adaptive
        assert not inside(plugin).draining and not plugin.pools.draining
        del first, rest


async def give_a_pair_back(client, cluster, plugin):
    """Check that of two pairs the one without a task can be closed, and no half of one."""
    scheduler = cluster.scheduler
    workers = [await cluster.add_worker(1, name=f"SLURM-{k // 2}-{k % 2}") for k in range(4)]
    if plugin.scaling.by_value is not None:
        limit(plugin, minimum=3, maximum=3)
        assert scheduler.adaptive_target() == 3
        assert not inside(plugin).draining  # no half of a pair
        limit(plugin, minimum=0, maximum=2)
    async with slaq.job("a", client=client):
        x, y = (
            client.submit(work, seconds, key=f"{seconds}", workers=[workers[k].address])
            for seconds, k in ((10.0, 0), (20.0, 3))
        )
        await asyncio.sleep(5.0)
        assert sum(bool(ws.processing) for ws in scheduler.workers.values()) == 2
        scheduler.adaptive_target()
        assert scheduler.workers_to_close(n=2) == []  # of each pair one runs a task
        await x
        del x
        await asyncio.sleep(1.0)
        scheduler.adaptive_target()
        pair = {workers[0].address, workers[1].address}
        assert set(scheduler.workers_to_close(n=2)) == pair
        await y


@pytest.mark.parametrize("number", [{"scaling": TERMS}, {"keep_workers": 0}])
def test_workers_of_a_batch_job_are_given_back_together(number):
    """By the worth of workers, and by Dask's own number."""
    on_virtual_clock(give_a_pair_back, [], **number)


@with_plugin([1, 1, 1, 1], scaling={**TERMS, "maximum": 3}, prefetch=0)
async def test_a_slow_worker_is_given_back_first(c, s, plugin, *workers):
    slow = workers[2].address
    async with jobs(c, "a"):
        with tasks_of("a"):
            data = c.submit(bytes, 10**6, workers=[slow])
            await data  # it has more data than the others
            for i in range(40):
                for address in s.workers:
                    inside(plugin).speeds.observe(i % 4, address, 0.4 if address == slow else 0.1)
            inside(plugin).speeds.learn(1.0)
            futures = c.map(wait_for, ["go"] * 4, pure=False)
        await until(lambda: all(ws.processing for ws in s.workers.values()))
        assert s.adaptive_target() <= 3
        assert slow in inside(plugin).draining
        await let_end(c, futures)
        del data


@with_plugin([1, 1], scaling=TERMS, prefetch=0)
async def test_a_worker_is_kept_that_a_task_needs(c, s, plugin, a, b):
    async with jobs(c, "a"):
        with tasks_of("a"):
            futures = [c.submit(wait_for, "go", key=w.name, workers=[w.address]) for w in (a, b)]
        await until(lambda: all(ws.processing for ws in s.workers.values()))
        limit(plugin, maximum=1)
        s.adaptive_target()
        assert not inside(plugin).draining
        await let_end(c, futures)
        del futures


@with_plugin([1], scaling=TERMS)
async def test_an_error_leaves_the_number_to_dask(c, s, plugin, a, monkeypatch):
    monkeypatch.setattr(plugin.by_value, "target", lambda: 1 / 0)
    assert s.adaptive_target() in (0, 1)  # Dask's own
    assert inside(plugin).scaling_error


@with_plugin([1])
async def test_without_the_setting_people_are_told_worker_hours(c, s, plugin, a):
    found = await slaq.whatif(client=c)
    assert (found["target"], found["text"]) == (0, "no work waits: 0 workers")
    async with jobs(c, "a"):
        futures = await submitted(c, plugin, "a", 5)
        s.task_prefixes["wait_for"].duration_average = 600
        assert "worker-hours" in (await slaq.whatif(5, client=c))["text"]
        assert not inside(plugin).draining and plugin.scaling.by_value is None
        await let_end(c, futures)
        del futures


@on_virtual([1], scaling={**TERMS, "start-up": "30s"})
async def test_a_training_is_asked_for_by_all_its_iterations(client, cluster, plugin):
    # One iteration is 16 core-seconds; all are 640.
    asked = []
    async with slaq.job("a", max_iter=40, client=client) as job:
        for k in range(4):
            futures = client.map(work, [2.0] * 8, pure=False, key=f"part-{k}")
            await asyncio.sleep(1.0)
            asked.append(cluster.scheduler.adaptive_target())
            await client.gather(futures)
            job.report(1.0 / (k + 1))
            plugin.run_once()
            asked.append(cluster.scheduler.adaptive_target())
    assert min(asked[2:]) >= 4


def of_processes():
    return LocalCluster(n_workers=0, processes=True, threads_per_worker=1, dashboard_address=None)


def of_batch_jobs():
    """A queue of batch jobs on this machine, each of two workers."""
    local = pytest.importorskip("dask_jobqueue.local")
    options = {"dashboard_address": None}
    return local.LocalCluster(
        cores=2, processes=2, memory="2GB", python=sys.executable, scheduler_options=options
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_processes, of_batch_jobs])
def test_a_cluster_breathes_with_its_work(make):
    """It grows for work that is worth it, loses nothing, shrinks afterwards, and grows again."""

    wait = functools.partial(poll_for, timeout=PATIENCE, period=0.02)

    def number(n):
        Event("go").wait()
        return n

    def train(offset):
        step, made = slaq.resume() or (0, [])
        while step < 5:
            time.sleep(0.2)
            step += 1
            made = [*made, step]
            slaq.report(offset + 1 / step, state=(step, made))
        return made

    with make() as cluster, cluster.get_client() as client:
        scheduler = cluster.scheduler
        scaling = {"price": 0.1, "maximum": 2, "stay": "1s", "start-up": "1s"}
        client.register_plugin(slaq.SlaqPlugin(epoch="200ms", scaling=scaling))
        cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=2)
        with slaq.job("long", client=client, value_per_hour=0.1):  # not kept for long
            futures = client.map(number, range(6), pure=False)
            wait(lambda: len(scheduler.workers) == 2)  # the longer they take, the more they may
            Event("go", client=client).set()
            assert client.gather(futures) == list(range(6))
            del futures
        wait(lambda: not scheduler.workers)
        with slaq.search("again", client=client, steps=5, value_per_hour=0.1):
            futures = client.map(train, range(8), pure=False)
            assert client.gather(futures) == [list(range(1, 6))] * 8
            del futures
        wait(lambda: not scheduler.workers)
        plugin = scheduler.plugins["slaq"]
        assert plugin.failed is None and not inside(plugin).scaling_error
