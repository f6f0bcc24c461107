"""Trials of searches on real workers: who trains, who waits, and what people see of it."""

import asyncio
import time
from pathlib import Path

import pytest
from distributed import Event, Worker, as_completed, secede
from distributed.utils_test import captured_logger
from driving import (
    Fixed,
    alerts_of,
    assert_nothing_left,
    gen_cluster,
    in_job,
    inside,
    let_end,
    until,
    wait_for,
    warn_again,
    with_plugin,
)
from moving import descend

import dask_slaq as slaq
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, SlaqError

STEPS = 30


def train_until_stopped(offset: float) -> tuple[str, int]:
    for k in range(10_000):
        time.sleep(0.002)
        try:
            slaq.report(offset + 1 / (k + 1))
        except slaq.TrialPruned:
            return "pruned", k
        except slaq.StopTraining:
            return "stopped", k
    return "done", k


def report_once(loss):
    slaq.report(loss)
    return loss


@with_plugin([1, 1])
async def test_models_with_keys_of_their_own_go_where_a_thread_is_free(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = [c.submit(descend, k, key=f"rate={k}") for k in range(12)]
        trials = inside(plugin).trials("grid")
        await until(lambda: len(trials.alive) >= 2)
        # Dask alone would send all of them at once.
        assert sum(len(ws.processing) for ws in s.workers.values()) <= len(trials.alive) + 4
        assert await c.gather(futures) == list(range(12))


@with_plugin([1, 1])
async def test_the_best_models_are_ready_first_and_all_results_are_the_same(c, s, plugin, a, b):
    offsets = [8, 3, 9, 5, 0, 7, 2, 6, 1, 4]
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = c.map(descend, offsets, pure=False)
    order = [result async for _, result in as_completed(futures, with_results=True)]
    assert sorted(order) == sorted(offsets)
    assert 0 in order[:3] and sum(order[:4]) < sum(order[-4:])
    trials = await search.trials()
    assert {(t["state"], t["iteration"]) for t in trials} == {("done", STEPS)}
    assert sum(t["waited"] for t in trials) > sum(t["computed"] for t in trials)
    assert sorted(t["loss"] for t in trials) == [o + 1 / STEPS for o in sorted(offsets)]
    await until(lambda: not inside(plugin).searches)
    assert_nothing_left(s, plugin)
    seconds = sum(usage.core_seconds for usage in inside(plugin).accounts.totals.values())
    assert seconds >= 0.005 * STEPS * len(offsets)


@with_plugin([1, 1])
async def test_no_more_trials_train_than_there_are_threads(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = c.map(descend, range(12), pure=False)
        seen = set()
        while not all(future.done() for future in futures):
            for ws in s.workers.values():
                seen.add(len(ws.processing) - len(ws.long_running))
            states = [t["state"] for t in await search.trials()]
            assert states.count("training") <= 4  # two, and two that have just been sent for
            s.validate_state()
    # As under plain Dask one runs and one waits on the worker, and a third may be about to go on.
    assert max(seen) <= 3
    await c.gather(futures)


@with_plugin([1, 1])
async def test_pause_resume_and_stop(c, s, plugin, a, b):
    async with slaq.search("grid", client=c) as search:
        futures = c.map(train_until_stopped, range(6), pure=False)
        running = inside(plugin).search("grid")
        await until(lambda: running.trials.waiting)
        await slaq.pause("grid", client=c)
        await until(lambda: not running.training and not running.begun)
        assert (await slaq.explain("grid", client=c))["state"] == "paused"
        # Dask's profiler would look at the stack of each, a hundred times a second.
        await until(lambda: not (a.active_threads or b.active_threads))
        before = [t["iteration"] for t in await search.trials()]
        await asyncio.sleep(0.1)
        assert [t["iteration"] for t in await search.trials()] == before
        await slaq.unpause("grid", client=c)
        await until(lambda: running.training)
        await slaq.stop("grid", client=c)
        results = await c.gather(futures)
    assert {why for why, _ in results} == {"stopped"}


@with_plugin([1, 1], lend=False)
async def test_a_cap_and_a_search_that_is_left_alone(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, max_share=1):
        futures = c.map(descend, range(4), pure=False)
    await until(lambda: len(inside(plugin).trials("grid")) > 1)
    assert await c.gather(futures) == list(range(4))


@with_plugin([1])
async def test_bad_reports_and_settings(c, s, plugin, a):
    async with slaq.search("grid", client=c) as search:
        with pytest.raises(NonFiniteLoss, match="'low'"):
            await c.submit(report_once, "low")
        with pytest.raises(DuplicateJob):
            await slaq.search("grid", client=c).__aenter__()
        with pytest.raises(SlaqError, match="in its task"):
            search.report(1.0)
    for name, wrong in (
        *(("goal", [3]), ("steps", [0]), ("prune", [1, {"slack": -1}]), ("max_waiting", [-1])),
        *(
            ("group", [3, ""]),
            ("reattach", ["yes"]),
            ("silent", [0, "soon"]),
            ("states", [3, "", "s4://bucket/runs"]),
        ),
    ):
        for value in wrong:
            with pytest.raises(InvalidSetting, match=name):
                slaq.search("grid", **{name: value})
    for right in (Path("runs"), "simplecache::s3://bucket/runs"):
        slaq.search("grid", states=right)
    with pytest.raises(SlaqError, match="has not begun"):
        slaq.search("other", client=c).trials()


@gen_cluster(client=True, nthreads=[1])
async def test_outside_of_a_search_and_without_the_plugin_a_report_returns_at_once(c, s, a):
    warn_again()
    with captured_logger("dask_slaq") as log:
        assert await c.gather(c.map(report_once, [1.0, 2.0], pure=False)) == [1.0, 2.0]
        assert log.getvalue().count("belongs to no search") == 1
        async with slaq.search("grid", client=c) as search:
            assert await c.submit(report_once, 3.0) == 3.0
    assert await search.trials() == []


@with_plugin([1])
async def test_a_search_is_a_job_to_everybody_else(c, s, plugin, a):
    async with slaq.search("grid", client=c, weight=2, owner="ann", steps=STEPS):
        futures = c.map(descend, [1, 0, 2], pure=False)
        await until(lambda: inside(plugin).trials("grid").waiting)
        status = (await slaq.status(c))["jobs"]["grid"]
        assert (status["weight"], status["owner"], status["max_iter"]) == (2, "ann", 3 * STEPS)
        assert status["iteration"] > 0 and status["reason"].startswith("search: ")
        explained = await slaq.explain("grid", client=c)
        assert " in their report" in explained["text"] or " in its report" in explained["text"]
        await slaq.change("grid", weight=3, client=c)
        await c.gather(futures)
    await until(lambda: not inside(plugin).searches)
    assert (await slaq.status(c))["owners"]["ann"]["finished_jobs"] == 1


@with_plugin([1], policy=Fixed(other=(1.0, 1.0)), epoch="50ms")
async def test_a_search_whose_models_wait_is_waiting(c, s, plugin, a):
    def train_long():
        while not Event("enough").is_set():
            slaq.report(1.0)

    async with slaq.job("other", client=c), slaq.search("grid", client=c):
        future = c.submit(train_long)
        running = inside(plugin).search("grid")
        await until(lambda: running.trials.alive)
        held = in_job(c, "other").map(wait_for, ["go"] * 2, range(2), pure=False)
        await until(lambda: running.trials.waiting and inside(plugin).pool("other").running)
        found = (await slaq.status(c))["jobs"]["grid"]
        why = "search: 0 done, 1 waits in its report"
        assert (found["state"], found["reason"]) == ("waiting", why)
        await Event("enough").set()
        await let_end(c, [*held, future])


@with_plugin([1])
async def test_tasks_of_a_coroutine_or_without_a_thread_never_wait(c, s, plugin, a):
    async def coroutine(offset):
        for k in range(12):
            await asyncio.sleep(0.005)
            slaq.report(offset + 1 / (k + 1))
        return offset

    def seceded(offset):
        secede()
        return descend(offset, 12)

    async with slaq.search("grid", client=c) as search:
        futures = [c.submit(f, i, pure=False) for f in (coroutine, seceded) for i in range(3)]
        assert await c.gather(futures) == [0, 1, 2] * 2
        assert sum(t["waited"] for t in await search.trials()) == 0


@with_plugin([])
async def test_trials_of_a_search_whose_workers_come_later(c, s, plugin):
    async with slaq.search("grid", client=c) as search:
        futures = c.map(descend, [1, 0], pure=False)
        assert {t["state"] for t in await search.trials()} <= {"pending"}
        async with Worker(s.address, nthreads=1):
            assert await c.gather(futures) == [1, 0]


def test_blocks_of_one_name_follow_each_other(local_client):
    local_client.register_plugin(slaq.SlaqPlugin())
    for k in range(10):
        with slaq.search("grid"):
            assert local_client.submit(int, k, pure=False).result() == k


@with_plugin([1], policy="none")
async def test_nothing_waits_under_the_policy_none(c, s, plugin, a):
    async with slaq.search("grid", client=c) as search:
        futures = c.map(descend, [2, 1, 0], pure=False)
        assert await c.gather(futures) == [2, 1, 0]
    assert [t["waited"] for t in await search.trials()] == [0, 0, 0]


@with_plugin([1, 1])
async def test_a_model_that_fails_before_its_first_report_has_a_row(c, s, plugin, a, b):
    def fails_at_once(k):
        slaq.report("no loss" if k % 3 == 0 else 1.0)
        return k

    async with slaq.search("grid", client=c) as search:
        futures = c.map(fails_at_once, range(9), pure=False)
        await until(lambda: all(future.done() for future in futures))
        states = sorted(trial["state"] for trial in await search.trials())
    assert states == ["done"] * 6 + ["failed"] * 3


@with_plugin([1, 1])
async def test_what_models_that_ended_early_leave_out_is_not_expected(c, s, plugin, a, b):
    def train_or_fail(steps):
        for k in range(steps):
            slaq.report(1 / (k + 1))
        if steps < STEPS:
            raise ZeroDivisionError

    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(train_or_fail, [STEPS, 3, 4])
        await until(lambda: all(future.done() for future in futures))
        await until(lambda: inside(plugin).job("grid").max_iter == STEPS + 7)
        assert inside(plugin).job("grid").iteration == STEPS + 7
        assert (await slaq.explain("grid", client=c))["reason"] == "search: 1 done, 2 failed"


@with_plugin([1])
async def test_a_search_that_was_stopped_has_not_ended_as_done(c, s, plugin, a):
    seen = await alerts_of(c, s)
    async with slaq.search("grid", client=c):
        futures = c.map(train_until_stopped, range(3), pure=False)
        await until(lambda: inside(plugin).reports["grid"] > 2)
        await slaq.stop("grid", client=c)
        await c.gather(futures)
    await until(lambda: not inside(plugin).reports)
    await until(lambda: {each["event"] for each in seen if each["job"] == "grid"} - {"audit"})
    assert {each["event"] for each in seen if each["job"] == "grid"} <= {"stopped", "audit"}
    ((_, usage),) = [(o, u) for o, u in inside(plugin).accounts.totals.items() if u.stopped]
    assert usage.done == 0


def train_and_finish(seconds: float) -> None:
    slaq.report(1.0)
    time.sleep(seconds)


@with_plugin([1])
async def test_what_a_model_computes_after_its_last_report_is_charged(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=STEPS):
        await c.gather(c.map(train_and_finish, [0.3], pure=False))
        await c.gather(c.map(train_and_finish, [0.0], pure=False))
    (seconds,) = (usage.core_seconds for usage in inside(plugin).accounts.totals.values())
    assert 0.25 <= seconds < 0.9  # clocks differ by a little


def begin_again(named: bool, report=slaq.report) -> None:
    """Reports of a learning-rate finder, or of a training that ran out of memory; then others."""
    for k in range(5):
        report(-(10.0**k), **({"step": k} if named else {}))
    for k in range(8):
        report(1 / (k + 1), **({"step": k} if named or not k else {}))


@pytest.mark.parametrize("named", [True, False])
@with_plugin([1])
async def test_a_model_that_begins_again_has_one_new_curve(c, s, plugin, a, named):
    async with slaq.search("grid", client=c, steps=8) as search:
        await c.submit(begin_again, named)
    (row,) = await search.trials()
    assert (row["iteration"], row["loss"], row["lowest"], row["state"]) == (8, 1 / 8, 1 / 8, "done")
    assert (await search.curves()).values.tolist() == [[1 / (k + 1) for k in range(8)]]

    async with slaq.job("alone", client=c) as job:
        begin_again(named, job.report)
        await until(lambda: inside(plugin).job("alone").iteration == 8)
        assert (inside(plugin).job("alone").loss, job.iteration) == (1 / 8, 8)


@with_plugin([1])
async def test_a_model_with_a_clock_of_its_own_adds_what_it_has_waited(c, s, plugin, a):
    def train_for(seconds):
        begin, steps = time.monotonic(), 0
        while time.monotonic() < begin + seconds + slaq.waited():
            time.sleep(0.02)
            steps += 1
            slaq.report(1 / steps)
        return steps

    async with slaq.search("grid", client=c) as search:
        await c.gather(c.map(train_for, [0.2] * 6, pure=False))
    computed = sorted(row["computed"] for row in await search.trials())
    assert computed[1] >= 0.17  # a busy machine may have kept one between two reports
    assert max(row["waited"] for row in await search.trials()) > 0.2
    assert slaq.waited() == 0.0


@with_plugin([1])
async def test_tasks_may_close_over_their_search(c, s, plugin, a):
    async with slaq.search("grid", client=c) as search:
        futures = search.map(lambda loss: search.report(loss), [1.0, 2.0])
        await c.gather(futures)
        with pytest.raises(AttributeError, match="only has report"):
            await c.submit(lambda: search.trials())
        with pytest.raises(SlaqError, match=r"use slaq\.report in tasks"):
            search.map(lambda loss: c.submit(abs, loss), [1.0])
    assert [row["loss"] for row in await search.trials() if row["iteration"]] == [1.0, 2.0]
