"""Strict worker sets: each task is sent inside the set of its job, and grants move to get it so."""

import asyncio

import pytest
from driving import Fixed, in_job, inside, jobs, on_virtual_clock, tasks_of, train, until, work

import dask_slaq as slaq
from benchmarks import virtual
from benchmarks.common import cluster as clusters


async def train_and_sum(client, name, iterations, width, seconds, gap=0.05):
    """Run iterations of parallel tasks and their sum, with a pause of the driver in between."""
    async with slaq.job(name, client=client) as block:
        for k in range(iterations):
            await asyncio.sleep(gap)
            with tasks_of(name):
                parts = client.map(work, [seconds] * width, pure=False)
                await client.submit(work, 0.01, *parts, pure=False)
            block.report(0.8**k)


@pytest.mark.parametrize("policy", ["first-to-target", "fair", "slaq2017"])
@pytest.mark.parametrize("seconds", [0.02, 0.2])
def test_every_task_is_sent_inside_the_set_of_its_job(policy, seconds):
    async def scenario(client, cluster, plugin):
        counted = clusters.inside(cluster)
        widths = {"wide": 9, "narrow": 2, "odd": 5}
        await asyncio.gather(
            *(train_and_sum(client, name, 6, n, seconds) for name, n in widths.items())
        )
        assert counted.sent == 6 * (sum(widths.values()) + len(widths))
        assert counted.inside == counted.sent
        assert {each.reason for each in inside(plugin).bindings} <= {"granted", "floor", "passed"}

    on_virtual_clock(scenario, [1, 1, 2], policy=policy, lend=False)


def test_a_thread_that_nobody_entitled_can_use_is_granted_to_another_job_at_once():
    async def scenario(client, cluster, plugin):
        begin = virtual.now()
        async with jobs(client, "a", "b"):
            plugin.run_once()
            planned = inside(plugin).pool("b").granted.planned
            assert len(planned) == 2
            futures = in_job(client, "b").map(work, [0.5] * 16, pure=False)
            await until(lambda: len(inside(plugin).pool("b").running) == 4)
            assert len(inside(plugin).pool("b").granted.workers) == 4
            row = (await slaq.status(client))["jobs"]
            assert row["b"]["borrowed"] == 2 and row["a"]["lent"] == 2
            assert "2 of them on borrowed threads" in row["b"]["reason"]
            await asyncio.sleep(0.6)
            mine = in_job(client, "a").map(work, [0.5] * 4, pure=False)
            await client.gather(mine)
            waited = virtual.now() - begin
            await client.gather(futures)
            assert inside(plugin).pool("b").granted.workers == planned
        return waited, virtual.now() - begin

    waited, ended = on_virtual_clock(
        scenario, [1] * 4, policy=Fixed(a=(2.0, 1.0), b=(2.0, 9.0)), lend=False, prefetch=0
    )
    assert waited < 2.2, "the threads of a's share are back at once: two rounds after the first two"
    assert ended < 20 * 0.5 / 4 + 0.2, "and none of them idles"


def test_a_fraction_of_a_thread_is_a_part_of_its_time():
    async def scenario(client, cluster, plugin):
        async with jobs(client, "a", "b"):
            plugin.run_once()
            begin = inside(plugin).job("a").attained, inside(plugin).job("b").attained
            futures = [
                future
                for name in "ab"
                for future in in_job(client, name).map(work, [0.1] * 200, pure=False)
            ]
            await asyncio.sleep(15)
            used = [inside(plugin).job(n).attained - b for n, b in zip("ab", begin, strict=True)]
            await client.cancel(futures)
        return used

    policy = Fixed(a=(0.25, 1.0), b=(0.75, 9.0))
    a, b = on_virtual_clock(scenario, [1], policy=policy, lend=False, prefetch=0)
    assert a / (a + b) == pytest.approx(0.25, abs=0.03)


def time_of(iterations, fall, *, settings, **of_job):
    """The time that a job takes on four threads."""

    async def scenario(client, cluster, plugin):
        return await train(client, "a", fall, iterations=iterations, **of_job)

    return on_virtual_clock(scenario, [1] * 4, **{"policy": "first-to-target", **settings})


@pytest.mark.parametrize("settings", [{"lend": False}, {"policy": "slaq2017"}])
def test_a_job_that_reached_its_target_borrows_what_others_leave(settings):
    took = time_of(12, 0.5, seconds=0.2, target=0.9, settings=settings)
    assert took < 1.1 * 12 * 8 * 0.2 / 4


def test_a_cap_below_a_thread_is_a_part_of_the_time_of_one():
    took = time_of(10, 0.8, tasks=4, max_share=0.25, settings={"lend": False})
    assert took > 0.8 * 10 * 4 * 0.1 / 0.25
