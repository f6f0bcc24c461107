"""Board: its pages are served on a running dashboard, show what is true, and touch nothing else."""

from __future__ import annotations

import json
import logging
import time

import pytest
from distributed import Event
from distributed.utils_test import inc
from driving import gen_cluster, start_plugin, tasks_of, until, wait_for
from tornado.httpclient import AsyncHTTPClient

import dask_slaq as slaq
from dask_slaq.core.usage import DAY
from dask_slaq.scheduler.board import add_pages
from dask_slaq.scheduler.board.data import MOST_SHOWN, data_of

pytest.importorskip("bokeh", reason="bokeh is not installed")

ONE = [("127.0.0.1", 1)]
PAGES = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}
PLOTS = ("loss", "threads", "shares", "usage", "jobs", "task-stream")


async def get(scheduler, path):
    url = f"http://127.0.0.1:{scheduler.http_server.port}{path}"
    return (await AsyncHTTPClient().fetch(url)).body.decode()


@pytest.mark.parametrize("prefix", ["", "/user/ann"])
def test_pages_are_added_at_run_time_and_once(prefix):
    @gen_cluster(client=True, nthreads=ONE, scheduler_kwargs={**PAGES, "http_prefix": prefix})
    async def check(c, s, a):
        for _ in range(2):
            await start_plugin(c, s)
            await c.unregister_scheduler_plugin("slaq")
        await start_plugin(c, s)
        assert "Slaq" in await get(s, f"{prefix}/slaq")
        assert (await get(s, f"{prefix}/status")).count('"slaq"') == 1
        plots = json.loads(await get(s, f"{prefix}/individual-plots.json"))
        for name in PLOTS:
            assert f"/individual-slaq-{name}" in plots.values()
            await get(s, f"{prefix}/individual-slaq-{name}")

    check()


@gen_cluster(client=True, nthreads=ONE, scheduler_kwargs=PAGES)
async def test_the_board_says_what_is_true_with_many_jobs_and_none(c, s, a):
    from bokeh.document import Document

    from dask_slaq.scheduler.board.pages import board

    plugin = await start_plugin(c, s, epoch="1h")
    doc = Document()
    board(s, {"prefix": "/"}, doc)
    assert data_of(s).note == "No job is running."
    async with slaq.job("<b>a</b>", client=c, owner="ann", target=0.3) as job:
        with tasks_of("<b>a</b>"):
            await c.submit(inc, 1)
        for n in range(12):
            job.report(1.0 / (1 + n))
            await until(lambda n=n: plugin.jobs.reports["<b>a</b>"] == n + 1)
            plugin.run_once()
        for n in range(200):
            plugin.engine.add_job(f"other-{n}", 0.0)
            plugin.engine.remove_job(f"other-{n}", 0.0)
        await until(lambda: data_of(s).jobs["job"] == ["<b>a</b>"], timeout=5)
        data = data_of(s)
        assert data.jobs["owner"] == ["ann"]
        assert data.jobs["eta"] == ["reached"]
        assert max(data.losses["x"][0]) == 0
        assert data.losses["job"] == data.forecasts["job"] == data.bands["job"] == ["<b>a</b>"]
        for line in (data.losses, data.forecasts, data.threads):
            assert all(len(x) == len(y) for x, y in zip(line["x"], line["y"], strict=True))
    await c.unregister_scheduler_plugin("slaq")
    await until(lambda: data_of(s).note == "SlaqPlugin is not registered.", timeout=5)


@gen_cluster(client=True, nthreads=ONE)
async def test_without_a_dashboard_there_is_one_clear_line(c, s, a):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("dask_slaq.scheduler.board.routes")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        assert not add_pages(s)
    finally:
        logger.removeHandler(handler)
    assert lines == ["no board: the scheduler has no dashboard"]


@gen_cluster(client=True, nthreads=ONE)
async def test_two_hundred_jobs_have_colors_of_their_own_and_many_leave_none_behind(c, s, a):
    from dask_slaq.scheduler.board import colors

    found = [colors.color_of(s, f"job-{n}") for n in range(200)]
    assert len(set(found)) == 200
    assert found == [colors.color_of(s, f"job-{n}") for n in range(200)]
    for n in range(5000):
        colors.color_of(s, f"short-{n}")
    assert len(colors._of_schedulers[s]._colors) == colors.REMEMBERED


@gen_cluster(client=True, nthreads=[("127.0.0.1", 2)], scheduler_kwargs=PAGES)
async def test_threads_count_tasks_that_still_run(c, s, a):
    plugin = await start_plugin(c, s)
    async with slaq.job("a", client=c):
        tasks = [c.submit(wait_for, "go", k) for k in range(2)]
        await until(lambda: a.state.executing_count == 2)

        async def beat():
            await a.heartbeat()
            plugin.run_once()
            plugin.jobs.record()
            return plugin.jobs.epochs.table(600)[2]["core_seconds"][0, -1]

        first = await beat()
        for _ in range(3):
            later = await beat()
            assert later > first
            first = later
        assert plugin.engine.jobs["a"].runtime.attained == 0
        await Event("go").set()
        await c.gather(tasks)
        later = await beat()
        assert later == pytest.approx(plugin.engine.jobs["a"].runtime.attained)


@gen_cluster(client=True, nthreads=ONE, scheduler_kwargs=PAGES)
async def test_usage_per_day_is_stacked_by_owner_and_bounded(c, s, a):
    plugin = await start_plugin(c, s)
    assert not data_of(s).usage["top"]
    today, ledger = int(time.time() // DAY), plugin.jobs.accounts._ledger
    for day, owner, seconds in ((today, "ann", 3.0), (today, "bob", 6.0), (today - 1, "ann", 2.0)):
        ledger.of(day, owner, "", "").core_seconds += seconds
    await until(lambda: data_of(s).usage["top"], timeout=5)
    usage = data_of(s).usage
    boxes = zip(*(usage[key] for key in ("owner", "bottom", "top")), strict=True)
    assert list(boxes) == [("ann", 0.0, 2.0), ("bob", 0.0, 6.0), ("ann", 6.0, 9.0)]
    assert usage["left"][0] < usage["right"][0] < usage["left"][1] == today * DAY * 1000
    for n in range(100):
        ledger.of(today, f"owner-{n}", "", "").core_seconds += 0.1
    await until(lambda: len(data_of(s).usage["top"]) > 3, timeout=5)
    assert len(data_of(s).usage["top"]) == 1 + MOST_SHOWN + 1
