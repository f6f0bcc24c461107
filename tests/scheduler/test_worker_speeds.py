"""Speeds of workers are learned, used, shown and remembered; on like workers nothing changes."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from distributed import Event, get_worker
from driving import (
    ONE,
    TWO,
    jobs,
    on_virtual_clock,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    with_plugin,
)

import dask_slaq as slaq
from benchmarks import speeds
from dask_slaq.cli.status_tables import summary, workers_table
from dask_slaq.client import workers as workers_of
from dask_slaq.scheduler.board.data import data_of
from dask_slaq.scheduler.views.workers import workers_of as view

SECONDS, SLOWER = 0.2, 3.0


async def compute(number, after=None):
    """Take three times as long on the first worker."""
    slow = get_worker().name == "worker-1"
    await asyncio.sleep(SECONDS * (SLOWER if slow else 1))
    return number


async def iterate(client, iterations, tasks):
    """Run iterations of independent tasks, and return the seconds that each took."""
    from benchmarks import virtual

    took = []
    async with slaq.job("training", client=client) as job:
        data = client.map(compute, range(tasks), pure=False)
        await client.gather(data)
        for k in range(iterations):
            begin = virtual.now()
            parts = [client.submit(compute, k, part, pure=False) for part in data]
            await client.gather(parts)
            took.append(virtual.now() - begin)
            job.report(1 / (k + 1))
    return took


def test_a_job_alone_does_not_wait_for_the_slow_worker():
    async def scenario(client, cluster, plugin):
        took = await iterate(client, 12, 8)
        found = await workers_of(client)
        status = await slaq.status(client)
        return took, found, status, data_of(cluster.scheduler).head

    took, found, status, head = on_virtual_clock(scenario, [1] * 4)
    # Eight tasks on three fast workers and one that takes 0.6 s for each: two waves and a half.
    assert max(took[6:]) < 0.7
    factors = {worker["name"]: worker["factor"] for worker in found.values()}
    assert factors.pop("worker-1") == pytest.approx(SLOWER, rel=0.1)
    assert set(factors.values()) == {1.0}
    slowest = found[min(found, key=lambda a: found[a]["name"])]
    assert slowest["low"] < SLOWER < slowest["high"]
    assert status["speeds"] == "workers: 1 slower"
    assert "workers: 1 slower" in summary(status) and "Workers: 1 slower." in head
    first = workers_table(found).splitlines()[1].split()
    assert first[0] == "worker-1" and first[2:4] == ["1", "3"]


def test_a_slow_worker_leaves_the_last_tasks_before_a_barrier_to_faster_ones():
    async def scenario(client, cluster, plugin):
        return await iterate(client, 12, 6)

    took = on_virtual_clock(scenario, [1] * 4)
    assert max(took[6:]) < 0.5  # two waves on three workers; its task takes 0.6 s


def test_data_of_a_new_job_is_made_where_it_is_computed_soonest():
    async def scenario(client, cluster, plugin):
        await iterate(client, 8, 8)
        async with slaq.job("next", client=client), slaq.job("other", client=client):
            made = client.map(compute, range(40), pure=False)
            await client.gather(made)
            return len(cluster.workers[0].data)

    assert on_virtual_clock(scenario, [1] * 4) <= 6  # 4 by speed; 10 if all were alike


def test_like_workers_are_scheduled_to_the_digit_as_without_learning():
    on, off = (speeds.run("alike", way, "max-total", 1, 0.1, 3) for way in ("on", "off"))
    assert on == off


def learn_slow(plugin, slow, fast):
    """Have a plugin learn that a worker takes four times as long as others."""
    for i in range(40):
        for address in (slow, *fast):
            plugin.speeds.observe(i % 4, "work", address, 0.4 if address == slow else 0.1)
    plugin.speeds.learn(1.0)


@with_plugin(ONE, memory=None)
async def test_a_worker_that_left_is_forgotten(c, s, plugin, a):
    learn_slow(plugin, a.address, ["tcp://other:1", "tcp://other:2"])
    assert plugin.speeds.factor(a.address) == pytest.approx(4.0)
    await a.close()
    await until(lambda: not s.workers)
    assert a.address not in plugin.speeds.workers
    assert view(s, plugin.speeds) == {}


@with_plugin(TWO)
async def test_a_scheduler_begins_with_the_speeds_of_hosts_that_its_memory_has(
    c, s, plugin, a, b, tmp_path
):
    settings = {"memory": str(tmp_path / "runs.db")}
    first = await start_plugin(c, s, **settings)
    hosts = {a.address: "slow", b.address: "fast"}
    first.host_speeds._hosts.update(hosts)
    learn_slow(first, a.address, [b.address])
    first.stop()
    await until(lambda: len(first.memory.store.hosts()) == 2)  # its thread writes
    second = await start_plugin(c, s, **settings)
    await until(lambda: second.host_speeds._known)
    for address, host in hosts.items():
        second.host_speeds._recall(address, host)
    second.speeds.learn(2.0)
    assert second.speeds.factor(a.address) == pytest.approx(4.0)
    assert second.speeds.factor(b.address) == 1.0
    second.stop()
    await start_plugin(c, s)


@pytest.mark.parametrize("slower", [1.0, 4.0])
@with_plugin(ONE * 3)
async def test_stealing_moves_no_task_to_a_worker_of_another_speed(c, s, plugin, *workers, slower):
    for number, (k, worker) in product(range(8), enumerate(workers)):
        seconds = 0.1 * (slower if k == 0 else 1.0)
        plugin.speeds.observe(("load", number), "load", worker.address, seconds)
    plugin.speeds.learn(0.0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            future = c.submit(wait_for, "go", 1)
        await state_of(s, future, "processing")
        ts = s.tasks[future.key]
        assert ts.processing_on.address in ts.worker_restrictions
        assert (len(ts.worker_restrictions) == 1) == (slower > 1)
        await Event("go").set()
        await future
