"""Other features of Dask keep working while jobs run, and their tasks are charged to their job."""

import asyncio
import time
from time import monotonic

import dask
import dask.array as da
import pytest
from dask import delayed
from distributed import Event, Worker, fire_and_forget
from distributed.utils_test import inc
from driving import (
    HELD,
    PATIENCE,
    Fixed,
    Recorder,
    assert_nothing_left,
    begun,
    gen_cluster,
    held_tasks,
    in_job,
    inside,
    jobs,
    let_end,
    ready,
    reasons,
    served,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
)

import dask_slaq as slaq

GPU = [("127.0.0.1", 1), ("127.0.0.1", 1, {"resources": {"GPU": 1}})]


class Counter:
    def __init__(self):
        self.n = 0

    def add(self):
        self.n += 1
        return self.n


@with_plugin([1, 1], prefetch=0, owners={"ann": {"max-threads": 1}})
async def test_actors_are_not_held_by_other_jobs_or_a_limit(c, s, plugin, a, b):
    async with jobs(c, "a", owner="ann"), jobs(c, "b", owner="bob"):
        busy = await held_tasks(c, plugin, "b", 4, run=2)
        counters = in_job(c, "a").map(lambda _: Counter(), range(2), actor=True, pure=False)
        await until(lambda: all(ts.state not in HELD for ts in s.tasks.values() if ts.actor))
        assert not inside(plugin).pool("a").ready
        await Event("go").set()
        for counter in await c.gather(counters):
            assert await counter.add() == 1
            assert await counter.add() == 2
        await c.gather(busy)
        del counter, counters


@pytest.mark.parametrize("lend", [True, False])
@gen_cluster(client=True, nthreads=[1, 1])
async def test_a_gang_of_pinned_tasks_is_not_broken_up(c, s, a, b, lend):
    def meet(mine, other):
        Event(mine).set()
        Event(other).wait()
        return where()

    policy = Fixed(a=(1.0, 1.0), b=(1.0, 1.0))  # the gang needs one worker more than its set has
    plugin = await start_plugin(c, s, policy=policy, prefetch=0, lend=lend)
    async with jobs(c, "a", "b"):
        plugin.run_once()
        busy = in_job(c, "b").map(wait_for, ["go"] * 6, pure=False)
        await until(lambda: inside(plugin).pool("b").ready)
        ends = (("x", "y", a.address), ("y", "x", b.address))
        gang = [in_job(c, "a").submit(meet, mine, other, workers=[w]) for mine, other, w in ends]
        await begun(s, gang)
        assert inside(plugin).pool("a").demand == 2
        assert await let_end(c, gang) == [a.address, b.address]
        assert inside(plugin).pool("a").demand == 0
        await c.gather(busy)
    assert {reasons(plugin)[future.key] for future in gang} == {"passed"}
    assert_nothing_left(s, plugin)


class Unmovable:
    """What cannot be sent to another worker."""

    def __reduce__(self):
        raise TypeError("cannot pickle")


def unwrapped(made: list[Unmovable]) -> str:
    return f"{type(made[0]).__name__} on {where()}"


# Dask's stealing would move the task to the idle worker, with the plugin and without.
@with_plugin([1, 1], prefetch=0, config={"distributed.scheduler.work-stealing": False})
async def test_what_a_pinned_task_made_is_used_where_it_is(c, s, plugin, a, b):
    """As LightGBM's sockets are: without a pickle, and used by tasks without restriction."""
    async with jobs(c, "a", "b"):
        made = in_job(c, "a").submit(lambda: [Unmovable()], workers=[a.address], pure=False)
        await state_of(s, made, "memory")
        busy = await begun(s, in_job(c, "b").submit(wait_for, "go", workers=[a.address]))
        used = in_job(c, "a").submit(unwrapped, made)
        await until(lambda: used.key in s.tasks)
        assert inside(plugin).tick(1.0) == 0  # although the other worker is free
        assert await let_end(c, used) == f"Unmovable on {a.address}"
        await busy


