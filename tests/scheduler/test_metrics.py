"""Metrics: what is served is right under any name, and errors in it touch nothing else."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from distributed.utils_test import inc
from driving import (
    gen_cluster,
    held_tasks,
    in_job,
    inside,
    page_of,
    start_plugin,
    until,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.core.errors import NoPlugin
from dask_slaq.scheduler.board.data import data_of
from dask_slaq.scheduler.jobs.values import values_of_jobs
from dask_slaq.scheduler.views import status as STATUS
from dask_slaq.scheduler.views.metrics import FAMILIES

prometheus_parser = pytest.importorskip("prometheus_client.parser")

PARTS = ("scheduler.prometheus", "scheduler.json", "health")
ROUTES = {"distributed.scheduler.http.routes": [f"distributed.http.{part}" for part in PARTS]}
SERVED = {"scheduler_kwargs": {"dashboard": True}, "config": ROUTES}


async def scrape(scheduler):
    text = await page_of(scheduler, "/metrics")
    found = {}
    for family in prometheus_parser.text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("dask_slaq_"):
                found.setdefault(sample.name.removeprefix("dask_slaq_"), []).append(sample)
    return found


def by(label, samples):
    return {sample.labels[label]: sample.value for sample in samples}


@with_plugin([1], **SERVED, owners={"default": {"weight": 1}})
async def test_metrics_of_jobs_end_with_them_and_usage_stays(c, s, plugin, a):
    assert not (await scrape(s))["jobs"][0].value
    for n in range(100):
        async with slaq.job(f"short-{n}", client=c, owner="ann") as job:
            job.report(1.0)
    async with slaq.job("a", client=c, owner="ann") as job, slaq.job("b", client=c, owner="bob"):
        job.report(2.0)
        await in_job(c, "a").submit(inc, 1)
        plugin.run_once()
        during = await scrape(s)
        assert during.keys() == set(FAMILIES)
        assert by("job", during["job_share"]).keys() == {"a", "b"}
        states = by("state", during["jobs_in_state"])
        assert states == {"running": 0, "waiting": 0, "idle": 2, "paused": 0, "stopping": 0}
        await slaq.pause("b", client=c)
        inside(plugin).drop_shown()
        states = by("state", (await scrape(s))["jobs_in_state"])
        assert (states["idle"], states["paused"]) == (1, 1)
        with contextlib.suppress(ZeroDivisionError):
            async with slaq.job("c", client=c, owner="bob"):
                raise ZeroDivisionError
    after = await scrape(s)
    assert not any("job" in x.labels for samples in after.values() for x in samples)
    ended = after["owner_finished_jobs_total"]
    jobs = {(x.labels["owner"], x.labels["outcome"]): x.value for x in ended if x.value}
    assert jobs == {("ann", "done"): 101, ("bob", "done"): 1, ("bob", "failed"): 1}
    assert by("owner", after["owner_core_seconds_total"])["ann"] > 0


@with_plugin([1], **SERVED, may_fail=True)
async def test_pages_are_made_once_per_decision(c, s, plugin, a, monkeypatch):
    made = []
    monkeypatch.setattr(
        STATUS, "values_of_jobs", lambda *args: made.append(1) or values_of_jobs(*args)
    )
    async with slaq.job("a", client=c) as job:
        await until(lambda: inside(plugin).grants)
        for _ in range(20):
            assert "a" in await page_of(s, "/metrics")
        assert len(made) == 1
        job.report(1.0)
        await until(lambda: inside(plugin).job("a").iteration)
        plugin.run_once()
        await page_of(s, "/metrics")
        assert len(made) == 2  # an epoch later it is new
        plugin.fall_back(ZeroDivisionError("on purpose\n\x1b[31m" + "x" * 9999))
        assert plugin.failed.isprintable() and len(plugin.failed) < 2000


@gen_cluster(client=True, nthreads=[1], **SERVED)
async def test_a_plugin_that_comes_after_the_first_scrape_is_scraped(c, s, a):
    await page_of(s, "/metrics")  # from now on Dask adds no collectors
    await start_plugin(c, s)
    assert not (await scrape(s))["jobs"][0].value


@with_plugin([1], **SERVED)
async def test_an_error_in_a_metric_leaves_the_others(c, s, plugin, a, monkeypatch):
    monkeypatch.setattr(STATUS, "values_of_jobs", lambda *_: 1 / 0)
    text = await page_of(s, "/metrics")
    assert "dask_scheduler_workers" in text and "dask_slaq_jobs" not in text


@with_plugin([1], **SERVED)
async def test_made_up_names_have_one_row_together(c, s, plugin, a):
    """Some 1500 owners, and as many jobs: a hundred of each have series of their own."""
    accounts = inside(plugin).accounts
    async with contextlib.AsyncExitStack() as stack:
        for n in range(120):
            await stack.enter_async_context(slaq.job(f"job-{n}", client=c, owner=f"o-{n}"))
        accounts._add(("ann", "", ""), "core_seconds", 99.0)
        for n in range(1500):
            accounts._add((f"made-up-{n}", "", ""), "core_seconds", 1.0)
        text = await page_of(s, "/metrics")
        assert text.count("\ndask_slaq_") < 3000
        found = await scrape(s)
        used = by("owner", found["owner_core_seconds_total"])
        assert len(used) == 101 and used["(others)"] == 1401.0
        assert len(found["job_running"]) <= 101
    # Whoever was among the others stays there: a counter does not fall.
    accounts._add(("made-up-1499", "", ""), "core_seconds", 1000.0)
    inside(plugin).drop_shown()
    used = by("owner", (await scrape(s))["owner_core_seconds_total"])
    assert (used["ann"], used["(others)"], len(used)) == (99.0, 2401.0, 101)


@gen_cluster(client=True, nthreads=[1], **SERVED)
async def test_everything_finds_a_plugin_of_another_name(c, s, a):
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h"), name="ours")
    plugin = s.plugins["ours"]
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        assert await in_job(c, "a").submit(inc, 1) == 2
        assert (await scrape(s))["jobs"][0].value == 1
        assert data_of(s).head.startswith("Policy")
        await job.pause()
        more = await held_tasks(c, plugin, "a", 30, run=0)
        assert s.adaptive_target(target_duration=1) <= 1
        del more
    await c.unregister_scheduler_plugin("ours")
    with pytest.raises(NoPlugin):
        await slaq.status(c)


@gen_cluster(client=True, nthreads=[1])
async def test_a_plugin_of_another_name_takes_the_place_of_one(c, s, a):
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    first = s.plugins["slaq"]
    await c.register_plugin(slaq.SlaqPlugin(epoch="1h", policy="fair"), name="other")
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        await until(lambda: s.plugins["other"].jobs.reports == {"a": 1})
        assert not first.jobs.reports
        assert first not in s.plugins.values()
        assert (await slaq.status(c))["policy"] == "fair"
    await c.unregister_scheduler_plugin("slaq")  # which another one has replaced
    assert "other" in s.plugins


DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def test_every_query_names_metrics_that_exist():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert queries
    for query in queries:
        names = re.findall(r"\bdask_slaq_(\w+)", query)
        assert names and set(names) <= set(FAMILIES), query
