"""Dask's own decisions: what is held has no restriction of ours, and nothing of ours stays."""

import functools
import math
import random
import time
from types import SimpleNamespace

import pytest
from distributed import Event, Worker
from distributed.utils_test import captured_logger, inc
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
    ready,
    running,
    start_plugin,
    state_of,
    steal,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
)

#: The methods of Dask's scheduler that are overridden while tasks are held.
OVERRIDDEN = {
    *("is_rootish", "decide_worker_non_rootish", "decide_worker_rootish_queuing_enabled"),
    "stimulus_queue_slots_maybe_opened",
}
NO_WORKERS = {"distributed.scheduler.no-workers-timeout": "200ms"}


def overrides(scheduler):
    return OVERRIDDEN & vars(scheduler).keys()


@pytest.mark.parametrize("taken", [OVERRIDDEN, {"is_rootish"}])
@with_plugin([1, 1], prefetch=0)
async def test_overrides_that_are_taken_away_are_back_within_an_epoch(c, s, plugin, a, b, taken):
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 8, run=2)
        for name in taken:
            delattr(s, name)
        s.stimulus_queue_slots_maybe_opened(stimulus_id="test")  # which others may call
        await Event("go").set()
        plugin.run_once()
        assert overrides(s) == OVERRIDDEN
        assert await c.gather(futures) == list(range(8))


@with_plugin([1, 1], prefetch=0)
async def test_the_queue_is_what_others_expect(c, s, plugin, a, b):
    saturation = s.WORKER_SATURATION
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 8, run=2)
        queue = s.queued
        assert queue and len(queue) == 6 and queue.peek() in queue
        assert [ts.key for ts in queue.sorted()] == [f.key for f in futures[2:]]
        assert list(queue.peekn(2)) == list(queue.sorted())[:2]
        with pytest.raises(KeyError):
            queue.remove(s.tasks[futures[0].key])
        s.check_idle()
        assert s.idle_since is None  # and Dask would end a scheduler without progress otherwise
        s.WORKER_SATURATION = float("inf")  # tasks are held all the same
        futures += in_job(c, "a").map(wait_for, ["go"] * 2, range(8, 10), pure=False)
        await until(lambda: ready(plugin, "a") == 8)
        assert await let_end(c, futures) == list(range(10))
    plugin.run_once()
    await until(lambda: not overrides(s))
    assert math.isinf(s.WORKER_SATURATION)
    s.WORKER_SATURATION = saturation


@with_plugin([1, 1, ("", 1, {"resources": {"GPU": 1}})], prefetch=0, config=NO_WORKERS)
async def test_queued_tasks_whose_workers_leave_fail_as_under_dask(c, s, plugin, a, b, d):
    async with jobs(c, "a", "b"):
        busy = in_job(c, "b").map(wait_for, ["go"] * 3, workers=[d.address], pure=False)
        futures = in_job(c, "a").map(inc, range(3), resources={"GPU": 1}, pure=False)
        await until(lambda: ready(plugin, "a"))
        await d.close(executor_wait=False)
        plugin.run_once()
        await c.gather(busy + futures, errors="skip")
        assert {future.status for future in busy + futures} == {"error"}
        await Event("go").set()


@with_plugin([1, 1], prefetch=0)
async def test_a_held_task_has_the_restrictions_that_the_user_gave_it(c, s, plugin, a, b):
    both = {a.address, b.address}
    async with jobs(c, "a", "b"):
        busy = await held_tasks(c, plugin, "a", 2, run=2)
        plain = in_job(c, "a").submit(where, key="plain")
        chosen = in_job(c, "a").submit(where, key="chosen", workers=sorted(both))
        for future, given in ((plain, None), (chosen, both)):
            await state_of(s, future, *HELD)
            ts = s.tasks[future.key]
            assert inside(plugin).is_held(ts)
            # Dask's validation allows none in its queue: there they are laid aside.
            assert ts.worker_restrictions == (None if ts.state == "queued" else given)
            assert not ts.host_restrictions and not ts.loose_restrictions
        await let_end(c, [*busy, plain, chosen])
        assert s.tasks["plain"].worker_restrictions is None
        assert s.tasks["chosen"].worker_restrictions == both


