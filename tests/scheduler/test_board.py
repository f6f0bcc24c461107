"""Board: its pages are served on a running dashboard, show what is true, and touch nothing else."""

import json
import logging
import math
import re
import time
from pathlib import Path

import pytest
from distributed.http.scheduler import missing_bokeh
from distributed.utils_test import captured_logger, inc
from driving import (
    forget_shown,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    page_of,
    report_epochs,
    start_plugin,
    tasks_of,
    until,
    wait_for,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.core.jobs.history import table
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.scheduler.board import add_pages
from dask_slaq.scheduler.board.data import (
    GREY,
    MOST_SHOWN,
    UNOWNED,
    UNOWNED_TASKS,
    color_of,
    data_of,
)
from dask_slaq.scheduler.owners.accounts import UnownedUsage

pytest.importorskip("bokeh", reason="bokeh is not installed")
from bokeh.core import serialization
from bokeh.document import Document

from dask_slaq.scheduler.board import pages, search_page

ROOT = Path(__file__).parents[2]
PAGES = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}
PLOTS = ("loss", "threads", "shares", "usage", "jobs", "task-stream")


def newest(scheduler):
    """The data of the board, computed anew."""
    forget_shown()
    return data_of(scheduler)


@gen_cluster(client=True, nthreads=[1], scheduler_kwargs={**PAGES, "http_prefix": "/user/ann"})
async def test_pages_are_added_at_run_time_and_once(c, s, a):
    for _ in range(2):
        await start_plugin(c, s)
        await c.unregister_scheduler_plugin("slaq")
    await start_plugin(c, s)
    assert "Slaq" in await page_of(s, "/user/ann/slaq")
    assert (await page_of(s, "/user/ann/status")).count('"slaq"') == 1
    plots = json.loads(await page_of(s, "/user/ann/individual-plots.json"))
    for name in PLOTS:
        assert f"/individual-slaq-{name}" in plots.values()
        await page_of(s, f"/user/ann/individual-slaq-{name}")


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_the_board_says_what_is_true_with_many_jobs_and_none(c, s, plugin, a):
    pages.board(s, {"prefix": "/"}, Document())
    assert data_of(s).note == "No job is running."
    async with slaq.job("<b>a</b>", client=c, owner="ann", target=0.3) as job:
        await in_job(c, "<b>a</b>").submit(inc, 1)
        await report_epochs(plugin, job, [1.0 / (1 + n) for n in range(12)])
        for n in range(200):
            plugin.engine.add_job(f"other-{n}", 0.0)
            plugin.engine.remove_job(f"other-{n}", 0.0)
        data = newest(s)
        shown = {name: data.jobs[name] for name in ("job", "owner", "eta")}
        assert shown == {"job": ["<b>a</b>"], "owner": ["ann"], "eta": ["reached"]}
        assert max(data.losses["x"][0]) == 0
        assert data.losses["job"] == data.forecasts["job"] == data.bands["job"] == ["<b>a</b>"]
        for line in (data.losses, data.forecasts, data.threads):
            assert all(len(x) == len(y) for x, y in zip(line["x"], line["y"], strict=True))
    await c.unregister_scheduler_plugin("slaq")
    assert newest(s).note == "SlaqPlugin is not registered."


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_every_address_that_the_documentation_names_is_served(c, s, plugin, a):
    pytest.importorskip("prometheus_client")
    documents = [ROOT / ".github" / "SECURITY.md", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = "".join(document.read_text() for document in documents)
    named = set(re.findall(r"`(/(?!etc/)[^`?]+)", text))
    assert named >= {"/slaq", "/slaq-search", "/metrics"}
    for address in named:
        assert await page_of(s, address)


def test_the_documentation_names_what_the_pages_show():
    named = re.findall(r"^- \*\*(.+?)\*\*", (ROOT / "docs" / "board.md").read_text(), re.MULTILINE)
    shown = "".join(Path(module.__file__).read_text() for module in (pages, search_page))
    assert len(named) == 6
    assert [title for title in named if title not in shown] == []


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_a_page_is_sent_as_it_is(c, s, plugin, a):
    class Counted(serialization.Serializer):
        encoded = 0

        def encode(self, value):
            self.encoded += 1
            return super().encode(value)

    async with slaq.job("a", client=c) as job:
        await report_epochs(plugin, job, [1.0 / (1 + n) for n in range(40)])
        data = data_of(s)
        assert len(data.losses["y"][0]) >= 40
        for columns in (data.losses, data.forecasts, data.bands, data.threads, data.jobs):
            serializer = Counted()
            sent = json.loads(json.dumps(serializer.encode(columns)))
            assert dict(sent["entries"]) == json.loads(json.dumps(columns))
            assert serializer.encoded < 40


@gen_cluster(client=True, nthreads=[1])
async def test_without_a_dashboard_there_is_one_clear_line(c, s, a):
    with captured_logger("dask_slaq.scheduler.board.routes", level=logging.INFO) as log:
        assert not add_pages(s)
        add_handlers = s.http_application.add_handlers
        add_handlers(r".*", missing_bokeh.routes[1:])  # as Dask does where it is not installed
        assert not add_pages(s)
    first, second = log.getvalue().splitlines()
    assert first == "no board: the scheduler has no dashboard"
    assert second.endswith("pip install 'dask-slaq[dashboard]'")


def test_two_hundred_jobs_have_colors_of_their_own_and_many_leave_none_behind():
    found = [color_of(f"job-{n}") for n in range(200)]
    assert len(set(found)) == 200
    assert found == [color_of(f"job-{n}") for n in range(200)]
    for n in range(5000):
        color_of(f"short-{n}")
    assert color_of.cache_info().currsize == 1000


async def shown_after_a_beat(plugin, worker):
    """The core-seconds of the first job that are shown after a heartbeat of its worker."""
    await worker.heartbeat()
    plugin.run_once()
    inside(plugin).record()
    return table(inside(plugin).epochs, 600)[2]["core_seconds"][0, -1]


@with_plugin([2], scheduler_kwargs=PAGES)
async def test_threads_count_tasks_that_still_run(c, s, plugin, a):
    async with slaq.job("a", client=c):
        tasks = [c.submit(wait_for, "go", k) for k in range(2)]
        await until(lambda: a.state.executing_count == 2)

        seen = [await shown_after_a_beat(plugin, a) for _ in range(4)]
        assert seen == sorted(set(seen))
        assert inside(plugin).job("a").attained == 0
        await let_end(c, tasks)
        later = await shown_after_a_beat(plugin, a)
        assert later == pytest.approx(inside(plugin).job("a").attained)


@with_plugin([2], scheduler_kwargs=PAGES)
async def test_threads_do_not_count_models_that_wait_in_their_report(c, s, plugin, a):
    def train(_):
        while True:
            time.sleep(0.01)
            slaq.report(1.0)

    async with slaq.search("grid", client=c) as search:
        futures = c.map(train, range(2), pure=False)
        running = inside(plugin).search("grid")
        await until(lambda: len(running.trials.alive) == 2)
        await search.pause()
        await until(lambda: running.trials.waiting == 2)
        for _ in range(3):
            shown = await shown_after_a_beat(plugin, a)
            assert shown == pytest.approx(inside(plugin).job("grid").attained)
        await c.cancel(futures)


def last(data, job):
    """The last point of a job's line, and whether the line is interrupted."""
    at = data.losses["job"].index(job)
    x, y = data.losses["x"][at], data.losses["y"][at]
    return x[-1], any(math.isnan(value) for value in y)


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_lines_end_with_their_jobs_and_ended_jobs_stay_in_the_table(c, s, plugin, a):
    async with slaq.job("goes on", client=c) as other:
        async with slaq.job("<i>b</i>", client=c, owner="ann") as job:
            await report_epochs(plugin, job, (1.0, 0.5, 0.3))
        await report_epochs(plugin, other, (1.0, 0.5, 0.3))
        data = newest(s)
        assert last(data, "<i>b</i>")[0] < last(data, "goes on")[0] == 0
        assert data.jobs["job"] == ["goes on", "<i>b</i>"]
        assert re.fullmatch(r"done \d s ago", data.jobs["state"][1])
        assert data.jobs["ink"] == ["inherit", GREY]
        assert data.jobs["owner"][1] == "ann" and data.jobs["iteration"][1] == 3
        assert data.jobs["reason"][1].startswith("ended after 3 iterations")
        assert data.legend["name"] == ["goes on", "<i>b</i>"]
        assert data.legend["outcome"] == ["", "done"]
        # It runs again: its line is interrupted for the time in which it did not run.
        async with slaq.job("<i>b</i>", client=c) as job:
            await report_epochs(plugin, job, (1.0, 0.5))
            data = newest(s)
            assert last(data, "<i>b</i>") == (0, True)
            assert not last(data, "goes on")[1]
            assert data.jobs["job"] == ["goes on", "<i>b</i>"]  # once
    assert data_of(s).note == ""
    data = newest(s)
    assert data.note == "No job is running."
    assert sorted(data.jobs["job"]) == ["<i>b</i>", "goes on"]
    # The time goes on without jobs.
    await until(lambda: last(newest(s), "goes on")[0] < 0)


@with_plugin([2], scheduler_kwargs=PAGES)
async def test_unowned_tasks_are_an_area_and_a_bar_of_their_own(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        with tasks_of("b"):  # there is no such job
            tasks = [c.submit(wait_for, "go", k) for k in range(2)]
        await until(lambda: a.state.executing_count == 2)
        for loss in (1.0, 0.5):
            await report_epochs(plugin, job, [loss])
            await a.heartbeat()
            plugin.run_once()
        data = newest(s)
        area = data.threads["job"][-1], data.threads["color"][-1]
        assert area == (UNOWNED_TASKS, UNOWNED)
        assert data.shares["got"][data.shares["name"].index(UNOWNED_TASKS)] > 0
        assert not any(name.startswith("other:") for name in data.shares["name"])
        assert data.legend["name"] == ["a", UNOWNED_TASKS]
        assert UNOWNED in data.jobs["color"]
        await let_end(c, tasks)
        assert plugin.pools.charges.unowned > 0


def test_unowned_seconds_of_before_the_first_epoch_are_no_usage():
    used = UnownedUsage(10)
    used.record(100.0, 500.0, 4)
    used.record(101.0, 502.0, 4)
    used.record(102.0, 999.0, 4)
    used.record(103.0, 999.0, 4)
    assert [total for _, total in used.epochs] == [0.0, 2.0, 6.0, 6.0]


@pytest.mark.slow
@with_plugin([1], scheduler_kwargs=PAGES)
async def test_the_legend_names_sixty_jobs_and_says_what_it_leaves_out(c, s, plugin, a):
    async with jobs(c, *(f"job-{n:03}" for n in range(60)), owner="<ann>"):
        plugin.run_once()
        newest(s)
        text = pages.Legend(s).root.text
        assert text.count("&lt;ann&gt;") == 1 and "<ann>" not in text
        assert all(f"job-{n:03}" in text for n in range(60))
        assert all(color_of(f"job-{n:03}") in text for n in range(60))
    async with jobs(c, *(f"job-{n:03}" for n in range(103))):
        plugin.run_once()
        assert newest(s).legend["name"][-1] == "and 3 more"


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_usage_per_day_is_stacked_by_owner_and_bounded(c, s, plugin, a):
    plot = pages.UsagePlot(s)
    plot.update()
    assert not data_of(s).usage["top"] and not plot.root.legend.visible
    today, spent = int(time.time() // DAY_SECONDS), inside(plugin).accounts.spent
    for day, owner, seconds in ((today, "ann", 3.0), (today, "bob", 6.0), (today - 1, "ann", 2.0)):
        spent.add(day, owner, seconds)
    usage = newest(s).usage
    boxes = zip(*(usage[key] for key in ("owner", "bottom", "top")), strict=True)
    assert list(boxes) == [("ann", 0.0, 2.0), ("bob", 0.0, 6.0), ("ann", 6.0, 9.0)]
    assert usage["left"][0] < usage["right"][0] < usage["left"][1] == today * DAY_SECONDS * 1000
    plot.update()
    assert plot.root.legend.visible and plot.root.legend.items[0].label.field == "owner"
    for n in range(100):
        spent.add(today, f"owner-{n}", 0.1)
    assert len(newest(s).usage["top"]) == 1 + MOST_SHOWN + 1
