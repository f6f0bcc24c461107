"""Pools hold the right tasks, and send them in the right order; bindings say why."""

import asyncio
import contextlib
from time import monotonic

import dask
import distributed
import pytest
from distributed import Event, Worker
from distributed.utils_test import inc, slowinc
from distributed.worker_state_machine import SecedeEvent
from driving import (
    HELD,
    Fixed,
    assert_nothing_left,
    begun,
    gen_cluster,
    held_tasks,
    hook,
    in_job,
    inside,
    jobs,
    let_end,
    map_in_each,
    on_virtual,
    on_virtual_clock,
    ready,
    reasons,
    restricted_by_us,
    running,
    served,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
    work,
)

import dask_slaq as slaq
from dask_slaq.core.dispatch import Guarantee
from dask_slaq.core.dispatch.ready import Waiting
from dask_slaq.scheduler.pools.durations import Durations
from dask_slaq.scheduler.pools.pool import Pool


@with_plugin([1, 1])
async def test_one_job_alone_is_not_held(c, s, plugin, a, b):
    async with jobs(c, "a"):
        futures = c.map(wait_for, ["go"] * 8, pure=False)
        await until(lambda: len(s.tasks) == 8 and any(ws.processing for ws in s.workers.values()))
        assert not inside(plugin).holds
        assert not restricted_by_us(s, plugin)
        await let_end(c, futures)
    assert set(reasons(plugin).values()) == {"passed"}


@with_plugin([1])
async def test_a_newcomer_does_not_wait_for_what_dask_had_sent_ahead(c, s, plugin, a):
    async with jobs(c, "a"):
        first = [c.submit(wait_for, f"go-{n}", n, key=f"first-{n}") for n in range(4)]
        sent = s.workers[a.address].processing
        await until(lambda: len(a.state.executing) == 1 and len(sent) > 1)
        (computes,) = (ts.key for ts in a.state.executing)
        async with jobs(c, "b"):
            second = in_job(c, "b").submit(where, key="second")
            await until(lambda: "second" in a.state.tasks)
            await Event(computes.replace("first", "go")).set()
            assert await second == a.address
            for n in range(4):
                await Event(f"go-{n}").set()
            assert await c.gather(first) == list(range(4))


@pytest.mark.parametrize(("both", "alone", "held"), [(1, 5, True), (1, 15, False), (30, 15, True)])
@on_virtual([1, 1])
async def test_who_is_left_alone_is_held_on(client, cluster, plugin, both, alone, held):
    """For as long as there were others, or ten seconds: its data is unevenly distributed."""
    async with slaq.job("a", client=client):
        async with slaq.job("b", client=client):
            await asyncio.sleep(both)
        futures = in_job(client, "a").map(work, [alone] * 8, pure=False)
        await asyncio.sleep(alone)
        holding = bool(inside(plugin).holds)
        await client.gather(futures)
    assert holding is held