@with_plugin([1, 1])
async def test_workers_given_with_others_allowed_are_a_preference(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            future = c.submit(where, workers=["tcp://127.0.0.1:1"], allow_other_workers=True)
            assert await future in (a.address, b.address)
            named = c.submit(where, workers=[s.workers[b.address].name], key="named")
            assert await named == b.address


@with_plugin([1, 1])
async def test_tasks_for_workers_that_are_not_there_wait_as_under_dask(c, s, plugin, a, b):
    absent = ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            future = c.submit(where, workers=absent)
            await state_of(s, future, *HELD)
            assert await c.submit(inc, 1) == 2
        assert inside(plugin).tick(1.0) == 0
    assert s.tasks[future.key].state == "no-worker"
    assert s.tasks[future.key].worker_restrictions == set(absent)


@with_plugin([1, 1])
async def test_a_job_in_a_job_needs_no_resources_of_that(c, s, plugin, a, b):
    gpu = slaq.job("gpu", client=c, resources={"GPU": 1})
    async with slaq.job("other", client=c), gpu, slaq.job("inner", client=c):
        assert await asyncio.wait_for(c.submit(inc, 1), PATIENCE) == 2


@with_plugin(GPU)
async def test_the_job_block_annotates_the_resources(c, s, plugin, a, b):
    async with slaq.job("plain", client=c), slaq.job("gpu", client=c, resources={"GPU": 1}):
        plugin.run_once()
        grant = inside(plugin).grants["gpu"]
        assert set(grant.workers) <= {b.address} and grant.share <= 1
        futures = c.map(where, range(4), pure=False)
        assert set(await c.gather(futures)) == {b.address}
        await c.compute(da.ones(4, chunks=1).sum())
        assert all(ts.resource_restrictions == {"GPU": 1} for ts in s.tasks.values())


@with_plugin([1, 1])
async def test_a_job_whose_resources_nobody_supplies_holds_up_nobody(c, s, plugin, a, b):
    async with slaq.job("plain", client=c), slaq.job("gpu", client=c, resources={"GPU": 1}):
        held = c.submit(where, key="held")
        await state_of(s, held, *HELD)
        plugin.run_once()
        grants = inside(plugin).grants
        assert (grants["gpu"].share, grants["plain"].share) == (0, 2)
        async with Worker(s.address, resources={"GPU": 1}) as w:
            assert await held == w.address


@with_plugin([1, 1])
async def test_data_lost_after_its_job_ended_is_computed_again_for_the_next(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        await (x := in_job(c, "a").submit(inc, 1, key="x", workers=[a.address, b.address]))
    home = next(iter(s.tasks["x"].who_has)).address
    async with jobs(c, "c", "d"):
        y = await begun(s, in_job(c, "c").submit(wait_for, "go", 5, x, key="y"))
        await s.remove_worker(home, stimulus_id="test")
        assert await let_end(c, y) == 5


@with_plugin([1])
async def test_what_was_built_in_another_block_is_of_the_block_that_computes_it(c, s, plugin, a):
    async def owner(graph):
        future = c.compute(graph)
        await future
        return inside(plugin).bindings[-1].job

    async with slaq.job("around", client=c):
        async with slaq.job("built", client=c):
            of_tasks, of_array = [delayed(inc)(n) for n in range(5)], da.ones(4, chunks=4) + 1
            assert await owner(of_tasks[0]) == "built"
        # A block inside a block: nothing but these ran.
        assert await owner(of_tasks[1]) == "around"
        async with slaq.job("computes", client=c):
            assert await owner(of_tasks[2]) == "computes"
            assert await owner(of_array) == "computes"
        assert await owner(of_tasks[3]) == "around"
        for by_hand in ("nobody", None):
            with tasks_of(by_hand):
                assert await owner(delayed(inc)(9, pure=False)) == f"other:{c.id}"
    async with slaq.job("built", client=c), slaq.job("computes", client=c):
        assert await owner(of_tasks[4]) == "built"  # which runs


@pytest.mark.parametrize("job", [["a"], {"a": 1}, 3], ids=str)
@with_plugin([1])
async def test_an_annotation_that_is_no_name_is_of_no_job(c, s, plugin, a, job):
    async with jobs(c, "a"):
        assert await in_job(c, job).submit(inc, 1) == 2
        assert inside(plugin).bindings[-1].job == f"other:{c.id}"


@with_plugin([1, 1], prefetch=0)
async def test_the_same_new_key_of_two_jobs_is_run_once_and_blocks_neither(c, s, plugin, a, b):
    recorder = Recorder(s, plugin)
    async with jobs(c, "b"):
        async with jobs(c, "a"):
            busy = await held_tasks(c, plugin, "b", 2, run=2)
            first = in_job(c, "a").submit(inc, 1, key="same")
            await state_of(s, first, *HELD)
            with tasks_of("b"):
                second = c.submit(inc, 1, key="same")
                after = c.submit(inc, second, key="after")
        # Job a ended before its task ran: it is left to Dask, and job b goes on.
        assert (await let_end(c, [first, second, after, *busy]))[:3] == [2, 2, 3]
    assert [run.key for run in recorder.ended].count("same") <= 1


@with_plugin([1], prefetch=0)
async def test_no_workers_timeout_does_not_err_tasks_in_a_pool(c, s, plugin, a):
    s.no_workers_timeout = 0.4
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 3, run=1)
        since = monotonic()
        await until(lambda: monotonic() > since + 0.5)
        time.sleep(0.5)  # the event loop is busy for longer than the timeout
        await until(lambda: monotonic() > since + 1.5)
        assert [s.tasks[future.key].state for future in futures].count(HELD[0]) == 2
        assert await let_end(c, futures) == [0, 1, 2]


@with_plugin([1, 1])
async def test_fire_and_forget_tasks_run(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        fire_and_forget(in_job(c, "a").submit(lambda: Event("done").set(), key="forget"))
        await Event("done").wait()
        await until(lambda: "forget" not in s.tasks)
        assert not inside(plugin).pool("a").tasks


@pytest.mark.parametrize("reserve", [0.0, 0.75])
@gen_cluster(client=True, nthreads=[2, 2])
async def test_tasks_of_no_job_get_a_share_while_jobs_run(c, s, a, b, reserve):
    """A fair one, or as many of the threads as are reserved for them."""
    plugin = await start_plugin(c, s, reserve=reserve, prefetch=0)
    other = f"other:{c.id}"
    async with jobs(c, "a"):
        busy = in_job(c, "a").map(wait_for, ["go"] * 8, pure=False)
        with dask.annotate(slaq_job=None):
            plain = c.map(wait_for, ["go"] * 8, pure=False)
        await until(lambda: other in inside(plugin).pools and len(s.tasks) == 16)
        plugin.run_once()
        shares = [inside(plugin).grants[name].share for name in (other, "a")]
        assert shares == pytest.approx([3, 1] if reserve else [2, 2])
        assert inside(plugin).holds
        assert not (await slaq.status(c))["jobs"][other]["reports"]
        await let_end(c, busy + plain)
        await until(lambda: plugin.run_once() or set(inside(plugin).pools) == {"a"})
    assert_nothing_left(s, plugin)


@pytest.mark.parametrize(("other", "order"), [("ann", "abbaa"), ("bob", "aaabb")])
@with_plugin([1], policy=Fixed(a=(0.5, 2.0), b=(0.5, 1.0)), prefetch=0)
async def test_priorities_of_dask_count_among_the_work_of_one_owner(c, s, plugin, a, other, order):
    async with slaq.job("a", client=c, owner="ann"), slaq.job("b", client=c, owner=other):
        plugin.run_once()
        busy = await held_tasks(c, plugin, "a", 1, run=1)
        low = in_job(c, "a").map(where, range(2), priority=-100, key="low", pure=False)
        high = in_job(c, "b").map(where, range(2), priority=100, key="high", pure=False)
        await until(lambda: ready(plugin, "a") == ready(plugin, "b") == 2)
        await let_end(c, low + high + busy)
    assert served(plugin) == list(order)
