"""Pools hold the right tasks, and bind them at the right time to the right worker."""

from __future__ import annotations

import asyncio
import time

import dask
import distributed
import pytest
from distributed import Event, Worker
from distributed.utils_test import inc
from driving import (
    PATIENCE,
    Recorder,
    assert_nothing_left,
    gen_cluster,
    jobs,
    restricted_by_us,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
)

import dask_slaq as slaq

ONE = [("127.0.0.1", 1)]
TWO = [("127.0.0.1", 1)] * 2


@gen_cluster(client=True, nthreads=TWO)
async def test_no_more_tasks_are_bound_than_there_are_slots(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        futures = []
        for name in "ab":
            with tasks_of(name):
                futures += c.map(wait_for, ["go"] * 8, pure=False)
        await until(lambda: sum(len(p.ready) for p in plugin.pools.pools.values()) == 14)
        assert [len(ws.processing) for ws in s.workers.values()] == [1, 1]
        assert sum(len(p.running) for p in plugin.pools.pools.values()) == 2
        assert all(ts in s.unrunnable for p in plugin.pools.pools.values() for ts in p.ready)
        assert plugin.pools.tick(1.0) == 0
        await Event("go").set()
        await c.gather(futures)
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=TWO)
async def test_one_job_alone_is_not_held(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0)
    async with jobs(c, "a"):
        futures = c.map(wait_for, ["go"] * 8, pure=False)
        await until(
            lambda: len(s.tasks) == 8 and sum(len(w.processing) for w in (s.workers.values()))
        )
        assert not plugin.pools.holding
        assert not restricted_by_us(s, plugin)
        await Event("go").set()
        await c.gather(futures)
    assert {binding.reason for binding in plugin.pools.bindings} == {"passed"}


