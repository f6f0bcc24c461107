"""The live table shows the best models of a search, above the rest of its explanation."""

import asyncio

import pytest
from distributed import Event, wait

import dask_slaq as slaq


async def until(pilot, condition):
    while not condition():
        await pilot.pause(0.02)


def shown(app, name):
    return str(app.query_one(name).render())


def hold_then_report(params):
    slaq.report(params["lr"])
    Event("go").wait()
    slaq.report(params["lr"] / 2)


def test_top_shows_the_best_models_of_a_search(local_client):
    pytest.importorskip("textual")
    from dask_slaq.cli.connection import Where
    from dask_slaq.cli.top.app import Top

    local_client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    with slaq.search("grid", client=local_client) as search:  # another one may be current here
        futures = search.map(hold_then_report, [{"lr": 0.5}, {"lr": 0.25}])

        async def look():
            app = Top(Where(address=local_client.scheduler.address), interval=0.1)
            async with app.run_test(size=(120, 30)) as pilot:
                await until(pilot, lambda: app.job == "grid")
                await pilot.press("e")
                await until(pilot, lambda: "0.25" in shown(app, "#explanation"))
                return shown(app, "#explanation")

        lines = asyncio.run(look()).splitlines()
        Event("go", client=local_client).set()
        wait(futures)
    head = next(i for i, line in enumerate(lines) if "loss" in line and "lr" in line)
    assert head == 1  # below what it does, so that a small terminal has room for it
    assert lines[head + 1].split()[:2] == ["1", "0.25"]
    assert lines[head + 2].split()[:2] == ["2", "0.5"]
