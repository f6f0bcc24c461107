"""Dask's task page and transition log say why a task waits, and why it was sent."""

import pytest
from distributed import Event
from distributed.utils_test import inc
from driving import (
    HELD,
    ONE,
    gen_cluster,
    jobs,
    page_of,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
)

NAME = "<i>a</i>"


@gen_cluster(
    client=True,
    nthreads=ONE,
    scheduler_kwargs={"http_prefix": "/user/ann", "dashboard_address": "127.0.0.1:0"},
)
async def test_the_page_of_a_held_task_says_why_it_waits(c, s, a):
    async def page(future):
        return await page_of(s, f"/user/ann/info/task/{future.key}.html")

    plugin = await start_plugin(c, s, ahead=0)
    alone = c.submit(inc, 0, key="alone")
    assert await alone == 1
    async with jobs(c, NAME, "b", owner="ann"):
        futures = []
        for name in (NAME, "b"):
            with tasks_of(name):
                futures += [c.submit(wait_for, "go", k, pure=False) for k in range(3)]
        await until(lambda: len(plugin.pools.pools["b"].ready) >= 2)
        held = next(f for f in futures if s.tasks[f.key] in plugin.pools.pools["b"].ready)
        await state_of(s, held, *HELD)
        html = await page(held)
        assert "Transition Log" in html
        assert "other ready tasks of it wait as well" in html
        assert NAME not in html
        # With a fault in it, the page is Dask's own, and nothing else notices.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dask_slaq.scheduler.views.web.why_it_waits", None)
            broken = await page(held)
        assert "Transition Log" in broken
        assert "<th> Slaq </th>" not in broken
        assert "<th> Slaq </th>" not in await page(alone)
        await Event("go").set()
        await c.gather(futures)
        assert "of ann </td>" in await page(held)
        log = [row[4] for row in s.story(held.key)]
        assert any(stimulus.startswith("slaq: b: ") for stimulus in log)
    await c.unregister_scheduler_plugin("slaq")
    assert "Transition Log" in await page(held)
