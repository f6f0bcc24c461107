"""The journal is bounded and robust, and replaying it gives the same decisions."""

import json
import logging
import os

import numpy as np
import pytest
from distributed import Event
from distributed.utils_test import captured_logger
from driving import (
    HELD,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording.recorder import CALLS
from dask_slaq.core.recording.replay import replay
from dask_slaq.scheduler.event_log import Journal

START = {"event": "start", "version": 1, "policy": "fair"}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, *events, files=2):
    """Record events in a journal, and close it."""
    journal = Journal(str(path), 10_000, files)
    for event in events:
        journal.write(event)
    journal.close()
    return journal


def test_events_are_lines_of_json(tmp_path):
    path, report = tmp_path / "slaq.jsonl", {"event": "report", "job": "ü", "loss": 0.1 + 0.2}
    odd = {"event": "x", "n": np.int64(3), "f": np.float32(0.5), "b": np.bool_(True)}
    write(path, START, report, odd).write({"event": "leave"})  # after it was closed
    assert read(path) == [START, report, {"event": "x", "n": 3, "f": 0.5, "b": True}]


def test_a_journal_is_bounded_and_each_file_begins_with_the_start(tmp_path):
    many = [{"event": "report", "job": "a", "loss": k} for k in range(2000)]
    write(tmp_path / "slaq.jsonl", START, *many, files=3)
    assert sorted(os.listdir(tmp_path)) == ["slaq.jsonl", "slaq.jsonl.1", "slaq.jsonl.2"]
    found = []
    for name in ("slaq.jsonl.2", "slaq.jsonl.1", "slaq.jsonl"):
        assert (tmp_path / name).stat().st_size <= 10_200
        first, *rest = read(tmp_path / name)
        assert first == {**START, "continued": True}
        found += [event["loss"] for event in rest]
    assert found == list(range(found[0], 2000))


def test_what_json_does_not_have_is_left_out_and_said_once(tmp_path, caplog):
    loop = {"event": "report"}
    loop["self"] = loop
    bad = [{"event": "arrive", "job": b"a" * 10_000}, {"event": "tasks", (1,): 2}, loop]
    with caplog.at_level(logging.WARNING):
        journal = write(tmp_path / "slaq.jsonl", START, *bad, {"event": "leave"})
    dropped = [{"event": "dropped", "kind": kind} for kind in ("arrive", "tasks", "report")]
    assert read(tmp_path / "slaq.jsonl") == [START, *dropped, {"event": "leave"}]
    assert (journal.failed, journal.dropped) == (None, 3)
    (record,) = caplog.records
    assert "bytes is not JSON serializable" in record.message and len(record.message) < 1_000


def test_a_recording_begins_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "slaq.jsonl"
    path.write_text('{"event":"rep')
    write(path)
    assert path.read_text() == '{"event":"rep'
    write(path, START)
    first, *rest = path.read_text().splitlines()
    assert (first, [json.loads(line) for line in rest]) == ('{"event":"rep', [START])


def test_a_file_that_was_full_before_does_not_begin_twice(tmp_path):
    path = tmp_path / "slaq.jsonl"
    path.write_text("x" * 10_000)
    write(path, START)
    assert read(path) == [START]


