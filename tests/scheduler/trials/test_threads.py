"""Threads never idle while trials wait for them, whatever other tasks need and trials submit."""

import asyncio
import gc
import math
import time
import weakref
from contextlib import suppress
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from distributed import Client, Event, worker_client
from distributed.threadpoolexecutor import secede as leave_pool
from distributed.utils_test import inc, slowinc
from driving import (
    Fixed,
    assert_nothing_left,
    in_job,
    inside,
    let_end,
    map_in_each,
    steal,
    tasks_of,
    until,
    wait_for,
    with_plugin,
)
from moving import descend

import dask_slaq as slaq
from dask_slaq.core.trials import SearchSettings, Trials, TrialState, Turns
from dask_slaq.scheduler.trials.running import PromisedThreads
from dask_slaq.worker.trial_agent import agent_of
from dask_slaq.worker.trial_slot import SlotState

GPU = [("127.0.0.1", 2, {"resources": {"GPU": 1}})] * 2
#: Seconds after which a search counts as stuck. Each of these takes one or two.
STUCK = 15


def train_with_tasks(offset: float, steps: int = 20) -> float:
    for k in range(steps):
        time.sleep(0.005)
        slaq.report(offset + 1 / (k + 1))
        if k % 6 == 5:
            with worker_client() as client:
                assert sum(client.gather(client.map(slowinc, range(4), delay=0.005))) == 10
                slaq.report(offset + 1 / (k + 1.5))
    return offset


@with_plugin(GPU)
async def test_trials_that_hold_a_resource_do_not_wait_for_tasks_that_need_it(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, resources={"GPU": 1}):
        futures = c.map(descend, range(6), pure=False)
    assert await asyncio.wait_for(c.gather(futures), STUCK) == list(range(6))
    async with slaq.job("other", client=c), slaq.search("grid", client=c):  # tasks are held
        others = in_job(c, "other").map(slowinc, range(40), delay=0.01, pure=False)
        futures = c.map(descend, range(6), pure=False, resources={"GPU": 1})
        assert await asyncio.wait_for(c.gather(futures), STUCK) == list(range(6))
        await c.gather(others)


@with_plugin([1, 1])
async def test_trials_do_not_wait_for_tasks_of_another_worker(c, s, plugin, a, b):
    async with slaq.job("other", client=c), slaq.search("grid", client=c):  # tasks are held
        busy = c.submit(wait_for, "go", workers=[a.address])
        mine = c.map(descend, range(3), pure=False, workers=[b.address])
        # Such as a host's, of which one worker is left.
        restricted = c.map(descend, range(4), pure=False, workers=[a.address, "tcp://127.0.0.1:1"])
        await asyncio.wait_for(c.gather(mine), STUCK)
        await let_end(c, [busy, *restricted])


@with_plugin([1, 1])
async def test_tasks_that_were_stolen_take_no_thread_where_they_were(c, s, plugin, a, b):
    async with slaq.search("grid", client=c):
        first = c.submit(descend, 0, steps=2000, workers=[a.address], key="first")
        running = inside(plugin).search("grid")
        await until(lambda: "first" in running.trials.alive)
        moved = c.submit(wait_for, "go", workers=[a.address], key="moved", allow_other_workers=True)
        await until(lambda: "moved" in running.begun)
        ts = s.tasks["moved"]
        steal(s, ts, b)
        await until(lambda: ts.processing_on.address == b.address)
        before = running.trials.alive["first"].reports
        await until(lambda: running.trials.alive["first"].reports > before + 20, STUCK)
        await slaq.stop("grid", client=c)
        await let_end(c, moved)
        with pytest.raises(slaq.StopTraining):
            await first


@with_plugin([1, 1])
async def test_trials_submit_tasks_and_wait_for_them(c, s, plugin, a, b):
    async with slaq.search("grid", client=c), slaq.search("other", client=c):
        futures = c.map(train_with_tasks, range(6), pure=False)
        futures += in_job(c, "grid").map(train_with_tasks, range(6), pure=False)
        assert await asyncio.wait_for(c.gather(futures), STUCK) == [*range(6), *range(6)]
    await until(lambda: not inside(plugin).reports)
    assert_nothing_left(s, plugin)
    s.validate_state()


