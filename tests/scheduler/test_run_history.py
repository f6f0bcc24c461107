"""A scheduler remembers past runs: within its life, in a file, and over its own end."""

import asyncio
import contextlib
import logging
from time import time

import pytest
from commands import python
from distributed import Scheduler
from distributed.utils_test import gen_test
from driving import (
    alerts_of,
    another_client,
    asked_to_stop,
    gen_cluster,
    inside,
    start_plugin,
    until,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.adapters.observing import describe
from dask_slaq.cli.status_tables import ended_table
from dask_slaq.client.connection import request
from dask_slaq.core.errors import InvalidSetting, StopTraining
from dask_slaq.core.run_history import Kind
from dask_slaq.run_history import read_kinds, read_runs


def curve(n, scale=1.0):
    return [scale * (0.1 + 0.9**k) for k in range(n)]


async def train(client, name, losses, **settings):
    async with slaq.job(name, client=client, **settings) as job:
        for loss in losses:
            job.report(loss)
        await reported(client, name, len(losses))
        return (await slaq.status(client))["jobs"][name]


async def reported(client, name, iterations):
    found = {}
    while found.get("iteration", -1) < iterations:
        await asyncio.sleep(0.005)
        found = (await slaq.status(client))["jobs"].get(name, {})


@with_plugin([1], policy="max-total")
async def test_within_its_life_without_any_setting(c, s, plugin, a):
    first = await train(c, "net-lr0.1", curve(30))
    assert (first["kind"], first["like_runs"]) == ("net", 0)
    async with slaq.job("net-lr0.2", client=c):
        found = (await slaq.status(c))["jobs"]["net-lr0.2"]
        assert (found["kind"], found["like_runs"]) == ("net", 1)
        text = (await slaq.explain("net-lr0.2", client=c))["text"]
        assert "Its forecast rests on 1 like run of kind net" in text
    async with slaq.job("other", client=c):
        assert (await slaq.status(c))["jobs"]["other"]["like_runs"] == 0
    held = {"file": None, "runs": 1, "stored": 0, "failed": None}
    assert (await slaq.status(c))["run_history"] == held
    assert inside(plugin).memory_error is None


@with_plugin([1])
async def test_losses_that_are_refused_are_not_remembered(c, s, plugin, a):
    async with slaq.job("net", client=c) as job:
        for loss in (3.0, float("nan"), 2.0, float("inf"), 1e305, 1.0):
            c._send_to_scheduler({"op": "slaq-report", "job": "net", "loss": loss})
        await reported(c, "net", 6)
        job.report(0.5)
        await reported(c, "net", 7)
    (run,) = inside(plugin).past_runs
    assert run.loss.tolist() == [3.0, 2.0, 1.0, 0.5] and inside(plugin).memory_error is None


@with_plugin([1])
async def test_how_a_job_ended_is_remembered_and_an_alert_says_it(c, s, plugin, a):
    alerts = await alerts_of(c, s)
    with pytest.raises(ZeroDivisionError):
        async with slaq.job("failed", client=c, owner="ann") as job:
            [job.report(loss) for loss in curve(5)]
            await reported(c, "failed", 5)
            raise ZeroDivisionError
    with pytest.raises(StopTraining):
        async with slaq.job("stopped", client=c, owner="ann") as job:
            [job.report(loss) for loss in curve(5)]
            await reported(c, "stopped", 5)
            await job.stop()
            await until(lambda: asked_to_stop(job))
            job.report(0.1)
    other = await another_client(s)
    async with slaq.job("lost", client=other, owner="ann") as job:
        [job.report(loss) for loss in curve(40)]
        await reported(c, "lost", 40)
        await other.close()
        await until(lambda: not inside(plugin).reports)
    await train(c, "done", curve(5), owner="ann")
    runs = {run.job: run for run in inside(plugin).past_runs}
    assert {name: (run.outcome, run.iterations) for name, run in runs.items()} == {
        "failed": ("failed", 5), "stopped": ("stopped", 6), "lost": ("failed", 40),
        "done": ("done", 5),
    }  # fmt: skip
    assert runs["done"].loss.tolist() == curve(5)
    await until(lambda: alerts[-1]["event"] == "done")
    ends = {(x["event"], x["job"], x["owner"]) for x in alerts if x["event"] != "audit"}
    assert ends == {(name, name, "ann") for name in runs}


@with_plugin([1])
async def test_a_kind_that_a_user_states(c, s, plugin, a):
    await train(c, "one", curve(5), kind={"name": "resnet", "lr": 0.01})
    (run,) = inside(plugin).past_runs
    assert run.kind == Kind("resnet", (("lr", -2.0),))
    async with slaq.job("two", client=c, kind="resnet"):
        assert (await slaq.status(c))["jobs"]["two"]["like_runs"] == 1
    with pytest.raises(InvalidSetting, match="must have a name"):
        slaq.job("x", kind={"lr": 1.0})
    with pytest.raises(InvalidSetting, match="finite number >= 0"):
        await request(c, "slaq_open", name="x", kind={"name": "a", "lr": -1})
    assert not inside(plugin).reports


@with_plugin([1])
async def test_a_kind_that_a_fit_tells_comes_with_its_first_report(c, s, plugin, a):
    async def fit(name, told, **settings):
        async with slaq.job(name, client=c, **settings) as job:
            [job.report(loss) for loss in curve(3)]
            describe({"name": told, "rows": 100})
            describe({"name": "another fit of this block"})
            [job.report(loss) for loss in curve(9)[3:]]
            await reported(c, name, 9)
            return (await slaq.status(c))["jobs"][name]

    assert (await fit("one", "lib.Net"))["kind"] == "lib.Net"
    found = await fit("two", "lib.Net")
    assert (found["kind"], found["like_runs"]) == ("lib.Net", 1)
    assert (await fit("three", "lib.Net", kind="mine"))["kind"] == "mine"
    runs = {run.job: run for run in inside(plugin).past_runs}
    assert runs["two"].loss.tolist() == curve(9) and runs["three"].kind == Kind("mine")


@contextlib.asynccontextmanager
async def restarting(path):
    """Schedulers one after the other on one store, each with a client and the plugin."""
    async with Scheduler(dashboard=False, dashboard_address=":0", port=0) as scheduler:
        client = await another_client(scheduler)
        yield client, await start_plugin(client, scheduler, policy="max-total", run_history=path)
    await client._close(fast=True)  # else it waits for the scheduler to come back


@gen_test()
async def test_runs_are_kept_over_the_end_of_the_scheduler(tmp_path):
    path = tmp_path / "runs.db"
    async with restarting(path) as (client, plugin):
        for n in range(3):
            await train(client, f"net-{n}", curve(20, scale=n + 1.0))
        await until(lambda: inside(plugin).store.stored == 3)
        assert [run.job for run in read_runs(path)] == ["net-2", "net-1", "net-0"]  # while it runs
        assert (await slaq.status(client))["run_history"]["stored"] == 3
    (kind,) = read_kinds(path)
    assert (kind.kind, kind.runs, kind.done) == ("net", 3, 3)
    async with restarting(path) as (client, plugin):
        assert len(inside(plugin).past_runs) == 0  # lazily
        async with slaq.job("net-7", client=client):
            assert (await slaq.status(client))["jobs"]["net-7"]["like_runs"] == 3
        async with slaq.job("other", client=client) as job:
            job._describe({"name": "net"})
            while (await slaq.status(client))["jobs"]["other"]["like_runs"] != 3:
                await asyncio.sleep(0.005)
        assert len(inside(plugin).past_runs) == 3  # each once


@gen_test()
async def test_a_file_that_cannot_be_used_does_not_stop_the_scheduler(tmp_path, caplog):
    gone = "no longer in"
    for path, words in (
        *((tmp_path, gone), (tmp_path / "missing" / "runs.db", gone), ("/proc/version", gone)),
        (tmp_path / "text", "it is now text.aside-"),
    ):
        (tmp_path / "text").write_text("no database " * 999)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="dask_slaq"):
            async with restarting(path) as (client, _):
                await train(client, "net", curve(10))
                async with slaq.job("net-2", client=client):
                    assert (await slaq.status(client))["jobs"]["net-2"]["like_runs"] == 1
        lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len([line for line in lines if words in line]) == 1, lines


