"""Tasks with a label that has a limit: never more at once, in jobs and outside, and no stall."""

import asyncio
import random
from time import monotonic

import dask
import pytest
from distributed import Event, Worker
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import captured_logger, inc
from driving import (
    HELD,
    begun,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    map_in_each,
    on_virtual,
    ready,
    running,
    start_plugin,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
    work,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting

LIMITS = {"database": 2, "licence": 1}


def labelled(label="database", **more):
    """Tasks submitted in this block have a label."""
    return dask.annotate(slaq_limit=label, **more)


class Peak(SchedulerPlugin):
    """The most tasks of each label that were on workers at once."""

    name = "peak"

    def __init__(self, scheduler):
        self.scheduler, self.now, self.most = scheduler, {}, {}
        scheduler.add_plugin(self)

    def transition(self, key, start, finish, *args, **kwargs):
        if start == "processing":
            self.now.pop(key, None)
        if finish == "processing":
            self.now[key] = (self.scheduler.tasks[key].annotations or {}).get("slaq_limit")
            for label in set(self.now.values()):
                count = list(self.now.values()).count(label)
                self.most[label] = max(self.most.get(label, 0), count)


def held(scheduler):
    return [ts for ts in scheduler.tasks.values() if ts.state in HELD]


@with_plugin([2, 2], limits=LIMITS)
async def test_without_a_job_no_more_tasks_of_a_label_run_than_it_may(c, s, plugin, a, b):
    peak = Peak(s)
    with labelled():
        futures = c.map(wait_for, ["go"] * 10, range(10), pure=False)
    with labelled("licence"):
        other = c.map(wait_for, ["go"] * 3, pure=False)
    await until(lambda: len(held(s)) == 10)
    plain = c.map(inc, range(20))  # others are not held, and use the threads that are free
    assert await c.gather(plain) == list(range(1, 21))
    assert not inside(plugin).holds
    assert (await slaq.status(c))["limits"] == {
        "database": {"most": 2, "running": 2, "waiting": 8},
        "licence": {"most": 1, "running": 1, "waiting": 2},
    }
    assert await let_end(c, futures) == list(range(10))
    await c.gather(other)
    assert {label: peak.most[label] for label in LIMITS} == LIMITS
    assert not inside(plugin).limits.waiting and not inside(plugin).limits.used.total()


@pytest.mark.parametrize("names", ["a", "ab"])
@with_plugin([2, 2], limits=LIMITS, prefetch=0)
async def test_jobs_and_other_tasks_share_the_limit(c, s, plugin, a, b, names):
    peak = Peak(s)
    async with jobs(c, *names):
        with labelled():
            futures = map_in_each(c, names, wait_for, ["go"] * 6, range(6))
            futures += c.map(wait_for, ["go"] * 6, range(6), pure=False)  # in no job
        await until(lambda: len(held(s)) == len(futures) - 2)
        past = map_in_each(c, names, inc, range(8))  # what has no label goes past
        assert await c.gather(past) == [*range(1, 9)] * len(names)
        assert inside(plugin).tick(1.0) == 0  # none of them is lost
        why = (await slaq.explain(names[-1], client=c))["reason"]
        assert "2 of 2 tasks labelled database run" in why
        assert await let_end(c, futures) == [*range(6)] * (len(names) + 1)
    assert peak.most["database"] == 2


@pytest.mark.parametrize(
    ("how", "contended"),
    [("end", True), ("err", False), ("are cancelled", True), ("lose their worker", False)],
)
@with_plugin([2, 2], config={"distributed.scheduler.allowed-failures": 9}, limits=LIMITS)
async def test_others_follow_when_tasks(c, s, plugin, a, b, how, contended):
    def fail_after(event):
        Event(event).wait()
        raise ValueError("as it should")

    peak = Peak(s)
    async with jobs(c, *("ab" if contended else "")):
        with labelled(), tasks_of("a"):
            function = fail_after if how == "err" else wait_for
            first = c.map(function, ["first"] * 2, pure=False, workers=[a.address], retries=0)
            await until(lambda: len(s.workers[a.address].processing) == 2)
            others = c.map(where, range(6), pure=False)
        await until(lambda: len(held(s)) == 6)
        if how == "are cancelled":
            await c.cancel(first)  # their threads are blocked until the event is set
            await until(lambda: len(held(s)) < 6)
        elif how == "lose their worker":
            with labelled(), tasks_of("a"):
                first = [c.submit(wait_for, "first", pure=False)]
            await a.close(executor_wait=False)
        await Event("first").set()
        assert len(await c.gather(others)) == 6
        if how == "err":
            assert {future.status for future in first} == {"error"}
    assert peak.most["database"] == 2


@with_plugin([2, 2], limits=LIMITS)
async def test_tasks_that_dask_places_are_limited_too(c, s, plugin, a, b):
    peak = Peak(s)
    async with jobs(c, "a", "b"):
        with labelled(workers=[a.address], allow_other_workers=True):
            loose = c.map(wait_for, ["go"] * 4, pure=False)
        with labelled(workers=[b.address]), tasks_of("a"):
            pinned = c.map(wait_for, ["go"] * 4, pure=False)
        await until(lambda: len(held(s)) == 6)
        assert inside(plugin).limits.waiting == 6
        await let_end(c, [*loose, *pinned])
    assert peak.most["database"] == 2


@with_plugin([2, 2], limits={"licence": 1})
async def test_held_tasks_and_tasks_that_dask_places_take_turns(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        with labelled("licence"):
            first = await begun(s, c.submit(wait_for, "go", key="first"))
            pinned = c.map(where, range(6), key="pinned", pure=False, workers=[a.address])
            held_ones = in_job(c, "a").map(where, range(6), key="held", pure=False)
        await until(lambda: len(held(s)) == 12)
        await let_end(c, [first, *pinned, *held_ones])
    order = [binding.key.split("-")[0] for binding in inside(plugin).bindings][1:]
    assert order[:6].count("pinned") == order[:6].count("held") == 3


@with_plugin([2, 2], limits={"licence": 1})
async def test_tasks_that_no_worker_may_run_keep_no_other_waiting(c, s, plugin, a, b):
    with labelled("licence"):
        first = await begun(s, c.submit(wait_for, "go", key="first"))
        with dask.annotate(resources={"GPU": 1}, priority=1):
            futures = c.map(where, range(4), key="gpu", pure=False)
        last = c.submit(where, key="last")
    await until(lambda: len(held(s)) == 5)
    await let_end(c, [first, last])
    await until(lambda: not inside(plugin).limits.used["licence"])
    assert len(held(s)) == 4
    async with Worker(s.address, resources={"GPU": 4}, nthreads=4) as worker:
        peak = Peak(s)
        assert await c.gather(futures) == [worker.address] * 4
        assert peak.most["licence"] == 1


@gen_cluster(client=True, nthreads=[2, 2])
async def test_an_unknown_label_is_no_limit_and_said_once(c, s, a, b):
    for limits in ({}, LIMITS):
        plugin = await start_plugin(c, s, limits=limits)
        with captured_logger("dask_slaq.scheduler.pools.label_limits") as log:
            with labelled("archive"):
                assert await c.gather(c.map(inc, range(9), pure=False)) == list(range(1, 10))
            with labelled(["database"]):
                assert await c.submit(inc, 1, pure=False) == 2
        known = "none" if not limits else "database, licence"
        assert log.getvalue().splitlines() == [
            f"tasks are labelled slaq_limit={label}, which has no limit; slaq.limits has: {known}"
            for label in ("'archive'", repr(repr(["database"])))
        ]
        assert plugin.failed is None


@pytest.mark.parametrize("how", ["unregistered", "removed", "failed"])
@with_plugin([2, 2], limits={"licence": 1}, may_fail=True)
async def test_without_the_plugin_all_go_to_dask(c, s, plugin, a, b, how):
    with labelled("licence"):
        futures = c.map(wait_for, ["go"] * 4, pure=False)
    await until(lambda: len(held(s)) == 3)
    if how == "unregistered":
        await c.unregister_scheduler_plugin("slaq")
    elif how == "removed":
        s.remove_plugin("slaq")  # nobody is told of it
    else:
        plugin.fall_back(ValueError("as it should"))
    await until(lambda: not held(s))
    assert "is_rootish" not in vars(s)
    await let_end(c, futures)


@with_plugin([2, 2], limits={"licence": 1}, may_fail=True)
async def test_no_limit_is_put_into_force_after_a_failure(c, s, plugin, a, b):
    plugin.fall_back(ValueError("as it should"))
    with pytest.raises(InvalidSetting, match=r"no limit is in force, because .* as it should"):
        await slaq.set_limit("licence", 1, client=c)
    with labelled("licence"):
        assert await c.gather(c.map(inc, range(8), pure=False)) == list(range(1, 9))


@with_plugin([2, 2], limits={"licence": 1, "disk": 2})
async def test_a_limit_is_removed_and_one_that_is_not_there_is_an_error(c, s, plugin, a, b):
    await slaq.set_limit("licence", None, client=c)
    assert dict(inside(plugin).limits.most) == {"disk": 2}
    for unknown in ("licence", 3):
        with pytest.raises(InvalidSetting, match="has no limit; labels with a limit are: disk"):
            await slaq.set_limit(unknown, None, client=c)
    assert dict(inside(plugin).limits.most) == {"disk": 2}


@pytest.mark.parametrize("contended", [False, True])
@with_plugin([2, 2], prefetch=0)
async def test_limits_change_while_tasks_wait(c, s, plugin, a, b, contended):
    limits = inside(plugin).limits
    async with jobs(c, *("ab" if contended else "")):
        with labelled("licence"), tasks_of("a"):
            futures = c.map(wait_for, [f"go-{n}" for n in range(12)], pure=False)
        await until(lambda: len(s.tasks) == 12 and any(ws.processing for ws in s.workers.values()))
        there = sum(len(ws.processing) for ws in s.workers.values())
        inside(plugin).set_limits({"licence": 1})
        assert limits.used["licence"] == there
        await until(lambda: len(held(s)) == 12 - there)
        inside(plugin).set_limits({"licence": there + 1})
        if not contended:
            await until(lambda: limits.used["licence"] == there + 1)
        inside(plugin).set_limits({})
        for n in range(12):
            await Event(f"go-{n}").set()
        await c.gather(futures)
        if not contended:
            assert "is_rootish" not in vars(s)


@with_plugin([4], limits={"database": 3}, prefetch=0)
async def test_tasks_that_start_together_wait_until_their_label_has_room_for_all(c, s, plugin, a):
    peak = Peak(s)
    async with slaq.job("a", client=c, gang=True), slaq.job("b", client=c):
        with labelled():
            one = await begun(s, in_job(c, "b").submit(wait_for, "one"))
            gang = in_job(c, "a").map(wait_for, ["go"] * 3, pure=False)
        await until(lambda: ready(plugin, "a") == 3)
        assert await in_job(c, "b").submit(inc, 1) == 2  # no thread is kept for it meanwhile
        assert ready(plugin, "a") == 3
        await let_end(c, one, "one")
        await until(lambda: running(plugin, "a") == 3)
        await let_end(c, gang)
        with labelled():  # more than the label allows never start together
            five = in_job(c, "a").map(inc, range(5), pure=False)
        assert await c.gather(five) == [1, 2, 3, 4, 5]
    assert peak.most["database"] == 3


@with_plugin([2, 2], limits={"licence": 1})
async def test_a_gang_above_the_limit_of_its_label_is_said_to_be(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        gang = {"slaq_gang": "g", "slaq_gang_size": 2}
        with labelled("licence", **gang), tasks_of("a"):
            futures = [c.submit(inc, 1, pure=False, workers=[w.address]) for w in (a, b)]
        await until(lambda: len(held(s)) == 2)
        why = "waits: 2 tasks labelled licence start together, above its limit of 1"
        assert (await slaq.explain("a", client=c))["reason"] == why
        await slaq.set_limit("licence", 2, client=c)
        assert await c.gather(futures) == [2, 2]


@on_virtual([2, 2, 2], limits=LIMITS)
async def test_random_work_keeps_to_its_limits_and_ends(client, cluster, plugin):
    rng, peak = random.Random(0), Peak(cluster.scheduler)
    async with slaq.job("a", client=client), slaq.job("b", client=client):
        waves = []
        for _ in range(40):
            label, name = rng.choice(["database", "licence", "none"]), rng.choice("ab")
            with tasks_of(name) if rng.random() < 0.8 else dask.annotate(), labelled(label):
                seconds = [rng.uniform(0.01, 0.5) for _ in range(rng.randint(1, 9))]
                waves.append(client.map(work, seconds, pure=False))
            await asyncio.sleep(rng.uniform(0, 0.5))
            if rng.random() < 0.2:
                await client.cancel(waves.pop(rng.randrange(len(waves))))
        await client.gather([future for wave in waves for future in wave])
    await client.gather(client.map(work, [0.1] * 5, pure=False))
    assert not inside(plugin).limits.used.total() and not inside(plugin).limits.waiting
    assert {label: peak.most[label] for label in LIMITS} == LIMITS


@with_plugin([2, 2], limits={"licence": 1})
async def test_a_restart_leaves_no_task_counted(c, s, plugin, a, b):
    with labelled("licence"):
        futures = c.map(wait_for, ["go"] * 4, pure=False)
    await until(lambda: len(held(s)) == 3)
    await Event("go").set()
    await c.restart(wait_for_workers=False)
    limits = inside(plugin).limits
    assert limits and not limits.used.total() and not limits.waiting
    async with Worker(s.address):
        with labelled("licence"):
            assert await c.gather(c.map(inc, range(4), pure=False)) == [1, 2, 3, 4]
    del futures


@on_virtual([2, 2], limits={"licence": 1})
async def test_a_label_passes_from_task_to_task_at_once(client, cluster, plugin):
    begin = monotonic()
    with labelled("licence"):
        await client.gather(client.map(work, [0.1] * 5, pure=False))
    assert monotonic() - begin < 0.7


@with_plugin([4], limits={"licence": 1}, prefetch=0)
async def test_what_is_left_of_a_raised_limit_goes_to_jobs_at_once(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        with labelled("licence"):
            first = await begun(s, c.submit(wait_for, "go", 0))
            pinned = c.submit(wait_for, "go", 1, workers=[a.address])
            mine = in_job(c, "a").submit(wait_for, "go", 2)
        await until(lambda: len(held(s)) == 2)
        inside(plugin).set_limits({"licence": 3})
        await until(lambda: not held(s), 5)
        await let_end(c, [first, pinned, mine])
