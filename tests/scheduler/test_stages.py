"""Stages of jobs on Dask's scheduler: what is counted, shown, expected and remembered."""

import asyncio
import json
import operator
import sqlite3
from contextlib import closing

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import inc, slowinc
from driving import (
    gen_cluster,
    let_end,
    on_virtual,
    on_virtual_clock,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq
from benchmarks import virtual
from dask_slaq.client.queries import dataset
from dask_slaq.core.errors import InvalidSetting, UnknownJob
from dask_slaq.core.jobs.columns import JOB_COLUMNS
from dask_slaq.core.jobs.history import VARIABLES, Epochs
from dask_slaq.core.memory import Kind, StagedRun
from dask_slaq.core.recording.replay import replay
from dask_slaq.memory import RunStore, prune


async def stage_of(client, job="a"):
    return (await slaq.status(client))["jobs"][job]["stage"]


async def counted(plugin, name, submitted):
    """Wait until the tasks of a stage have arrived, and return it."""
    pool = plugin.pools.pools["a"]
    await until(lambda: pool.stages and name in pool.stages.named)
    await until(lambda: pool.stages.named[name].submitted == submitted)
    return pool.stages.named[name]


@with_plugin([1])
async def test_a_stage_counts_its_tasks(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        assert await stage_of(c) is None
        await c.submit(inc, 0, pure=False)
        assert plugin.pools.pools["a"].stages is None
        with job.stage("features"):
            done = c.map(inc, range(3), pure=False)
            await wait(done)
            held = c.map(wait_for, ["go"] * 4, pure=False)
        await counted(plugin, "features", 7)
        await c.cancel(held[2:])  # they do not count
        await counted(plugin, "features", 5)
        plugin.pools.check()
        assert await stage_of(c) == {"name": "features", "tasks": 5, "done": 3}
        said = (await slaq.explain("a", client=c))["text"]
        assert "Of stage features, 3 of 5 tasks are done" in said
        assert "features 3/5" in (await slaq.status(c))._repr_html_()
        assert {s.tasks[f.key].annotations["slaq_stage"] for f in held[:2]} == {"features"}
        assert all(plugin.pools.tracker.job_of(f.key) == "a" for f in held[:2])
        await let_end(c, held[:2])
        assert await stage_of(c) == {"name": "features", "tasks": 5, "done": 5}
        plugin.run_once()
        assert (await slaq.history(c)).stage.sel(job="a").values.tolist()[-1] == "features"
        await c.submit(inc, 1, pure=False)
        assert await stage_of(c) is None
        plugin.pools.check()


@with_plugin([1])
async def test_stages_entered_twice_and_nested(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        for _ in range(2):
            with job.stage("outer"):
                await c.submit(inc, 0, pure=False)
                with job.stage("inner"):
                    await c.gather(c.map(inc, range(3), pure=False))
                await c.submit(inc, 0, pure=False)
        outer = await counted(plugin, "outer", 4)
        inner = await counted(plugin, "inner", 6)
        assert [(stage.entered, stage.ended) for stage in (outer, inner)] == [(2, 4), (2, 6)]
        plugin.pools.check()


@with_plugin([1])
async def test_a_lazy_collection_counts_where_it_is_computed(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        with job.stage("scale"):
            x = da.ones(4, chunks=1) + 1
        with job.stage("train"):
            assert await c.compute(x.sum()) == 8
        stages = plugin.pools.pools["a"].stages.named
        assert set(stages) == {"", "train"}
        assert stages["train"].ended == stages["train"].submitted > 4
        with job.stage("again"):
            async with slaq.job("b", client=c) as inner:
                assert await c.compute(x.sum()) == 8  # its tasks are in no stage of "b"
                assert plugin.pools.pools["b"].stages is None or not await stage_of(c, "b")
                assert inner.name == "b"


@with_plugin([1])
async def test_a_stage_whose_block_fails_is_left(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        with pytest.raises(ZeroDivisionError), job.stage("features"):
            await c.submit(operator.truediv, 1, 0)
        assert not (await counted(plugin, "features", 1)).unfinished
        await (future := c.submit(inc, 0, pure=False))
        assert "slaq_stage" not in s.tasks[future.key].annotations
        plugin.pools.check()


@with_plugin([1])
async def test_bad_stages(c, s, plugin, a):
    job = slaq.job("a", client=c)
    with pytest.raises(UnknownJob, match="enter a stage in its block"):
        job.stage("x").__enter__()
    async with job:
        for name in (3, "", "x" * 257):
            with pytest.raises(InvalidSetting, match="a stage's name must be"):
                job.stage(name).__enter__()
        for number in range(120):
            with job.stage(f"s{number}"):
                await c.submit(inc, number)
        assert len(plugin.pools.pools["a"].stages.named) <= 101
        nonsense = {"slaq_stage": "x", f"slaq_stage:{job._run}:x": 3, "slaq_stage:": 1}
        with dask.annotate(**nonsense):
            assert await c.submit(inc, 7, pure=False) == 8


@gen_cluster(client=True, nthreads=[1])
async def test_without_the_plugin_a_stage_is_plain_dask(c, s, a):
    async with slaq.job("a", client=c) as job:
        with job.stage("features"):
            assert await c.submit(inc, 0) == 1


async def staged(client, *, done=None):
    """Run three stages of 8, 16 and 24 core-seconds; `done` is called amid the first."""
    begin = virtual.now()
    async with slaq.job("pipe-1", client=client) as job:
        for stage, count in (("features", 8), ("train", 16), ("predict", 24)):
            with job.stage(stage):
                futures = client.map(work, [1.0] * count, pure=False)
            if done is not None and stage == "features":
                await asyncio.sleep(2.5)
                await done()
            await client.gather(futures)
    return virtual.now() - begin


def test_a_second_run_knows_at_its_first_stage_when_it_ends(tmp_path):
    """Also with the next scheduler, which has the file."""
    seen = []

    async def scenario(client, cluster, plugin):
        async def look():
            status = (await slaq.status(client))["jobs"]["pipe-1"]
            seen.append((status["ends"], plugin.engine.jobs.table.column["after"].copy()))

        assert await staged(client, done=look) == pytest.approx(24, abs=1.5)

    for _ in range(2):
        on_virtual_clock(scenario, [2], memory=str(tmp_path / "runs.db"))
    (unknowing, none), (knowing, after) = seen
    assert 0.0 in none and unknowing is None  # without memory, nothing tells which stages come
    assert 40.0 in after.round(6)
    assert knowing["fair"] == pytest.approx(24 - 2.5, abs=2)
    assert 20 < knowing["expected"] < knowing["high"]
    assert knowing["promised"] > knowing["fair"] >= 0


@on_virtual([2])
async def test_a_run_that_fails_teaches_no_stages(client, cluster, plugin):
    with pytest.raises(ZeroDivisionError):
        async with slaq.job("pipe", client=client) as job:
            with job.stage("features"):
                await client.submit(work, 1.0)
            raise ZeroDivisionError
    assert plugin.memory.stages.expected(Kind("pipe")) == {}


def test_work_left_of_stages_ranks_jobs():
    """The job with least work left goes first, by what past runs tell, though none reports."""

    async def scenario(client, cluster, plugin):
        async def run(name, count):
            async with cluster.client() as one:
                async with slaq.job(name, client=one) as job:
                    for stage, tasks in (("features", 8), ("rest", count)):
                        with job.stage(stage):
                            futures = one.map(work, [1.0] * tasks, pure=False)
                        await one.gather(futures)
                return virtual.now()

        for _ in range(2):  # the second time by what it has learned
            begin = virtual.now()
            ends = await asyncio.gather(run("long", 80), run("short", 8))
        return [end - begin for end in ends]

    policies = ("fair", "first-to-target")
    (one, fair), (other, first) = (on_virtual_clock(scenario, [2], policy=p) for p in policies)
    assert max(one, other) <= 55
    assert first <= 0.75 * fair


def test_a_job_without_stages_records_nothing_new(tmp_path):
    log = tmp_path / "log.jsonl"

    async def scenario(client, cluster, plugin):
        async with slaq.job("a", client=client):
            await client.gather(client.map(work, [1.0] * 8, pure=False))
        await staged(client)

    on_virtual_clock(scenario, [2], log=str(log))
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert {event["job"] for event in events if event["event"] == "after"} == {"pipe-1"}
    found = replay(events)
    assert found.decisions == found.reproduced > 0 and found.difference is None


def test_what_earlier_releases_tell_has_no_stage():
    (column,) = (column for column in JOB_COLUMNS if column.name == "stage")
    assert column.text({"job": "a", "iteration": 3}) == ""
    epochs = Epochs(10)
    numbers = {name: [0] for name in VARIABLES}
    epochs.add(1.0, ["a"], numbers)
    epochs.add(2.0, ["a"], numbers, {"a": "features"})
    piece = epochs.read(3.0)
    assert dataset([piece]).stage.values.tolist() == [["", "features"]]
    del piece["stages"]
    assert "stage" not in dataset([piece])


def test_a_file_of_an_earlier_release_gets_the_stages(tmp_path):
    path = tmp_path / "runs.db"
    RunStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE stages")
    store = RunStore(path)
    kind = Kind("pipe", (("rows", 3.0),))
    for number in range(40):
        store.add_stages(StagedRun(kind, {"features": (1.0 + number, 2)}, float(number)))
    store.flush()
    kept = store.stages("pipe")
    assert [run.ended for run in kept] == list(range(24, 40))
    assert kept[-1].kind == kind and kept[-1].times == {"features": (40.0, 2)}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE stages SET times = '[3]' WHERE ended = 39")
        connection.execute("""UPDATE stages SET times = '{"x": [-1, 2]}' WHERE ended = 38""")
    assert [run.ended for run in store.stages("pipe")] == list(range(24, 38))
    assert prune(path, before=30.0) == 0
    assert [run.ended for run in store.stages("pipe")] == list(range(30, 38))
    store.close()


@with_plugin([1])
async def test_a_stage_that_reports_is_forecast_by_its_iterations(c, s, plugin, a):
    async with slaq.job("a", client=c, max_iter=10) as job:
        with job.stage("features"):
            await c.submit(slowinc, 0, delay=0.02, pure=False)
        plugin.run_once()
        column, row = plugin.engine.jobs.table.column, plugin.engine.jobs.row("a")
        assert column["left"][row] == column["after"][row] == 0
        with job.stage("train"):
            for loss in (1.0, 0.5, 0.25):
                await c.submit(slowinc, 0, delay=0.02, pure=False)
                job.report(loss)
        await until(lambda: plugin.jobs.reports["a"] == 3)
        plugin.run_once()
        assert np.isnan(column["left"][row]) and column["after"][row] == 0
        assert (await slaq.status(c))["jobs"]["a"]["ends"] is not None
        with job.stage("predict"):
            await c.submit(slowinc, 0, delay=0.02, pure=False)
        plugin.run_once()
        assert column["left"][row] == 0


@with_plugin([1, 1])
async def test_tasks_that_are_lost_count_once(c, s, plugin, a, b):
    async with slaq.job("a", client=c) as job:
        before = c.map(inc, range(10), pure=False)
        await wait(before)
        with job.stage("features"):
            futures = c.map(inc, range(10), pure=False)
        await wait(futures)
        await b.close()
        await until(lambda: all(s.tasks[f.key].state == "memory" for f in [*before, *futures]))
        assert await stage_of(c) == {"name": "features", "tasks": 10, "done": 10}
        plugin.pools.check()
