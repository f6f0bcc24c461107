"""Two jobs of two clients that ask for the same keys."""

from __future__ import annotations

import asyncio

from dask import delayed
from distributed import Client
from distributed.utils_test import inc
from driving import TWO, with_plugin

import dask_slaq as slaq


@with_plugin(TWO)
async def test_what_another_job_has_released_is_asked_for_by_the_job(c, s, plugin, a, b):
    done, go = asyncio.Event(), asyncio.Event()
    x = delayed(inc)(1, dask_key_name="x")
    y = delayed(inc)(x, dask_key_name="y")
    z = delayed(inc)(y, dask_key_name="z")

    async def first():
        async with slaq.job("first", client=c):
            held = c.compute(z, optimize_graph=False)
            assert await held == 4
            done.set()
            await go.wait()

    async def second(other):
        async with slaq.job("second", client=other):
            assert await other.compute(y, optimize_graph=False) == 3
            return list(plugin.pools.pools)

    told = []
    plugin.jobs.tell_client = lambda name, what, **more: told.append((name, what))
    async with Client(s.address, asynchronous=True) as other:
        task = asyncio.create_task(first())
        await done.wait()
        assert s.tasks["y"].state == "released"  # the task that holds it has ended
        pools = await asyncio.create_task(second(other))
        go.set()
        await task
    assert pools == ["first", "second"]  # no pool of unowned tasks
    assert told == []  # least of all that it submits outside of its block