@gen_cluster(client=True, nthreads=TWO)
async def test_tasks_that_wait_already_are_held_when_a_second_job_comes(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a"):
        first = c.map(wait_for, ["go"] * 12, pure=False)
        await until(lambda: len(s.queued) == 8)
        async with jobs(c, "b"):
            assert not s.queued
            assert len(plugin.pools.pools["a"].ready) == 8
            with tasks_of("b"):
                second = c.submit(where)
            await state_of(s, second, "processing")  # before what Dask had sent ahead
            await Event("go").set()
            await second
            await c.gather(first)
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=TWO)
async def test_what_is_held_goes_on_under_dask_when_the_other_job_ends(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    plugin.pools.contention.linger = 0
    async with jobs(c, "a"):
        async with jobs(c, "b"):
            with tasks_of("a"):
                futures = c.map(wait_for, ["go"] * 12, pure=False)
            await until(lambda: len(plugin.pools.pools["a"].ready) == 10)
        await until(lambda: plugin.run_once() or not plugin.pools.holding)
        assert not restricted_by_us(s, plugin)
        assert not s.unrunnable
        await Event("go").set()
        await c.gather(futures)


@gen_cluster(client=True, nthreads=ONE)
async def test_tasks_of_a_job_run_in_dasks_order_of_priority(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            first = c.submit(wait_for, "go", key="first")
            await state_of(s, first, "processing")
            order = [3, -1, 7, 0]
            futures = [c.submit(where, p, priority=p, key=f"p{p}") for p in order]
        await until(lambda: len(plugin.pools.pools["a"].ready) == 4)
        await Event("go").set()
        await c.gather(futures)
    assert [b.key for b in plugin.pools.bindings] == ["first", "p7", "p3", "p0", "p-1"]


@gen_cluster(client=True, nthreads=ONE)
async def test_the_job_with_the_higher_index_is_served_first(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, floor=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            first = c.submit(wait_for, "go", key="first")
            await state_of(s, first, "processing")
        futures = []
        for name in "ab":
            with tasks_of(name):
                futures += c.map(where, range(3), key=name, pure=False)
        pools = plugin.pools.pools
        await until(lambda: len(pools["a"].ready) == len(pools["b"].ready) == 3)
        for name, index in (("a", 1.0), ("b", 2.0)):
            pools[name].index = index
            pools[name].workers = {a.address: 0.5}
            pools[name].tokens = -9.0
        await Event("go").set()
        await c.gather(futures)
    assert [b.job for b in plugin.pools.bindings] == ["a", *"bbb", *"aaa"]


@gen_cluster(client=True, nthreads=ONE)
async def test_jobs_of_equal_index_take_turns_by_share(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, floor=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            first = c.submit(wait_for, "go", key="first")
            await state_of(s, first, "processing")
        futures = []
        for name in "ab":
            with tasks_of(name):
                futures += c.map(where, range(3), key=name, pure=False)
        pools = plugin.pools.pools
        await until(lambda: len(pools["a"].ready) == len(pools["b"].ready) == 3)
        await Event("go").set()
        await c.gather(futures)
    jobs_served = [b.job for b in plugin.pools.bindings]
    assert jobs_served[:3].count("b") >= 1  # "a" had the first slot


@gen_cluster(client=True, nthreads=ONE)
async def test_a_job_behind_on_its_floor_goes_before_any_index(c, s, a):
    plugin = await start_plugin(c, s, policy="max-total", short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            first = c.submit(wait_for, "go", key="first")
            await state_of(s, first, "processing")
        futures = []
        for name in "ab":
            with tasks_of(name):
                futures += c.map(where, range(2), key=name, pure=False)
        pools = plugin.pools.pools
        await until(lambda: len(pools["a"].ready) == len(pools["b"].ready) == 2)
        pools["a"].index, pools["a"].tokens = 9.0, -9.0
        pools["b"].index, pools["b"].tokens = 1.0, 0.25
        await Event("go").set()
        await c.gather(futures)
    assert [(b.job, b.reason) for b in plugin.pools.bindings][1] == ("b", "floor")
    assert plugin.pools.bindings[-1].job == "a"


@gen_cluster(client=True, nthreads=TWO)
async def test_free_slots_are_lent_and_the_loan_is_recorded(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        pool = plugin.pools.pools["a"]
        pool.workers = {a.address: 1.0}
        with tasks_of("a"):
            futures = c.map(wait_for, ["go"] * 2, pure=False)
        await until(lambda: len(pool.running) == 2)
        reasons = {binding.worker: binding.reason for binding in plugin.pools.bindings}
        assert reasons == {a.address: "granted", b.address: "lent"}
        await Event("go").set()
        await c.gather(futures)


@gen_cluster(client=True, nthreads=TWO)
async def test_without_lending_a_job_stays_on_its_workers(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, lend=False)
    async with jobs(c, "a", "b"):
        pool = plugin.pools.pools["a"]
        pool.workers = {a.address: 1.0}
        with tasks_of("a"):
            futures = c.map(where, range(6), pure=False)
            assert set(await c.gather(futures)) == {a.address}
            again = c.map(where, range(6), pure=False)
            assert set(await c.gather(again)) == {a.address}
    assert {binding.reason for binding in plugin.pools.bindings} == {"granted"}


@gen_cluster(client=True, nthreads=TWO)
async def test_without_lending_short_tasks_stay_on_the_workers_too(c, s, a, b):
    plugin = await start_plugin(c, s, short_task="1s", lend=False)
    async with jobs(c, "a", "b"):
        pool = plugin.pools.pools["a"]
        pool.workers = {a.address: 1.0}
        for _ in range(2):  # the second time they are known to be short
            with tasks_of("a"):
                assert set(await c.gather(c.map(where, range(6), pure=False))) == {a.address}


@gen_cluster(client=True, nthreads=TWO)
async def test_short_tasks_are_charged_to_their_job(c, s, a, b):
    plugin = await start_plugin(c, s, short_task="1s")
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            await c.gather(c.map(inc, range(3), key="x"))
            before = plugin.engine.jobs["a"].runtime.attained
            await c.gather(c.map(inc, range(3, 6), key="x"))
        assert plugin.engine.jobs["a"].runtime.attained > before > 0
        assert plugin.engine.jobs["b"].runtime.attained == 0


def big(n: int = 100_000_000) -> bytes:
    return bytes(n)


@gen_cluster(client=True, nthreads=TWO)
async def test_a_task_goes_where_most_of_its_input_lies(c, s, a, b):
    await start_plugin(c, s, short_task=0, ahead=0)
    data = {w: c.submit(big, key=f"data-{w}", workers=[w]) for w in (a.address, b.address)}
    await c.gather(c.map(len, list(data.values())))
    async with jobs(c, "a", "b"):
        for name in "ab":
            with tasks_of(name):
                for w, x in data.items():
                    assert await c.submit(where, x, pure=False) == w


@gen_cluster(client=True, nthreads=TWO)
async def test_a_task_waits_for_its_home_while_moving_costs_more(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    x = c.submit(big, key="x", workers=[a.address])
    await x
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            busy = c.submit(wait_for, "go", workers=[a.address], key="busy")
            await state_of(s, busy, "processing")
            s.task_prefixes["busy"].duration_average = 1e-3
            later = c.submit(where, x, key="later")
        await until(lambda: plugin.pools.pools["a"].ready)
        assert plugin.pools.tick(1.0) == 0
        assert s.tasks["later"].state == "no-worker"
        s.task_prefixes["busy"].duration_average = 100  # now waiting costs more
        plugin.pools.tick(1.0)
        assert await later == b.address
        await Event("go").set()
        await busy


@pytest.mark.parametrize("why", ["gone", "paused", "not allowed", "lacks the resource", "strict"])
@gen_cluster(client=True, nthreads=[*ONE, ("127.0.0.1", 1, {"resources": {"GPU": 1}})])
async def test_a_task_does_not_wait_for_a_home_it_cannot_have(c, s, a, b, why):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, lend=why != "strict")
    x = c.submit(big, key="x", workers=[a.address])
    await x
    extra = {}
    if why == "lacks the resource":
        extra = {"resources": {"GPU": 1}}
    elif why == "not allowed":
        async with Worker(s.address) as third:
            pass
        extra = {"workers": [b.address, third.address]}
    async with jobs(c, "a", "b"):
        pool = plugin.pools.pools["a"]
        if why == "strict":
            pool.workers = {b.address: 1.0}
        with tasks_of("a"):
            busy = c.map(wait_for, ["go", "go"], pure=False, workers=[a.address, b.address])
            if why != "strict":
                await until(lambda: len(pool.running) == 2)
            later = c.submit(where, x, key="later", **extra)
            await until(lambda: s.tasks.get("later") in pool.ready)
        if why == "gone":
            await c.replicate([x], n=2)
            await s.remove_worker(a.address, stimulus_id="test")
        elif why == "paused":
            s.handle_worker_status_change("paused", a.address, "test")
        await Event("go").set()
        assert await later == b.address
        if why != "gone":
            await c.gather(busy)


@gen_cluster(client=True, nthreads=ONE)
async def test_a_busy_worker_gets_a_task_ahead_only_of_little_work(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead="50ms")
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            known = c.submit(wait_for, "known", key=("quick-0", 0))
            await Event("known").set()
            await known
            durations = plugin.pools.pools["a"].durations
            durations.observe(durations.like(s.tasks[known.key]), 0.0)
            # In one message: once the first is overdue, nothing is sent ahead behind it.
            # In a group of two: three would be root tasks on a single thread, and come last.
            quick = [c.submit(wait_for, "go", key=("quick-1", n)) for n in (1, 2)]
            long = [c.submit(wait_for, "go", key=f"long-{n}") for n in (1, 2)]
            await state_of(s, quick[1], "processing")
            await state_of(s, long[0], "processing")  # there is little work yet
            await state_of(s, long[1], "no-worker")
            assert plugin.pools.tick(1.0) == 0  # unknown tasks count half a second
            assert s.tasks["long-2"].state == "no-worker"
        await Event("go").set()
        await c.gather([*quick, *long])
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=ONE)
async def test_what_was_sent_ahead_runs_in_the_order_in_which_it_was_sent(c, s, a):
    """Whatever priorities the users gave: these order the tasks of one job alone."""
    plugin = await start_plugin(c, s, short_task=0, ahead="1h")
    async with jobs(c, "a", "b"):
        await Event("known").set()
        for name in "ab":  # so that it is known how long they take
            with tasks_of(name):
                await c.submit(wait_for, "known", key=f"{name}-0")
        with tasks_of("a"):
            first = c.submit(wait_for, "go", key="a-1")
            await state_of(s, first, "processing")
            second = c.submit(wait_for, "go", key="a-2")
            await state_of(s, second, "processing")
        with tasks_of("b"):
            third = c.submit(wait_for, "go", key="b-1", priority=9)
            await state_of(s, third, "processing")
        await until(lambda: len(a.state.ready) == 2)
        waiting = [ts.key for ts in sorted(a.state.ready, key=lambda ts: ts.priority)]
        assert waiting == ["a-2", "b-1"]
        assert s.tasks["b-1"].priority < s.tasks["a-2"].priority
        await Event("go").set()
        await c.gather([first, second, third])
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=ONE)
async def test_short_tasks_run_before_what_a_worker_was_sent_ahead(c, s, a):
    plugin = await start_plugin(c, s, short_task="1s", ahead="1h")
    async with jobs(c, "a", "b"):
        await Event("known").set()
        with tasks_of("a"):
            await c.submit(wait_for, "known", key="long-9")
        with tasks_of("b"):
            for n in range(3):
                await c.submit(inc, 0, key=f"quick-{n}")
        with tasks_of("a"):
            long = [c.submit(wait_for, "go", key=f"long-{n}") for n in range(2)]
            await state_of(s, long[1], "processing")
        plugin.pools.slots.ahead = 0.0
        plugin.pools.queueing.served = plugin.pools.pools["b"].service
        with tasks_of("b"):
            quick = c.submit(inc, 1, key="quick-3")
        await state_of(s, quick, "processing")
        await until(lambda: len(a.state.ready) == 2)
        waiting = [ts.key for ts in sorted(a.state.ready, key=lambda ts: ts.priority)]
        assert waiting == ["quick-3", "long-1"]
        await Event("go").set()
        await c.gather([*long, quick])
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=TWO)
async def test_a_worker_that_comes_is_used_at_once(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            busy = c.map(wait_for, ["go"] * 2, pure=False)
            await until(lambda: len(plugin.pools.pools["a"].running) == 2)
        with tasks_of("b"):
            other = c.submit(where)
            await until(lambda: plugin.pools.pools["b"].ready)
        async with Worker(s.address) as third:
            assert await other == third.address
            await until(
                lambda: (
                    third.address in plugin.engine.grants["b"].workers
                    or third.address in plugin.engine.grants["a"].workers
                )
            )
            await Event("go").set()
            await c.gather(busy)


@gen_cluster(client=True, nthreads=[])
async def test_tasks_wait_for_the_first_worker(c, s):
    await start_plugin(c, s, short_task=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            future = c.submit(where)
        await state_of(s, future, "no-worker")
        async with Worker(s.address) as w:
            assert await future == w.address


@gen_cluster(client=True, nthreads=[("127.0.0.1", 2)])
async def test_over_its_cap_a_job_is_served_last(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with slaq.job("a", client=c, max_share=1), slaq.job("b", client=c):
        pools = plugin.pools.pools
        with tasks_of("a"):
            first, second = c.submit(wait_for, "one"), c.submit(wait_for, "two")
            await until(lambda: len(pools["a"].running) == 2)  # nobody else has anything ready
            third = c.submit(where, key="third")
        with tasks_of("b"):
            others = c.map(where, range(2), pure=False)
        await until(lambda: len(pools["b"].ready) == 2 and pools["a"].ready)
        pools["a"].index = 9.0
        await Event("one").set()
        await c.gather([third, *others])
        await Event("two").set()
        await c.gather([first, second])
    assert [binding.job for binding in plugin.pools.bindings] == ["a", "a", "b", "b", "a"]


@gen_cluster(client=True, nthreads=[("127.0.0.1", 3)])
async def test_without_lending_a_cap_is_never_exceeded(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, lend=False)
    async with slaq.job("a", client=c, max_share=1):
        pool = plugin.pools.pools["a"]
        futures = c.map(wait_for, ["go"] * 4, range(4), pure=False)
        await until(lambda: len(pool.ready) == 3 and len(pool.running) == 1)
        pool.tokens = 9.0
        assert plugin.pools.tick(1.0) == 0
        plugin.run_once()
        assert len(pool.running) == 1
        await Event("go").set()
        assert await c.gather(futures) == [0, 1, 2, 3]


@gen_cluster(client=True, nthreads=TWO)
async def test_a_slot_freed_by_seceding_is_used_at_once(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)

    def seceding():
        from distributed import worker_client

        with worker_client():
            Event("go").wait()

    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            outer = c.map(lambda _: seceding(), range(6), pure=False)
            await until(lambda: sum(len(w.long_running) for w in s.workers.values()) == 6)
        assert not plugin.pools.pools["a"].ready
        assert not plugin.pools.pools["a"].running
        await Event("go").set()
        await c.gather(outer)


@gen_cluster(client=True, nthreads=TWO)
async def test_a_task_that_gave_up_its_slot_is_not_charged_for_what_follows(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)

    def seceding():
        distributed.secede()
        Event("go").wait()

    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            tasks = c.map(lambda _: seceding(), range(4), pure=False)
        await until(lambda: sum(len(w.long_running) for w in s.workers.values()) == 4)
        await asyncio.sleep(0.5)
        await Event("go").set()
        await c.gather(tasks)
        assert plugin.engine.jobs["a"].runtime.attained < 0.5  # and not 4 times as much
        assert not plugin.pools.tracker.seceded_at


@gen_cluster(client=True, nthreads=TWO)
async def test_a_task_that_gave_up_its_slot_may_outlive_its_job(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)

    def seceding():
        distributed.secede()
        Event("go").wait()

    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            task = c.submit(seceding)
        await until(lambda: sum(len(w.long_running) for w in s.workers.values()) == 1)
        await until(lambda: len(plugin.pools.tracker.seceded_at) == 1)
    assert not plugin.pools.tracker.seceded_at
    await Event("go").set()
    await task


@gen_cluster(client=True, nthreads=ONE)
async def test_tokens_that_are_as_many_as_before_are_granted_anew(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0, reserve=0.5)
    async with jobs(c, "a", "b"):
        with tasks_of("no job"):
            plain = c.submit(wait_for, "go", key="plain")
        await state_of(s, plain, "processing")
        (pool,) = (p for p in plugin.pools.pools.values() if not p.reports)
        plugin.run_once()
        pool.tokens = -9.0  # it has spent what it was granted, and more
        plugin.pools.apply([])
        assert pool.granted > 0
        assert pool.tokens == pytest.approx(pool.granted - sum(pool.running.values()))
        await Event("go").set()
        await plain


@gen_cluster(client=True, nthreads=[("127.0.0.1", 1), ("127.0.0.1", 1, {"resources": {"GPU": 1}})])
async def test_without_lending_tasks_run_that_no_worker_of_the_set_may_run(c, s, a, b):
    await start_plugin(c, s, short_task=0, ahead=0, lend=False, policy="fair")
    async with jobs(c, "a", "b"):
        found = []
        for name in "ab":
            with tasks_of(name):
                found.append(c.submit(where, resources={"GPU": 1}, pure=False))
                found += [c.submit(where, workers=[w.address], pure=False) for w in (a, b)]
                both = [a.address, b.address]
                found.append(c.submit(where, workers=both, pure=False))
        ran = await asyncio.wait_for(c.gather(found), PATIENCE)
        assert ran[:3] == ran[4:7] == [b.address, a.address, b.address]


@gen_cluster(client=True, nthreads=TWO)
async def test_the_user_restrictions_come_back_when_a_task_ends(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0)
    both = [a.address, b.address]
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            future = c.submit(where, workers=both, key="x")
            plain = c.submit(where, key="y")
            assert await future in both
            await plain
        assert s.tasks["x"].worker_restrictions == set(both)
        assert s.tasks["y"].worker_restrictions is None
    assert restricted_by_us(s, plugin) == []


@gen_cluster(client=True, nthreads=TWO)
async def test_bindings_remembered_are_bounded(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, bindings=3)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            await c.gather(c.map(inc, range(9)))
    assert len(plugin.pools.bindings) == 3


@gen_cluster(client=True, nthreads=[("127.0.0.1", 2), ("127.0.0.1", 1)])
async def test_a_deep_graph_runs_through_pools_with_every_slot_in_use(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    recorder = Recorder(s, plugin)
    async with jobs(c, "a", "b"):
        outs = {}
        for name in "ab":
            with tasks_of(name):
                layer = c.map(inc, range(16), pure=False)
                while len(layer) > 1:
                    layer = [
                        c.submit(lambda x, y: x + y, x, y, pure=False)
                        for x, y in zip(layer[::2], layer[1::2], strict=True)
                    ]
                outs[name] = layer[0]
        assert await c.gather(outs) == {"a": 136, "b": 136}
    recorder.check()
    assert len(recorder.held()) == 62
    assert_nothing_left(s, plugin)


@gen_cluster(client=True, nthreads=TWO)
async def test_the_watchdog_counts_what_waited_beside_a_free_slot(c, s, a, b):
    plugin = await start_plugin(c, s, short_task=0)
    async with jobs(c, "a", "b"):
        pools = plugin.pools
        pools.wakeups.due = True  # as if a dispatch had been lost
        with tasks_of("a"):
            future = c.submit(inc, 1)
        await until(lambda: pools.pools["a"].ready)
        pools.wakeups.due = False
        pools.wakeups.look_at.clear()
        assert pools.tick(1.0) == 1
        assert await future == 2


@gen_cluster(client=True, nthreads=TWO, config={"slaq.instrument": False})
async def test_annotations_of_the_user_stay(c, s, a, b):
    await start_plugin(c, s, short_task=0)
    async with jobs(c, "a", "b"):
        with dask.annotate(mine=1, priority=3):
            future = c.submit(inc, 1, key="x")
        await future
        annotations = s.tasks["x"].annotations
        assert annotations == {
            **{"mine": 1, "priority": 3, "slaq_job": "b"},
            **{"slaq_job:a": True, "slaq_job:b": True},
        }


@gen_cluster(client=True, nthreads=ONE)
async def test_a_running_task_counts_against_the_floor_from_its_start(c, s, a):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        pool = plugin.pools.pools["a"]
        with tasks_of("a"):
            future = c.submit(wait_for, "go")
            await state_of(s, future, "processing")
        plugin.run_once()
        grant = plugin.engine.grants["a"]
        expected = s.UNKNOWN_TASK_DURATION
        pool.tokens = 0.0
        plugin.pools.apply(t for t in plugin.engine.grants.terms() if t.job == "a")
        assert pool.tokens == grant.tokens - expected
        service = pool.service
        await Event("go").set()
        await future
        seconds = plugin.engine.jobs["a"].runtime.attained
        assert pool.tokens == pytest.approx(grant.tokens - seconds)
        assert pool.service == pytest.approx(service - expected + seconds)


def wait_a_while_for(event):
    """Of a task that takes no time several are sent ahead."""
    time.sleep(0.005)
    return wait_for(event)


@pytest.mark.parametrize("saturation, most", [(1.0, 2), (1.5, 3)])
def test_root_tasks_are_sent_ahead_by_the_users_worker_saturation(saturation, most):
    @gen_cluster(
        client=True,
        nthreads=[("127.0.0.1", 2)],
        config={"distributed.scheduler.worker-saturation": saturation},
    )
    async def run(c, s, a):
        plugin = await start_plugin(c, s, short_task=0, ahead=60)
        (ws,) = s.workers.values()
        async with jobs(c, "a", "b"):
            with tasks_of("b"):
                never = c.submit(inc, 0, workers=["tcp://127.0.0.1:1"])
            await state_of(s, never, "no-worker")
            go = Event("go")
            await go.set()
            with tasks_of("a"):
                await c.gather(c.map(wait_a_while_for, ["go"] * 8, pure=False))
                await go.clear()
                futures = c.map(wait_a_while_for, ["go"] * 8, pure=False)
            await until(lambda: len(ws.processing) == most)
            plugin.pools.tick(1.0)
            assert len(ws.processing) == most
            await go.set()
            await c.gather(futures)

    run()


@gen_cluster(client=True, nthreads=TWO)
async def test_restrictions_that_changed_hold_when_a_task_runs_again(c, s, a, b):
    await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        with tasks_of("b"):
            never = c.submit(inc, 0, workers=["tcp://127.0.0.1:1"])
        await state_of(s, never, "no-worker")
        with tasks_of("a"):
            here = c.submit(where, workers=[a.address], pure=False)
        assert await here == a.address
        s.set_restrictions({here.key: [a.address, b.address]})
        await a.close()
        assert await here == b.address


def test_who_was_granted_a_thread_and_runs_nothing_does_not_wait_for_the_floors_of_others():
    from dask_slaq.scheduler.dispatch.pool import Pool

    pool = Pool("a", "client", index=1.0, share=4 / 3)
    assert pool.is_behind()
    pool.running["task"] = 0.1
    assert not pool.is_behind()
    pool.tokens = 0.5
    assert pool.is_behind()
    pool.most = 1
    assert not pool.is_behind()
    assert not Pool("b", "client", index=1.0, share=0.9).is_behind()


@gen_cluster(client=True, nthreads=[("127.0.0.1", 1)] * 4)
async def test_tasks_that_may_go_anywhere_go_where_their_inputs_are(c, s, *workers):
    plugin = await start_plugin(c, s, short_task=0, ahead=0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            data = c.map(inc, range(12), pure=False)
            await c.gather(data)
        made = {future.key: set(s.tasks[future.key].who_has) for future in data}
        with tasks_of("b"):
            busy = c.map(wait_for, ["go"] * 4, pure=False)
        await until(lambda: sum(len(ws.processing) for ws in s.workers.values()) == 4)
        with tasks_of("a"):
            used = c.map(inc, data, pure=False)
        await until(lambda: len(plugin.pools.pools["a"].ready) == 12)
        await Event("go").set()
        await c.gather(used + busy)
        stayed = sum(
            binding.worker in {ws.address for ws in made[next(iter(s.tasks[key].dependencies)).key]}
            for binding in plugin.pools.bindings
            if (key := binding.key) in {future.key for future in used}
        )
        assert stayed >= 8  # of 12; at the end a free thread takes what is left


def test_a_seceded_task_is_charged_before_it_ends():
    from dask_slaq.simulation import virtual

    async def long_after_it_gave_up_its_slot(key):
        from distributed import get_worker
        from distributed.worker_state_machine import SecedeEvent

        await asyncio.sleep(0.5)
        event = SecedeEvent(key=key, compute_duration=0.0, stimulus_id="secede")
        get_worker().handle_stimulus(event)
        await asyncio.sleep(5)

    async def run():
        async with virtual.Cluster([1]) as cluster, cluster.client() as client:
            await client.register_plugin(slaq.SlaqPlugin(policy="fair"))
            plugin = cluster.scheduler.plugins["slaq"]
            async with slaq.job("a", client=client), slaq.job("b", client=client):
                with dask.annotate(slaq_job="a"):
                    task = client.submit(long_after_it_gave_up_its_slot, "long", key="long")
                await asyncio.sleep(1)
                seen = plugin.pools.pools["a"].service
                await task
                return seen, plugin.pools.pools["a"].service

    seen, finally_ = virtual.run(run)
    assert seen == pytest.approx(0.5, abs=0.05)
    assert finally_ == pytest.approx(seen, abs=0.05)
