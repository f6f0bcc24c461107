"""Callbacks of a search: every model begins, reports each step, and ends, in this order."""

import logging
import threading
import time
from collections import defaultdict

import pytest
from distributed import Event, Status, wait
from driving import ONE, TWO, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.trials import Events

STEPS = 10
GRID = [{"offset": float(offset)} for offset in (3, 0, 2, 1)]


def train(params, steps=STEPS):
    for k in range(steps):
        slaq.report({"loss": params["offset"] + 1 / (k + 1), "auc": k / steps})
    if params.get("fails"):
        raise ValueError("no luck with this model")
    return params["offset"]


def by_model(events):
    found = defaultdict(list)
    for event in events:
        found[event["key"]].append(event)
    return found


@with_plugin(TWO)
async def test_events_tell_all_of_every_model(c, s, plugin, a, b):
    events, threads = [], set()

    def callback(event):
        events.append(event)
        threads.add(threading.current_thread())

    before = time.time()
    async with slaq.search("grid", client=c, steps=STEPS, callbacks=callback) as search:
        futures = search.map(train, [*GRID, {"offset": 4.0, "fails": True}])
        await wait(futures)
    # At the end of the block, all of them have been told.
    models = by_model(events)
    assert models.keys() == {future.key for future in futures}
    for future, params in zip(futures, [*GRID, {"offset": 4.0, "fails": True}], strict=True):
        begin, *reports, end = models[future.key]
        assert (begin["event"], end["event"]) == ("begin", "end")
        assert [r["event"] for r in reports] == ["report"] * STEPS
        assert [(r["step"], r["loss"], r["metrics"]) for r in reports] == [
            (k + 1, params["offset"] + 1 / (k + 1), {"auc": k / STEPS}) for k in range(STEPS)
        ]
        assert (end["step"], end["loss"]) == (STEPS, params["offset"] + 1 / STEPS)
        assert end["metrics"] == {"auc": 0.9}
        assert end["state"] == ("failed" if "fails" in params else "done")
        assert ("no luck" in end["error"]) == ("fails" in params)
        for event in models[future.key]:
            assert event["params"] == params and event["job"] == "grid"
            assert before - 1 <= event["time"] <= time.time() + 1
            assert event["worker"] in (a.address, b.address)
    (thread,) = threads
    assert thread is not threading.main_thread()
    await until(lambda: not thread.is_alive())
    assert not plugin.searches.tables._events


@with_plugin(ONE)
async def test_scores_are_told_as_they_are_and_pruned_models_end(c, s, plugin, a):
    def climb(top):
        for k in range(40):
            time.sleep(0.002)
            slaq.report(top * (1 - 0.8**k))

    events = []
    settings = {"maximize": True, "prune": {"patience": 4, "slack": 0}, "steps": 40}
    search = slaq.search("scores", client=c, callbacks=[events.append], **settings)
    async with search:
        futures = [c.submit(climb, 10.0), *(c.submit(climb, top) for top in (1.0, 0.9, 0.8, 0.7))]
        await wait(futures)
    ends = [event for event in events if event["event"] == "end"]
    pruned = [event["key"] for event in events if event["event"] == "pruned"]
    assert pruned and pruned == [event["key"] for event in ends if event["state"] == "pruned"]
    rows = {row["key"]: row for row in await search.trials()}
    assert {event["key"]: event["loss"] for event in ends} == {
        key: row["loss"] for key, row in rows.items()
    }


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
@with_plugin(ONE)
async def test_errors_of_callbacks_are_logged_once_and_training_goes_on(
    c, s, plugin, a, error, caplog
):
    def broken(event):
        event.clear()
        raise error("the tracker is down")

    events = []
    with caplog.at_level(logging.WARNING, logger="dask_slaq.client.callbacks"):
        async with slaq.search("grid", client=c, callbacks=[broken, events.append]) as search:
            assert await c.gather(search.map(train, GRID)) == [p["offset"] for p in GRID]
    assert len([r for r in caplog.records if r.name.endswith(".callbacks")]) == 1
    assert "the tracker is down" in caplog.text
    assert len(events) == len(GRID) * (STEPS + 2)


@with_plugin(ONE)
async def test_slow_callbacks_miss_reports_and_nothing_else(c, s, plugin, a, caplog, monkeypatch):
    monkeypatch.setattr(Events.__init__, "__defaults__", (20,))
    called, may_go, events = threading.Event(), threading.Event(), []

    def slow(event):
        called.set()
        may_go.wait(30)
        events.append(event)

    async with slaq.search("grid", client=c, callbacks=slow) as search:
        first = c.submit(train, {"offset": 9.0}, 1)
        await first
        await until(called.is_set)
        await c.gather(search.map(train, GRID))
        may_go.set()
    kinds = [event["event"] for event in events]
    assert kinds.count("begin") == kinds.count("end") == 5
    assert kinds.count("report") < 1 + 4 * STEPS
    assert "miss some reports" in caplog.text