def test_events_that_come_faster_than_they_are_written_end_it_too(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("dask_slaq.scheduler.event_log.MOST_WAITING_EVENTS", 5)
    journal = Journal(str(tmp_path / "slaq.jsonl"), 10_000, 2)
    with journal._lines.lock, caplog.at_level(logging.ERROR):  # the disk hangs
        for _ in range(50):
            journal.write(START)
    journal.close()
    assert journal.failed.startswith("BufferError") and len(caplog.records) == 1


@gen_cluster(client=True)
async def test_a_log_that_cannot_be_written_is_told_at_registration(c, s, a, b):
    await start_plugin(c, s)
    with pytest.raises(InvalidSetting, match="nowhere"):
        await start_plugin(c, s, log="/nowhere/slaq.jsonl")
    async with slaq.job("a", client=c) as job:  # the one before goes on
        job.report(1.0)


@gen_cluster(client=True, nthreads=[2, 2, 2])
async def test_a_recorded_cluster_is_replayed_to_the_same_decisions(c, s, *workers, tmp_path):
    path = tmp_path / "slaq.jsonl"
    plugin = await start_plugin(c, s, policy="max-total", log=str(path), reserve=0.2)
    async with jobs(c, "a", "b", weight=2.0, max_iter=12) as (one, two):
        for k in range(8):
            await iterate(c, s, plugin, f"hold-{k}")
            one.report(1.0 / (k + 1))
            two.report(100.0 * 0.5**k)
            await until(lambda k=k: inside(plugin).reports == {"a": k + 1, "b": k + 1})
            if k % 3 == 0:
                inside(plugin).status()
            plugin.run_once()
            if k == 6:
                await one.pause()
                await one.unpause()
                await two.set(weight=3.0)
                await slaq.set_policy("max-total", client=c)
            if k == 7:
                await slaq.set_owner("nobody", weight=2, client=c)
            if k == 4:
                await workers[2].close()
        plugin.run_once()  # which ends the pool of unowned tasks
        held = in_job(c, "of no job").submit(wait_for, "held", pure=False)
        await in_job(c, "of no job").submit(pow, 2, 3, pure=False)
        plugin.run_once()  # one unowned task has ended, and another has not
        await let_end(c, held, "held")
        one.report(0.01)
    async with slaq.job("a", client=c) as again:
        again._describe({"name": "net", "lr": 0.1})
        again.report(1.0)
    plugin.stop()
    events = read(path)
    found = replay(events)
    assert found.difference is None
    assert found.reproduced == found.decisions >= 20
    kinds = [event["event"] for event in events]
    assert kinds.count("report") == 8 + 8 + 1 + 1
    others = {"use", "spare", "reserved", "max_iter"}
    assert {*kinds} == {*CALLS, "start", "decide", "past_run"} - others
    assert sum(e["count"] for e in events if e["event"] == "tasks" and e["job"] == "a") == 8 * 4


async def iterate(client, scheduler, plugin, event):
    """Tasks of two jobs and of none, with a decision while one of each is held."""
    held, rest = [], []
    for job in ("a", "b", "of no job"):
        with tasks_of(job):
            held.append(client.submit(wait_for, event, pure=False))
            rest += client.map(pow, range(3), [2] * 3, pure=False)
    for future in held:
        await state_of(scheduler, future, "processing", *HELD)
    plugin.run_once()
    await Event(event).set()
    await client.gather([*held, *rest])


@gen_cluster(client=True)
async def test_another_plugin_goes_on_in_the_same_file(c, s, a, b, tmp_path):
    path = tmp_path / "slaq.jsonl"
    for name in ("a", "b"):
        await start_plugin(c, s, log=str(path))
        async with slaq.job(name, client=c) as job:
            job.report(1.0)
    await s.close()
    events = read(path)
    kinds = [event["event"] for event in events]
    assert kinds.count("start") == 2 and kinds[-1] in ("leave", "decide")
    assert [event["job"] for event in events if event["event"] == "leave"] == ["a", "b"]
    assert replay(events).difference is None


@gen_cluster(client=True)
async def test_a_job_that_begins_anew_is_replayed(c, s, a, b, tmp_path):
    path = tmp_path / "slaq.jsonl"
    plugin = await start_plugin(c, s, log=str(path))
    async with slaq.job("net", client=c) as job:
        [job.report(1 / (k + 1)) for k in range(40)]
        job.report(1.0, step=0)
        await until(lambda: inside(plugin).reports == {"net": 41})
        plugin.run_once()
    plugin.stop()
    events = read(path)
    assert [event["event"] for event in events].count("arrive") == 2
    found = replay(events)
    assert found.difference is None and found.reproduced == found.decisions


@gen_cluster(client=True)
async def test_a_recording_that_fails_is_said_once_and_disturbs_no_job(c, s, a, b, tmp_path):
    with captured_logger("dask_slaq") as log:
        plugin = await start_plugin(c, s, log=f"{tmp_path}/slaq.jsonl")
        async with slaq.job("a", client=c) as job:
            plugin.journal._lines.stream.close()  # no space is left on the device
            job.report(1.0)
            assert await in_job(c, "a").submit(pow, 2, 3) == 8
            await until(lambda: plugin.journal.failed)
            plugin.run_once()
            assert inside(plugin).status()["jobs"]["a"]["iteration"] == 1
        assert plugin.failed is None
    assert log.getvalue().count("recording to") == 1
