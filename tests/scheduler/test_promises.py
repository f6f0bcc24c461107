"""Promises on Dask's scheduler: no job ends later than a factor of its fair time."""

import asyncio

import pytest
from driving import on_virtual, on_virtual_clock, train

import dask_slaq as slaq
from benchmarks import virtual


def two_alike(one, two, iterations):
    """Start the jobs "a" and "b"."""
    return [
        asyncio.create_task(train(client, name, 0.9, iterations=iterations, max_iter=iterations))
        for client, name in ((one, "a"), (two, "b"))
    ]


def converged_beside_improving(max_slowdown, policy="max-total", of_owner=None):
    """Return how long a converged job takes beside one that improves all the time."""

    async def scenario(client, cluster, plugin):
        async with cluster.client() as one, cluster.client() as two:
            alike = {"iterations": 16, "max_iter": 16, "seconds": 0.2}
            steep = {"tasks": 20, "owner": "bob", "max_slowdown": float("inf"), **alike}
            flat = {"tasks": 4, "owner": "ann", "max_slowdown": max_slowdown, **alike}
            steep = asyncio.create_task(train(two, "steep", 0.97, **steep))
            took = await train(one, "flat", 0.1, end=1.0, **flat)
            steep.cancel()
            await asyncio.gather(steep, return_exceptions=True)
            return took

    owners = None if of_owner is None else {"ann": {"max_slowdown": of_owner}, "default": {}}
    return on_virtual_clock(scenario, [2, 2], policy=policy, owners=owners)


def test_a_job_without_gain_ends_by_its_promise_or_that_of_its_owner():
    fair = converged_beside_improving(None, "fair")
    assert converged_beside_improving(float("inf")) > 2.2 * fair
    assert converged_beside_improving(2.0) < 1.15 * 2.0 * fair
    assert converged_beside_improving(None, of_owner=1.2) < 1.15 * 1.2 * fair


@on_virtual([2, 2], policy="first-to-target")
async def test_it_is_said_when_a_job_ends(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two:
        jobs = two_alike(one, two, iterations=30)
        await asyncio.sleep(6)
        ends = (await slaq.status(one))["jobs"]["a"]["ends"]
        text = (await slaq.explain("a", client=one))["text"]
        begin = virtual.now()
        await asyncio.gather(*jobs)
        took = virtual.now() - begin
    assert ends["late"] is None
    assert ends["fair"] == pytest.approx(took, rel=0.25)
    assert ends["low"] < ends["expected"] < ends["high"] and ends["expected"] < ends["promised"] * 2
    assert "Its end is expected " in text and ", promised by " in text and ", fair by " in text


@on_virtual([7, 1], policy="first-to-target")
async def test_a_promise_that_moves_is_said_with_the_reason(client, cluster, plugin):
    async with cluster.client() as one, cluster.client() as two:
        jobs = two_alike(one, two, iterations=100)
        await asyncio.sleep(8)
        before = (await slaq.explain("a", client=one))["text"]
        await cluster.scheduler.retire_workers([cluster.workers[0].address])
        await asyncio.sleep(3)
        after = (await slaq.explain("a", client=one))["text"]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
    late = "later than it was promised at first: threads of the cluster: 1, and 8 when it was"
    assert "later than" not in before and late in after