@with_plugin(ONE)
async def test_nothing_is_kept_for_those_who_do_not_listen(c, s, plugin, a):
    async with slaq.search("grid", client=c) as search:
        assert not plugin.searches.tables._events
        await c.gather(search.map(train, GRID))
        assert plugin.searches.running["grid"].trials._events is None
        told = await c.scheduler.slaq_events(run=search._run, after=0)
        assert not told["events"] and told["over"]


@with_plugin(ONE)
async def test_events_go_on_after_the_block(c, s, plugin, a):
    events = []
    async with slaq.search("grid", client=c, callbacks=events.append) as search:
        futures = search.map(train, GRID)
    await wait(futures)
    await until(lambda: [e["event"] for e in events].count("end") == len(GRID))
    assert len(events) == len(GRID) * (STEPS + 2)


@with_plugin(ONE)
async def test_models_end_for_callbacks_when_the_plugin_fails(c, s, plugin, a):
    events = []
    async with slaq.search("grid", client=c, callbacks=events.append) as search:
        gate = Event("gate", client=c)
        futures = search.map(report_and_wait, [1.0])
        await until(lambda: plugin.searches.running["grid"].trials.alive)
        plugin.fall_back(RuntimeError("for a test"))
        await gate.set()
        assert await c.gather(futures) == [1.0]
    assert [event["event"] for event in events] == ["begin", "report", "end"]
    assert events[-1]["state"] == "dropped"


@with_plugin(TWO)
async def test_a_model_that_begins_again_after_its_end_is_one_run_with_one_curve(
    c, s, plugin, a, b
):
    def fail_first(fails):
        for k in range(6):
            slaq.report(1 / (k + 1))
            assert not fails or k < 3 or Event("well").is_set()

    events = []
    async with slaq.search("grid", client=c, callbacks=events.append):
        failed, lost = futures = c.map(fail_first, [True, False])
        await wait(futures)
        await Event("well").set()
        await (a if s.tasks[lost.key].who_has == {s.workers[a.address]} else b).close()
        await c.retry([failed])
        await wait(futures)
    for some in by_model(events).values():
        assert [e["event"] for e in some if e["event"] != "report"] == ["begin", "end"] * 2
        assert [e["step"] for e in some if e["event"] == "report"] == list(range(1, 7))
        assert len({e["model"] for e in some}) == 1
    assert len({e["model"] for e in events}) == 2


def report_and_wait(loss):
    slaq.report(loss)
    Event("gate").wait()
    slaq.report(loss / 2)
    return loss


@pytest.mark.parametrize("kept", [True, False])
@with_plugin(TWO, worker_kwargs={"memory_limit": 0})  # so that it stays paused
async def test_models_whose_worker_leaves_move_or_begin_again(c, s, plugin, a, b, kept):
    def train_on(offset):
        step = slaq.resume() or 0
        while step < 30:
            time.sleep(0.02)
            step += 1
            slaq.report(offset + 1 / step, **({"state": step} if kept else {}))

    events = []
    async with slaq.search("grid", client=c, steps=30, callbacks=events.append) as search:
        futures = search.map(train_on, [0.0, 1.0])
        trials = plugin.searches.running["grid"].trials
        here = lambda: [t for t in trials.alive.values() if t.worker == a.address]  # noqa: E731
        await until(lambda: any(t.reports > 2 for t in here()))
        if kept:
            a.status = Status.paused  # its models leave it
        else:
            await a.close()
        await wait(futures)
    for some in by_model(events).values():
        kinds = [event["event"] for event in some]
        assert kinds[0] == "begin" and kinds[-1] == "end"
        assert some[-1]["state"] == "done"
        left = some[0]["worker"] == a.address and some[-1]["worker"] == b.address
        assert kinds.count("begin") == kinds.count("end") == 1
        assert ("moved" in kinds) == left
        steps = [event["step"] for event in some if event["event"] == "report"]
        assert steps == list(range(1, 31))
    assert any(event["event"] == "moved" for event in events)


def test_callbacks_are_checked():
    for wrong in (3, [print, "x"]):
        with pytest.raises(InvalidSetting, match="callbacks must be functions"):
            slaq.search("grid", callbacks=wrong)