@with_plugin([1], may_fail=True)
async def test_trials_submit_tasks_after_the_plugin_has_failed(c, s, plugin, a):
    async with slaq.search("grid", client=c):
        futures = c.map(train_with_tasks, range(6), pure=False)
        running = inside(plugin).search("grid")
        alive = running.trials.alive
        await until(lambda: any(t.times.waited and not t.state.waits for t in alive.values()))
        plugin.fall_back(RuntimeError("test"))
        assert await asyncio.wait_for(c.gather(futures), STUCK) == list(range(6))
    s.validate_state()


@with_plugin([1])
async def test_what_is_computed_before_the_first_report_is_charged(c, s, plugin, a):
    def report_late(loss):
        time.sleep(0.1)
        slaq.report(loss)

    async with slaq.search("grid", client=c, owner="ann") as search:
        await c.gather(c.map(report_late, range(3), pure=False))
    assert sum(t["computed"] for t in await search.trials()) >= 0.3
    assert inside(plugin).accounts.totals.of("ann").core_seconds >= 0.3


@with_plugin([1])
async def test_messages_of_a_run_that_was_cancelled_are_dropped(c, s, plugin, a):
    seen = []
    follow = s.stream_handlers["slaq-trial"]
    s.stream_handlers["slaq-trial"] = lambda **message: (seen.append(message), follow(**message))
    async with slaq.search("grid", client=c):
        for _ in range(2):
            future = c.submit(descend, 0, steps=10, key="a")
            await until(lambda: "a" in inside(plugin).trials("grid").alive)
            old = list(seen)
            await future.cancel()
            await until(lambda: "a" not in s.tasks)
            with tasks_of(None):  # its result comes after the news that the key was cancelled
                await c.submit(slowinc, 1, delay=0.001, pure=False)
            seen.clear()
        future = c.submit(wait_for, "go", key="a")
        await until(lambda: "a" in inside(plugin).search("grid").begun)
        for message in old:
            follow(**{**message, "what": "waits"})
        assert not inside(plugin).trials("grid")
        assert not s.workers[a.address].long_running
        await let_end(c, future)


def test_a_desk_does_not_keep_its_worker():
    # Dask keeps a worker that closed for a while, so not a real one.
    class Worker(SimpleNamespace):
        __hash__ = object.__hash__

    worker = Worker(stream_handlers={}, plugin_add=None, loop=Mock())
    known = weakref.ref(worker)
    assert agent_of(worker) is agent_of(worker)
    del worker
    gc.collect()
    assert known() is None


@with_plugin([1], policy=Fixed(one=(0.0, 0.0), two=(0.0, 0.0)), epoch="50ms")
async def test_a_thread_that_no_search_is_due_is_lent(c, s, plugin, a):
    async with slaq.search("one", client=c), slaq.search("two", client=c):
        futures = map_in_each(c, ("one", "two"), descend, range(3))
        assert await asyncio.wait_for(c.gather(futures), STUCK) == [*range(3)] * 2


@with_plugin([1])
async def test_a_trial_that_secedes_is_told_by_dask_first(c, s, plugin, a):
    def leave():
        slaq.report(1.0)
        leave_pool()  # the first thing that Dask's `secede` does
        Event("left").set()
        Event("go").wait()
        slaq.report(0.5)

    async with slaq.search("grid", client=c):
        future = c.submit(leave, key="a")
        await Event("left").wait()
        await until(lambda: "a" in inside(plugin).trials("grid").alive)
        agent_of(a).set_turns([])
        assert agent_of(a).slots["a"].state is SlotState.TRAINS
        await let_end(c, future)


@with_plugin([1, 1])
async def test_a_job_in_a_task_of_a_search_is_a_model_of_it(c, s, plugin, a, b):
    def job_in_a_task(k):
        with worker_client() as client, slaq.job(f"in-{k}", client=client) as job:
            for step in range(5):
                client.submit(inc, step, pure=False).result()
                job.report(k + 0.7**step)
        return k

    async with slaq.search("grid", client=c) as search:
        await c.gather(c.map(job_in_a_task, range(2), pure=False))
        rows = await search.trials()
    assert {row["key"]: row["iteration"] for row in rows if row["curve"]} == {"in-0": 5, "in-1": 5}


