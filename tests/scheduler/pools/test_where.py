"""Where the tasks of jobs run: on the worker set of their job, on lent slots, near their inputs."""

import asyncio
import functools

import pytest
from distributed import Worker, wait
from driving import (
    PATIENCE,
    Fixed,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    on_virtual,
    on_virtual_clock,
    running,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
    work,
)

import dask_slaq as slaq
from benchmarks import virtual

#: Each of two jobs has a thread, and so a worker of one thread.
HALVES = Fixed(a=(1.0, 1.0), b=(1.0, 1.0))


def set_of(plugin, job):
    """The only worker of a job's set, as it was decided."""
    plugin.run_once()
    (address,) = inside(plugin).pool(job).granted.workers
    return address


@with_plugin([1, 1], policy=HALVES, prefetch=0)
async def test_free_slots_are_lent_and_the_loan_is_recorded(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        mine = set_of(plugin, "a")
        futures = in_job(c, "a").map(wait_for, ["go"] * 2, pure=False)
        await until(lambda: running(plugin, "a") == 2)
        reasons = {binding.worker: binding.reason for binding in inside(plugin).bindings}
        (other,) = set(s.workers) - {mine}
        assert reasons[other] == "lent" and reasons[mine] in ("granted", "floor")
        await let_end(c, futures)


@with_plugin([1, ("127.0.0.1", 1, {"resources": {"GPU": 1}})], lend=False, prefetch=0)
async def test_without_lending_tasks_run_that_no_worker_of_the_set_may_run(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        both, found = [a.address, b.address], []
        for name in "ab":
            submit = functools.partial(in_job(c, name).submit, where, pure=False)
            found.append(submit(resources={"GPU": 1}))
            found += [submit(workers=allowed) for allowed in (both[:1], both[1:], both)]
        ran = await asyncio.wait_for(c.gather(found), PATIENCE)
        assert ran[:3] == ran[4:7] == [b.address, a.address, b.address]


def big(n: int = 100_000_000) -> bytes:
    return bytes(n)


@pytest.mark.parametrize(("busy", "moves"), [(0.5, False), (20.0, True)])
@on_virtual([1, 1])
async def test_a_task_waits_where_its_inputs_are(client, cluster, plugin, busy, moves):
    """While moving them takes longer, which is ten seconds."""
    one, other = (worker.address for worker in cluster.workers)
    async with slaq.job("a", client=client), slaq.job("b", client=client):
        with tasks_of("a"):
            x = client.submit(virtual.work, nbytes=10**9, key="x", workers=[one])
            await x
            for n in range(3):  # so that it is known how long they take
                await client.submit(work, busy, key=f"busy-{n}")
            first = client.submit(work, busy, key="busy-3", workers=[one, "tcp://1.2.3.4:5"])
            await asyncio.sleep(0.1)
            later = client.submit(where, x, key="later")
        place = await later
        await first
    assert (place == other) is moves


@pytest.mark.parametrize("why", ["gone", "paused", "not allowed", "lacks the resource"])
@gen_cluster(client=True, nthreads=[1, ("127.0.0.1", 1, {"resources": {"GPU": 1}})])
async def test_a_task_does_not_wait_for_a_worker_that_it_cannot_have(c, s, a, b, why):
    plugin = await start_plugin(c, s, policy=HALVES, prefetch=0)
    extra = {}
    if why == "lacks the resource":
        extra = {"resources": {"GPU": 1}}
    elif why == "not allowed":
        async with Worker(s.address) as third:
            pass
        extra = {"workers": [b.address, third.address]}
    async with jobs(c, "a", "b"):
        place = b.address
        with tasks_of("a"):
            x = c.submit(big, key="x", workers=[a.address])
            await x
            busy = c.map(wait_for, ["go", "go"], pure=False, workers=[a.address, b.address])
            await until(lambda: running(plugin, "a") == 2)
            later = c.submit(where, x, key="later", **extra)
            await until(lambda: s.tasks.get("later") in inside(plugin).pool("a").ready)
        if why == "gone":
            await c.replicate([x], n=2)
            await s.remove_worker(a.address, stimulus_id="test")
        elif why == "paused":
            s.handle_worker_status_change("paused", a.address, "test")
        assert await let_end(c, later) == place
        if why != "gone":
            await c.gather(busy)


def test_a_chain_of_short_tasks_makes_progress_while_others_have_long_tasks():
    """As a training step does, whose tasks would each wait for whole tasks of other jobs."""

    async def scenario(client, cluster, plugin):
        async with slaq.job("chain", client=client), slaq.job("long", client=client):
            long = in_job(client, "long").map(work, [0.5] * 100, pure=False)
            link, begin = None, virtual.now()
            for _ in range(20):
                link = in_job(client, "chain").submit(work, 0.01, link, pure=False)
                await link
            took = virtual.now() - begin
            await client.cancel(long)
        return took

    for policy in ("fair", Fixed(chain=(2.0, 9.0), long=(2.0, 1.0))):
        assert on_virtual_clock(scenario, [1] * 4, policy=policy) < 20 * 0.5 / 2


@on_virtual([1, 1])
async def test_a_task_moves_to_where_some_of_its_inputs_are(client, cluster, plugin):
    """Half of its inputs are fetched sooner than its home is free, all of them are not."""
    home, other = (worker.address for worker in cluster.workers)
    async with slaq.job("a", client=client), slaq.job("b", client=client):
        with tasks_of("a"):
            data = [
                client.submit(virtual.work, nbytes=nbytes, workers=[w], pure=False)
                for nbytes, w in ((50_000_000, home), (49_000_000, other))
            ]
            with client.as_current():
                await wait(data)
            await client.submit(work, 0.7, pure=False)  # so that the duration is known
        with tasks_of("b"):
            await client.submit(work, 0.7, workers=[home], pure=False)
            busy = client.submit(work, 0.7, workers=[home], pure=False)
        await until(lambda: cluster.scheduler.workers[home].processing)
        task = in_job(client, "a").submit(work, 0.01, *data, pure=False)
        await state_of(cluster.scheduler, task, "memory")
        (ws,) = cluster.scheduler.tasks[task.key].who_has
        await client.gather([task, busy])
        assert ws.address == other