@pytest.mark.parametrize("end", ["jobs end", "stop", "fall back", "hold no more"])
@with_plugin([1, 1], prefetch=0, may_fail=True)
async def test_dask_decides_by_itself_once_nothing_is_to_be_held(c, s, plugin, a, b, end):
    with captured_logger("dask_slaq", propagate=False):
        async with jobs(c, "a", "b"):
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            assert overrides(s) == OVERRIDDEN
            if end == "stop":
                plugin.stop()
            elif end == "fall back":
                plugin.fall_back(ZeroDivisionError("on purpose"))
            elif end == "hold no more":
                inside(plugin).hold(False)
            await until(lambda: end == "jobs end" or not overrides(s))
        await until(lambda: not overrides(s))
    assert not s.unrunnable
    assert await let_end(c, futures) == list(range(8))


class Other:
    """Somebody else's override of one method, around what is there, and undone as is usual."""

    def __init__(self, scheduler, name, wraps=True):
        self.scheduler, self.name, self.calls = scheduler, name, 0
        self.before = before = getattr(scheduler, name)

        def around(*args, **kwargs):
            self.calls += 1
            return before(*args, **kwargs)

        setattr(scheduler, name, functools.wraps(before)(around) if wraps else around)

    def undo(self):
        setattr(self.scheduler, self.name, self.before)


@pytest.mark.parametrize(("name", "wraps"), zip(sorted(OVERRIDDEN), [True, False] * 2, strict=True))
@with_plugin([1, 1], prefetch=0)
async def test_what_somebody_else_puts_around_ours_goes_on(c, s, plugin, a, b, name, wraps):
    """While tasks are held, when they no longer are, when they are again, and once it is gone."""
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 8, run=2)
        other = Other(s, name, wraps)
        assert all(inside(plugin).is_held(ts) for ts in s.unrunnable)
    for _ in range(2):  # with the other one there, and after it is gone
        await until(lambda: not inside(plugin).holds)
        assert await let_end(c, futures) == list(range(8))
        assert await c.gather(c.map(inc, range(6), pure=False)) == list(range(1, 7))
        assert await c.submit(len, "ab", pure=False) == 2  # one alone is no root task
        await Event("go").clear()
        async with jobs(c, "a", "b"):
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            async with Worker(s.address, nthreads=1):
                await until(lambda: running(plugin, "a") == 3)
                assert await let_end(c, futures) == list(range(8))
        other.undo()
    assert other.calls


@with_plugin([1, 1], prefetch=0)
async def test_overrides_come_and_go_in_any_order(c, s, plugin, a, b):
    """What Dask asks is answered as plain Dask does while nothing is held, and at no growing cost.

    What is held stays so whenever ours was put in last.
    """
    rng, patch, others = random.Random(0), inside(plugin).patch, []
    future = await begun(s, c.submit(wait_for, "go", 1))
    ts = s.tasks[future.key]
    held = False
    told = dict.fromkeys(("came", "left", "slots_opened"), lambda *args: None)
    patch.tasks = SimpleNamespace(asked=lambda ts: held, is_held=lambda ts: held, **told)

    def ask():
        found = []
        for name in OVERRIDDEN:
            plain = getattr(type(s), name)
            about = {"ts": ts} if name in ("is_rootish", "decide_worker_non_rootish") else {}
            about |= {"stimulus_id": "test"} if name.startswith("stimulus") else {}
            found.append((getattr(s, name)(**about), plain(s, **about)))
        return found

    def depth(name):
        method, layers = getattr(s, name), 0
        while hasattr(method, "mark") or hasattr(method, "__wrapped__"):
            method, layers = getattr(method, "plain", None) or method.__wrapped__, layers + 1
        return layers

    for _ in range(500):
        act = rng.choice(["hold", "rest", "come", "come", "undo", "undo", "delete"])
        name = rng.choice(sorted(OVERRIDDEN))
        if act == "hold":
            held = True
            patch.install()
            assert s.decide_worker_non_rootish(ts) is None and not s.is_rootish(ts)
        elif act == "rest":
            held = False
            patch.remove()
        elif act == "come" and len(others) < 4:
            others.append(Other(s, name))
        elif act == "undo" and others:
            others.pop(rng.randrange(len(others))).undo()
        elif act == "delete":
            vars(s).pop(name, None)
        answers = ask()
        if not held:
            assert all(found == plain for found, plain in answers)
        assert all(depth(name) < 30 for name in OVERRIDDEN)
    for name in OVERRIDDEN:
        vars(s).pop(name, None)
    assert await let_end(c, future) == 1


