"""Guards tasks submitted before the first job: they get their share, as later ones do."""

import asyncio

from distributed.utils_test import inc
from driving import inside, on_virtual

import dask_slaq as slaq
from benchmarks import virtual


async def nap(n):
    await asyncio.sleep(0.1)
    return n


async def job_of(client, name):
    async with slaq.job(name, client=client):
        await client.gather(client.map(nap, range(60), pure=False))
        return virtual.now()


@on_virtual([2, 2])
async def test_a_queue_from_before_the_first_job_is_not_starved_by_jobs(before, cluster, plugin):
    futures = before.map(nap, range(60), pure=False)
    await asyncio.sleep(0.3)
    async with cluster.client() as a, cluster.client() as b:
        ends = asyncio.gather(job_of(a, "a"), job_of(b, "b"))
        assert await before.gather(futures) == list(range(60))
        end, ends = virtual.now(), await ends
    assert end <= max(ends)  # last of all without adoption


@on_virtual([2, 2])
async def test_what_computes_and_what_waits_for_it_is_adopted(before, cluster, plugin):
    scheduler = cluster.scheduler
    leaves = before.map(nap, range(40), pure=False)
    sums = [before.submit(sum, leaves[i : i + 4], key=f"sum-{i}") for i in range(0, 40, 4)]
    del leaves
    await asyncio.sleep(0.15)
    async with cluster.client() as a, slaq.job("a", client=a):
        await asyncio.sleep(0.01)
        pool = inside(plugin).pool(f"other:{before.id}")
        unfinished = [ts for ts in scheduler.tasks.values() if ts.state != "memory"]
        assert set(pool.unfinished) == set(unfinished)
        computing = [ts for ts in unfinished if ts.state == "processing"]
        assert len(pool.running) == len(computing) > 0
        assert await a.submit(inc, 1) == 2
        total = sum(await before.gather(sums))
    del sums
    await asyncio.sleep(1)
    assert (total, inside(plugin).left_over()) == (sum(range(40)), [])


@on_virtual([2, 2])
async def test_nothing_is_adopted_after_the_last_job_has_ended(before, cluster, plugin):
    futures = before.map(nap, range(2000), pure=False)
    await asyncio.sleep(0.1)
    async with cluster.client() as a, slaq.job("a", client=a):
        pass
    await asyncio.sleep(0.5)
    assert not inside(plugin).pools and not inside(plugin).pool_of
    assert len(cluster.scheduler.queued) > 1500  # Dask's own again
    await before.cancel(futures)
    assert inside(plugin).left_over() == []


@on_virtual([2])
async def test_a_graph_of_many_paths_is_adopted_in_a_walk_over_its_tasks(before, cluster, plugin):
    """Each layer doubles the paths to the first one: by path it would never end."""
    layer = before.map(nap, range(2), pure=False)
    for _ in range(40):
        layer = [before.submit(max, layer, pure=False) for _ in range(2)]
    async with cluster.client() as a, slaq.job("a", client=a):
        await asyncio.sleep(0.05)
        pool = inside(plugin).pool(f"other:{before.id}")
        assert len(pool.tasks) == len(cluster.scheduler.tasks) == 82
        found = await before.gather(layer)
    assert found == [1, 1]