@with_plugin([1], prefetch=0)
async def test_tasks_of_a_job_run_in_dasks_order_of_priority(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            futures = [await begun(s, c.submit(wait_for, "go", key="first"))]
            futures += [c.submit(where, p, priority=p, key=f"p{p}") for p in (3, -1, 7, 0)]
        await until(lambda: ready(plugin, "a") == 4)
        await let_end(c, futures)
    assert [b.key for b in inside(plugin).bindings] == ["first", "p7", "p3", "p0", "p-1"]


@pytest.mark.parametrize("higher", ["a", "b"])
@gen_cluster(client=True, nthreads=[1])
async def test_the_job_with_the_higher_index_is_served_first(c, s, a, higher):
    other = {"a": "b", "b": "a"}[higher]
    policy = Fixed(**{higher: (0.5, 2.0), other: (0.5, 1.0)})
    plugin = await start_plugin(c, s, policy=policy, prefetch=0)
    async with jobs(c, "a", "b"):
        busy = await held_tasks(c, plugin, "a", 1, run=1)
        futures = map_in_each(c, "ab", where, range(3))
        await until(lambda: ready(plugin, "a") == ready(plugin, "b") == 3)
        plugin.run_once()
        await let_end(c, [*busy, *futures])
    assert served(plugin)[1:] == [*[higher] * 3, *[other] * 3]


@on_virtual([2, 2])
async def test_jobs_of_equal_index_are_served_by_weight(client, cluster, plugin):
    async with slaq.job("a", client=client, weight=3), slaq.job("b", client=client):
        futures = map_in_each(client, "ab", work, [0.2] * 200)
        await asyncio.sleep(10)
        attained = {name: job.attained for name, job in inside(plugin).jobs.items()}
        await client.cancel(futures)
    assert attained["a"] / attained["b"] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize("least", [None, 1])
def test_a_job_keeps_its_floor_whatever_its_index(least):
    """Half of its fair share of two of the four threads, or a minimum of one thread."""

    async def scenario(client, cluster, plugin):
        job = slaq.job("b", client=client, min_share=least)
        async with slaq.job("a", client=client) as other, job:
            other.report(1.0)  # a job that never reports has its share for a floor
            job.report(1.0)
            futures = map_in_each(client, "ab", work, [0.4] * 220)
            await asyncio.sleep(20)
            used = inside(plugin).job("b").attained
            await client.cancel(futures)
        assert "floor" in {b.reason for b in inside(plugin).bindings if b.job == "b"}
        return used / 20

    share = least or 0.0
    policy = Fixed(a=(4.0 - share, 9.0), b=(share, 1.0))
    floor = 0.0 if least else 0.5
    assert 0.8 <= on_virtual_clock(scenario, [1] * 4, policy=policy, floor=floor) <= 1.5


@with_plugin([2], policy=Fixed(a=(0.5, 9.0), b=(0.5, 1.0)), prefetch=0)
async def test_over_its_cap_a_job_is_served_last(c, s, plugin, a):
    async with slaq.job("a", client=c, max_share=1), slaq.job("b", client=c):
        with tasks_of("a"):
            first, second = c.submit(wait_for, "one"), c.submit(wait_for, "two")
            await until(lambda: running(plugin, "a") == 2)  # nobody else has anything ready
            third = c.submit(where, key="third")
        others = in_job(c, "b").map(where, range(2), pure=False)
        await until(lambda: ready(plugin, "b") == 2 and ready(plugin, "a"))
        plugin.run_once()
        await let_end(c, [third, *others], "one")
        await let_end(c, [first, second], "two")
    assert served(plugin) == ["a", "a", "b", "b", "a"]


@with_plugin([1], policy=Fixed(a=(1.0, 9.0), b=(0.0, 1.0)), prefetch=0)
async def test_a_paused_job_sends_nothing_while_another_goes_on(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        await slaq.pause("a", client=c)
        paused = in_job(c, "a").map(inc, range(3), pure=False)
        await until(lambda: ready(plugin, "a") == 3)
        assert await c.gather(in_job(c, "b").map(inc, range(3), pure=False)) == [1, 2, 3]
        assert set(served(plugin)) == {"b"}
        assert inside(plugin).tick(1.0) == 0
        await slaq.unpause("a", client=c)
        assert await c.gather(paused) == [1, 2, 3]


@with_plugin([1])
async def test_what_a_paused_job_released_is_computed_again_for_another(c, s, plugin, a):
    first = dask.delayed(inc)(1, dask_key_name="first")
    second = dask.delayed(inc)(first, dask_key_name="second")
    async with jobs(c, "a", "b"):
        kept = in_job(c, "a").compute(dask.delayed(sum)([second, 1]), optimize_graph=False)
        assert await kept == 4
        await until(lambda: s.tasks["first"].state == s.tasks["second"].state == "released")
        await slaq.pause("a", client=c)
        with tasks_of("b"):
            found = c.compute(dask.delayed(sum)([second, 2]), optimize_graph=False)
            assert await asyncio.wait_for(found, 10) == 5
        del kept, found
    await until(lambda: not s.tasks)


@pytest.mark.parametrize("saturation, most", [(1.5, 3), (float("inf"), 4)])
def test_no_more_root_tasks_are_sent_ahead_than_the_users_worker_saturation(saturation, most):
    config = {"distributed.scheduler.worker-saturation": saturation}

    @with_plugin([2], config=config, prefetch=60)
    async def run(c, s, plugin, a):
        seen = []
        sent = s.workers[a.address].processing
        hook(s, "transition", lambda *args, **kwargs: seen.append(len(sent)))
        async with jobs(c, "a", "b"):
            for _ in range(2):  # the second time it is known how long they take
                await c.gather(in_job(c, "a").map(slowinc, range(12), delay=0.06, pure=False))
            inside(plugin).tick(1.0)
        assert max(seen) <= most

    run()


@with_plugin([1], prefetch=0)
async def test_a_worker_that_joins_gets_no_more_tasks_than_it_has_threads(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 8, run=1)
        async with Worker(s.address, nthreads=2):
            await until(lambda: running(plugin, "a") == 3)
            assert sorted(len(ws.processing) for ws in s.workers.values()) == [1, 2]
            assert ready(plugin, "a") == 5
            assert await let_end(c, futures) == list(range(8))


@with_plugin([1, 1], prefetch=0)
async def test_seceded_tasks_free_their_slot_and_may_outlive_their_job(c, s, plugin, a, b):
    def seceding(k):
        with contextlib.ExitStack() as stack:
            distributed.secede() if k % 2 else stack.enter_context(distributed.worker_client())
            Event("go").wait()

    async with jobs(c, "a", "b"):
        tasks = in_job(c, "a").map(seceding, range(6), pure=False)
        await until(lambda: sum(len(w.long_running) for w in s.workers.values()) == 6)
        assert not ready(plugin, "a") and not running(plugin, "a")
    assert_nothing_left(s, plugin)
    await let_end(c, tasks)


@on_virtual([1])
async def test_a_task_is_charged_until_it_gives_up_its_slot(client, cluster, plugin):
    async def secedes_after_half_a_second(key):
        await asyncio.sleep(0.5)
        event = SecedeEvent(key=key, compute_duration=0.0, stimulus_id="secede")
        distributed.get_worker().handle_stimulus(event)
        await asyncio.sleep(5)

    async with slaq.job("a", client=client), slaq.job("b", client=client):
        await in_job(client, "a").submit(secedes_after_half_a_second, "long", key="long")
        found = inside(plugin).job("a").attained
    assert found == pytest.approx(0.5, abs=0.05)


@with_plugin([1, 1], prefetch=0)
async def test_restrictions_that_changed_hold_when_a_task_runs_again(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        never = in_job(c, "b").submit(inc, 0, workers=["tcp://127.0.0.1:1"])
        await state_of(s, never, *HELD)
        here = in_job(c, "a").submit(where, workers=[a.address], pure=False)
        assert await here == a.address
        s.set_restrictions({here.key: [a.address, b.address]})
        await a.close()
        assert await here == b.address


@with_plugin([1, 1], config={"slaq.instrument": False})
async def test_annotations_of_the_user_stay(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        with dask.annotate(mine=1, priority=3):
            future = c.submit(inc, 1, key="x")
        await future
        ours = {"slaq_job": "b", "slaq_job:a": True, "slaq_job:b": True}
        assert s.tasks["x"].annotations == {"mine": 1, "priority": 3, **ours}


@with_plugin([1, 1], prefetch=0)
async def test_jobs_are_ordered_anew_once_tasks_are_held_again(c, s, plugin, a, b):
    """Who comes back is owed nothing of what others have used meanwhile."""
    pools = plugin.pools
    async with jobs(c, "a", "b"):
        now = monotonic()
        assert pools.order.key(pools.pools["a"], now).service == 0
        await c.gather(in_job(c, "b").map(slowinc, range(6), delay=0.05, pure=False))
        pools.hold(False)
        pools.hold(True)
        assert pools.order.key(pools.pools["a"], now).service == pools.pools["b"].service > 0


@with_plugin([1, 1], config={"distributed.scheduler.validate": True}, prefetch=0)
async def test_a_task_that_two_jobs_wait_for_is_sent_once(c, s, plugin, a, b):
    pools = plugin.pools
    async with jobs(c, "a", "b"):
        pools.drain(set(s.workers))
        shared = in_job(c, "a").submit(wait_for, "go", 1, pure=False)
        mine = in_job(c, "b").submit(inc, shared, pure=False)
        await until(lambda: (ready(plugin, "a"), ready(plugin, "b")) == (1, 1))
        pools.drain(())  # both workers have room in one dispatch
        await state_of(s, shared, "processing")
        assert len(pools.bindings) == 1 and running(plugin, "a") + running(plugin, "b") == 1
        assert await let_end(c, mine) == 2


@pytest.mark.parametrize(("tasks", "seconds"), [(3, 4.0), (8, 8.0)])
def test_a_job_that_submits_again_has_submitted_at_least_what_it_usually_does(tasks, seconds):
    given = {"client": "c", "reports": True, "durations": Durations()}
    pool = Pool("a", "", 1.0, False, Waiting(), account=Guarantee(most_accrued=1.0), **given)
    pool.ended, pool.used, pool.unfinished = 2, 2.0, set(range(tasks))
    pool.gaps.spell = 4.0  # core-seconds between two gaps
    assert pool.submitted == tasks
    pool.is_open = True
    assert pool.submitted == seconds


@with_plugin([1, 1], epoch="50 ms")
async def test_tasks_that_dask_refuses_are_chosen_again(c, s, plugin, a, b):
    refused, send = [], inside(plugin).control.send

    def refuses(sending, why):
        refused.append(sending) if len(refused) < 3 else send(sending, why)

    inside(plugin).control.send = refuses
    async with jobs(c, "a", "b"):
        futures = map_in_each(c, "ab", inc, range(10))
        assert await c.gather(futures) == [*range(1, 11)] * 2
    assert len(refused) == 3


@with_plugin([1, 1], prefetch=0)
async def test_nothing_is_sent_to_a_worker_that_stopped_in_the_same_turn(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 6, run=2)
        stopped = s.workers[b.address]
        s.running.discard(stopped)
        plugin.pools.rounds.dispatcher.free[b.address] = plugin.pools.sent.on(stopped)
        before = set(stopped.processing)
        inside(plugin).dispatch()
        assert set(stopped.processing) == before
        s.running.add(stopped)
        inside(plugin).slots_changed(b.address)
        assert await let_end(c, futures) == list(range(6))