@with_plugin([1, 1])
async def test_a_client_that_leaves_takes_its_search_and_the_jobs_of_that(c, s, plugin, a, b):
    async with Client(s.address, asynchronous=True) as other:
        search = await slaq.search("grid", client=other, keep="10min").__aenter__()
        job = await slaq.job("model", client=other).__aenter__()
        job.report(1.0)
        await until(lambda: inside(plugin).reports.get("model"))
        assert plugin.searches.jobs_of("grid") == ["model"]
    await until(lambda: not inside(plugin).reports)
    for block in (job, search):
        await block.__aexit__()


@pytest.mark.parametrize("fails", ["plugin", "block"])
@with_plugin([1, 1], may_fail=True)
async def test_jobs_of_a_search_go_on_after_it_has_failed(c, s, plugin, a, b, fails):
    with suppress(ZeroDivisionError):
        async with slaq.search("grid", client=c):
            job = await slaq.job("model", client=c).__aenter__()
            job.report(1.0)
            await until(lambda: inside(plugin).reports.get("model"))
            if fails == "block":
                raise ZeroDivisionError
            plugin.fall_back(RuntimeError("test"))
    job.report(0.5)
    assert await c.submit(inc, 1) == 2
    await job.__aexit__()
    s.validate_state()


def test_a_thread_is_kept_only_for_a_moment_for_a_trial_that_is_not_to_go_on_any_more(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("dask_slaq.scheduler.trials.running.monotonic", lambda: now[0])
    trials = Trials(SearchSettings(steps=40))
    trials.at("x", "a").become(TrialState.WAITS)
    promised = PromisedThreads(trials, Mock(group=None))
    goes_on, stays = ({"a": Turns(["x"], width, 0, [], [])} for width in (1, 0))
    assert promised.give_turns(goes_on) == [] and promised.by_worker == {"a": 1}
    fewer = []
    for _ in range(4):  # choices that come more often than what is on its way takes
        now[0] += 0.1
        fewer += promised.give_turns(stays)
    assert fewer == ["a"] and promised.by_worker == {"a": 0}


def train_slowly(offset):
    for step in range(12):
        time.sleep(0.01)
        slaq.report(offset + 1 / (step + 1))


@with_plugin([1])
async def test_dask_learns_how_long_models_compute_and_not_how_long_they_wait(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=12) as search:
        await c.gather(c.map(train_slowly, [5, 2, 4, 1, 3, 0], pure=False))
        rows = await search.trials()
    computed, waited = (sum(row[which] for row in rows) for which in ("computed", "waited"))
    assert waited > computed
    prefix = s.task_prefixes["train_slowly"]
    for known in (prefix, *prefix.groups):
        assert known.all_durations["compute"] < computed + waited / 2
    assert prefix.duration_average < (computed + waited / 2) / len(rows)


def fail_slowly(offset):
    train_slowly(offset)
    raise ValueError


@with_plugin([1])
async def test_dask_does_not_take_what_waited_and_failed_for_long(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=12) as search:
        futures = c.map(fail_slowly, [5, 2, 4, 1, 3, 0], pure=False)
        await until(lambda: any(t.state.waits for t in inside(plugin).trials("grid")))
        await a.heartbeat()
        await c.gather(futures, errors="skip")
        rows = await search.trials()
    await until(lambda: not inside(plugin).searches)
    longest = max(row["computed"] for row in rows)
    waited = max(row["waited"] for row in rows)
    assert s.task_prefixes["fail_slowly"].max_exec_time < longest + waited / 2


def train_with_clients(number):
    for step in range(4):
        with worker_client() as client:
            client.submit(abs, -step, pure=False).result()
        slaq.report(1 / (step + 1))
    return number


@with_plugin([1])
async def test_a_thread_that_a_model_leaves_again_is_free_at_once(c, s, plugin, a, monkeypatch):
    """Dask tells that a task has seceded only the first time."""
    monkeypatch.setattr(plugin.searches.agents, "repeat", math.inf)
    async with slaq.search("grid", client=c):
        future = c.submit(train_with_clients, 1, pure=False)
        assert await asyncio.wait_for(c.gather(future), STUCK) == 1