@gen_test()
async def test_an_error_in_the_memory_touches_no_job(tmp_path, monkeypatch, caplog):
    async with restarting(tmp_path / "runs.db") as (client, plugin):

        def broken(*args, **kwargs):
            raise RuntimeError("broken")

        monkeypatch.setattr("dask_slaq.run_history.RunStore.add", broken)
        for n in range(3):
            assert (await train(client, f"net-{n}", curve(10)))["iteration"] == 10
        assert plugin.failed is None and "broken" in inside(plugin).memory_error
        assert (await slaq.status(client))["run_history"]["failed"] == inside(plugin).memory_error
    assert caplog.text.count("past runs are no longer remembered") == 1


def test_jobs_that_ended_are_known_after_a_restart(tmp_path):
    path, seen = str(tmp_path / "runs.db"), []

    @gen_cluster(client=True, nthreads=[1])
    async def life(c, s, a):
        await start_plugin(c, s, run_history=path)
        async with slaq.job("fit", client=c, owner="ann") as job:
            for loss in (3.0, 2.0, 1.5):
                job.report(loss)
        seen.append(await slaq.ended(c))

    for _ in range(3):
        life()
    assert [len(each) for each in seen] == [1, 2, 3]
    assert seen[2][:2] == seen[1]
    ends = {(each["job"], each["owner"], each["event"]) for each in seen[2]}
    assert ends == {("fit", "ann", "done")}
    assert "within a day" in ended_table(seen[2], started=time())


@pytest.mark.slow
def test_a_program_that_ends_without_closing_its_cluster_says_nothing(tmp_path):
    program = f"""
import dask_slaq as slaq
from distributed import Client, LocalCluster
client = Client(LocalCluster(n_workers=1, processes=False, dashboard_address=None))
client.register_plugin(slaq.SlaqPlugin(run_history={str(tmp_path / "runs.db")!r}))
with slaq.job("fit") as job:
    for k in range(12):
        job.report(1 / (k + 1))
"""
    done = python(program)
    assert "cannot schedule" not in done.stderr and "Plugin call failed" not in done.stderr
    assert [run.job for run in read_runs(tmp_path / "runs.db")] == ["fit"]