@with_plugin([1, 1, 1], policy=Fixed(a=(1.0, 1.0), b=(2.0, 1.0)), prefetch=0)
async def test_workers_that_the_user_gave_are_kept_to_and_are_back(c, s, plugin, a, b, d):
    async with jobs(c, "a", "b"):
        plugin.run_once()
        both = set(s.workers) - set(inside(plugin).pool("a").granted.workers)
        futures = in_job(c, "a").map(where, range(12), workers=sorted(both), pure=False)
        assert set(await c.gather(futures)) <= both
    assert all(s.tasks[future.key].worker_restrictions == both for future in futures)
    assert "passed" not in {binding.reason for binding in inside(plugin).bindings}


def slow_where(n):
    time.sleep(0.02)
    return where()


STEALING = {"distributed.scheduler.work-stealing-interval": "10ms"}


@gen_cluster(client=True, nthreads=[1, 1, 1, 1], config=STEALING)
async def test_without_lending_no_task_runs_outside_its_jobs_set(c, s, *workers):
    """Not by work stealing either, while the other job uses its set."""
    policy = Fixed(a=(2.0, 1.0), b=(2.0, 1.0))
    plugin = await start_plugin(c, s, policy=policy, lend=False, prefetch=0)
    async with jobs(c, "a", "b"):
        plugin.run_once()
        mine = set(inside(plugin).pool("a").granted.workers)
        assert len(mine) == 2
        others = await begun(s, in_job(c, "b").map(wait_for, ["go"] * 2, pure=False))
        for _ in range(2):  # the second time it is known how long they take
            futures = in_job(c, "a").map(slow_where, range(30), pure=False)
            s.extensions["stealing"].balance()
            assert set(await c.gather(futures)) == mine
        await let_end(c, others)
    assert_nothing_left(s, plugin)


@with_plugin([1, 1], prefetch=0)
async def test_only_queued_tasks_are_moved_when_holding_begins(c, s, plugin, a, b):
    moved = []
    async with jobs(c, "a"):
        first = c.map(wait_for, ["go"] * 12, range(12), pure=False)
        then = c.map(inc, first, pure=False)
        await until(lambda: len(s.queued) == 8 and len(s.tasks) == 24)
        states = {key: ts.state for key, ts in s.tasks.items()}
        hook(s, "transition", lambda key, *args, **kwargs: moved.append(key))
        async with jobs(c, "b"):
            await until(lambda: ready(plugin, "a") == 8)
            assert set(moved) <= {key for key, state in states.items() if state == "queued"}
            for future in then:
                ts = s.tasks[future.key]
                assert ts.state == "waiting" and ts.worker_restrictions is None
            s.remove_plugin("transition")
            assert await let_end(c, then) == list(range(1, 13))


@with_plugin([1, 1], prefetch="1h", policy=Fixed(a=(1.0, 1.0), b=(1.0, 2.0)))
async def test_a_task_that_is_stolen_goes_on_before_others_there(c, s, plugin, a, b):
    """It was sent to be first on its worker, before all that Dask has sent; so it is elsewhere."""
    async with jobs(c, "a", "b"):
        plugin.run_once()
        await Event("known").set()
        with tasks_of("b"):
            await c.gather(c.map(wait_for, ["known"] * 4, pure=False))  # so others are sent ahead
        with tasks_of("a"):
            busy = [c.submit(wait_for, "go", workers=[w.address], pure=False) for w in (a, b)]
            await begun(s, busy)
            there = [
                c.submit(inc, i, workers=[w.address], key=f"waits-{w.address}-{i}")
                for w in (a, b)
                for i in range(4)
            ]
            await begun(s, there)
        moved = await begun(s, in_job(c, "b").submit(wait_for, "known", key="moved"))
        ts = s.tasks["moved"]
        given, victim = ts.priority, a if ts.processing_on.address == a.address else b
        thief = b if victim is a else a
        await until(lambda: "moved" in victim.state.tasks)
        sent = victim.state.tasks["moved"].priority[:-1]  # the last one is the worker's own
        assert sent < given
        steal(s, ts, thief)
        await until(lambda: "moved" in thief.state.tasks)
        assert thief.state.tasks["moved"].priority[:-1] == sent
        assert ts.priority == given  # the user's own, for what Dask derives from it
        await let_end(c, [*busy, *there, moved])
        ended = [key for key, _, finish, *_ in s.transition_log if finish == "memory"]
        others = [ended.index(f"waits-{thief.address}-{i}") for i in range(4)]
        assert ended.index("moved") < min(others)
