"""Who changed what is recorded; clients can lift no limit that the scheduler's machine sets."""

import sqlite3

import dask
import pytest
from click.testing import CliRunner
from distributed.utils_test import captured_logger
from driving import alerts_of, gen_cluster, start_plugin, until, with_plugin

import dask_slaq as slaq
from dask_slaq.cli.look_commands import _audit
from dask_slaq.cli.main import slaq as command
from dask_slaq.core.errors import NoPlugin, NotAllowed, UnknownJob
from dask_slaq.core.settings import AUDIT_TOPIC
from dask_slaq.run_history import RunStore, read_audit, rows


async def told(client):
    return [event for _, event in await client.get_events(AUDIT_TOPIC)]


async def of_machine(scheduler, **settings):
    """A plugin that is registered on the machine of the scheduler."""
    plugin = slaq.SlaqPlugin(**settings)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin, name="slaq")
    return plugin


@with_plugin([1], operators=["root"])
async def test_changes_and_refusals_are_a_line_each(c, s, plugin, a):
    alerts = await alerts_of(c, s)
    with captured_logger("distributed.core") as of_dask, captured_logger("dask_slaq") as log:
        async with slaq.job("a", client=c, owner="ann"):
            await slaq.change("a", weight=2, client=c)
            with dask.config.set({"slaq.owner": "eve"}), pytest.raises(NotAllowed):
                await slaq.set_policy("fair", client=c)
            with pytest.raises(UnknownJob):
                await slaq.pause("b", client=c)
        with pytest.raises(UnknownJob):
            await slaq.explain("b", client=c)
    assert not of_dask.getvalue() and "Traceback" not in log.getvalue()
    first, second, third = await told(c)
    assert (first["what"], first["refused"], first["job"]) == ("set job 'a' weight=2", None, "a")
    assert (second["by"], second["what"]) == ("eve", "decide by 'fair'")
    assert "only operators may" in second["refused"]
    assert "no job named 'b'" in third["refused"]
    assert "://" in first["where"]
    await until(lambda: sum(alert["event"] == "audit" for alert in alerts) == 3)
    assert all(log.getvalue().count(e["message"]) == 1 for e in (second, third))


@gen_cluster(client=True, nthreads=[1])
async def test_the_limits_of_the_machine_hold_for_what_a_client_registers(c, s, a):
    machine = await of_machine(s, owners={"ann": {"max-threads": 1}}, operators=["root"])
    await c.unregister_scheduler_plugin("slaq")
    mine = await start_plugin(c, s, policy="fair", owners={"ann": {"weight": 9}}, operators=["ann"])
    assert mine.settings.policy == "fair"
    assert mine.settings.owners == machine.settings.owners
    assert mine.settings.operators == ("root",)
    again = await start_plugin(c, s, policy="las", operators=["ann"])
    assert again.settings.operators == ("root",)
    assert [event["what"] for event in await told(c)] == [
        "unregister SlaqPlugin",
        "register SlaqPlugin with policy fair",
        "register SlaqPlugin with policy las",
    ]


@gen_cluster(client=True, nthreads=[1])
async def test_the_audit_is_told_after_the_plugin_was_unregistered(c, s, a):
    with pytest.raises(NoPlugin):
        await _audit(c)
    await start_plugin(c, s)
    await c.unregister_scheduler_plugin("slaq")
    await c.log_event(AUDIT_TOPIC, 1)
    assert [event["what"] for event in await _audit(c)] == ["unregister SlaqPlugin"]


@gen_cluster(client=True, nthreads=[1])
async def test_a_locked_plugin_stays(c, s, a):
    machine = await of_machine(s, lock=True)
    with pytest.raises(NotAllowed, match="lock"):
        await c.unregister_scheduler_plugin("slaq")
    with pytest.raises(NotAllowed, match="lock"):
        await c.register_plugin(slaq.SlaqPlugin())
    assert s.plugins["slaq"] is machine
    assert all(event["refused"] for event in await told(c))
    async with slaq.job("a", client=c):
        assert (await slaq.status(c))["jobs"]


@with_plugin([1])
async def test_what_a_client_says_stays_in_its_line(c, s, plugin, a):
    hostile = {"job": "b\nx" * 999, "what": "pause\nroot asked", "client": c.id, "by": "eve\nann"}
    with captured_logger("dask_slaq") as log, pytest.raises(UnknownJob):
        await c.scheduler.slaq_steer(**hostile)
    (event,) = await told(c)
    assert "\n" not in event["message"] + event["by"] + event["job"]
    assert len(event["message"]) < 999
    assert log.getvalue().count("\n") == 1


def test_the_audit_goes_on_with_the_next_scheduler(tmp_path):
    path, lives = str(tmp_path / "runs.db"), []

    @gen_cluster(client=True, nthreads=[1])
    async def life(c, s, a):
        await start_plugin(c, s, run_history=path)
        async with slaq.job("a", client=c, owner="ann"):
            await slaq.change("a", weight=2 + len(lives), client=c)
        with pytest.raises(UnknownJob):
            await slaq.pause("é" * 99, client=c)
        lives.append([event["what"] for event in await told(c)])
        found = await c.scheduler.slaq_audit()
        assert [event["what"] for event in found] == [what for life in lives for what in life]
        assert len(lives[-1]) == 2

    for _ in range(3):
        life()
    assert len(read_audit(path)) == 6
    found = CliRunner().invoke(command, ["audit", path])
    assert found.exit_code == 0 and "weight=4: done" in found.output
    assert found.output.count("\n") == 6


def test_the_kept_audit_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setitem(rows.MOST_LINES, "audit", 20)
    store = RunStore(tmp_path / "runs.db")
    for number in range(100):
        store.add_event("audit", {"at": number, "message": "m\ud800"})
    assert store.flush()
    store.close()
    assert [event["at"] for event in read_audit(tmp_path / "runs.db")] == list(range(80, 100))
    assert [event["message"] for event in store.events("audit")] == ["m\ud800"] * 20
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("UPDATE audit SET event = '[' WHERE number = 90")
    assert len(read_audit(tmp_path / "runs.db")) == 19
