"""Spare copies of late tasks: the first result counts, none is lost and none comes twice."""

import asyncio
from collections import defaultdict
from threading import Event

import dask
import pytest
from distributed import Worker, get_worker, secede
from distributed.utils_test import captured_logger, gen_cluster
from driving import counted_calls, on_virtual_clock, start_plugin, until, work

from benchmarks.spares import measure


@pytest.mark.slow
def test_one_slow_worker_of_eight_delays_less():
    for ways in measure(8).values():
        without, spare = ways["without"], ways["spare"]
        assert spare["p99_s"] < 0.5 * without["p99_s"]
        assert spare["core_seconds"] < 1.05 * without["core_seconds"]


@pytest.mark.parametrize("event", ["ends", "joins"])
def test_late_tasks_wait_for_an_idle_thread_and_look_for_none(event):
    """The work is that of n looks for n late tasks, and nothing while no thread gets free."""

    def calls(n):
        async def scenario(client, cluster, plugin):
            first, other = (worker.address for worker in cluster.workers)
            with dask.annotate(slaq_spare=True):
                known = [client.submit(work, 0.1, key=f"late-{k}") for k in range(8)]
                await client.gather(known)
                busy = client.submit(work, 60, key="busy", workers=[other])
                keys = [f"late-{k}" for k in range(8, 8 + n)]
                on = {"workers": [first], "allow_other_workers": True}
                late = [client.submit(work, 900, key=key, **on) for key in keys]
            await asyncio.sleep(50)  # from now on all are late
            with counted_calls("scheduler/jobs/spares.py") as idle:
                await asyncio.sleep(5)
            assert not idle and not plugin.spares.made
            with counted_calls("scheduler/jobs/spares.py") as found:
                await (cluster.add_worker(1) if event == "joins" else busy)
                await asyncio.sleep(1)
            assert plugin.spares.made == 1
            await client.cancel([busy, *late])
            return found.total()

        return on_virtual_clock(scenario, [1, 1])

    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        few, many = calls(8), calls(32)
    assert many <= 4 * few


#: Events that runs wait for, by name of the task and of the worker.
MAY_END: defaultdict[str, Event] = defaultdict(Event)


def hold(name: str) -> str:
    """A task that ends at once if it has no name, else when its run on this worker may end.

    It returns the name of the worker.
    """
    worker = get_worker().name
    if name:
        if name == "secedes" and worker == "copy":
            secede()
        MAY_END[f"{name}-{worker}"].wait(60)
        if name == "fails" and worker == "copy":
            raise ValueError("the copy fails")
    return worker


def with_copy(test):
    """Run a test with a task that computes on the worker "first" and, in a copy, on "copy"."""

    @gen_cluster(client=True, nthreads=[], timeout=60)
    async def run(client, scheduler):
        plugin = await start_plugin(client, scheduler)
        async with (
            Worker(scheduler.address, nthreads=1, name="first") as first,
            Worker(scheduler.address, nthreads=1, name="copy") as copy,
        ):
            workers = {"first": first, "copy": copy}
            with dask.annotate(slaq_spare=True):
                await client.gather([client.submit(hold, "", pure=False) for _ in range(8)])
                kind = next((k for k in ("fails", "secedes") if k in test.__name__), "task")
                future = client.submit(hold, kind, workers=["first"], allow_other_workers=True)
            ends = {name: MAY_END[f"{kind}-{name}"] for name in workers}
            for event in ends.values():
                event.clear()
            try:
                await until(lambda: plugin.spares.made == 1, 5)
                there = copy.state.tasks
                state = "long-running" if kind == "secedes" else "executing"
                await until(lambda: future.key in there and there[future.key].state == state)
                await test(client, scheduler, plugin, future, workers, ends)
            finally:
                for event in ends.values():
                    event.set()
            await future.cancel()
            alive = [w for w in (first, copy) if w.status.name == "running"]
            await until(lambda: not any(future.key in w.state.tasks for w in alive))
            assert future.key not in scheduler.tasks
            assert not plugin.spares.running
            assert plugin.failed is None
            scheduler.validate_state()

    run.__name__ = test.__name__
    return run


@with_copy
async def test_a_copy_that_ends_first_counts(c, s, plugin, future, workers, ends):
    ends["copy"].set()
    assert await future == "copy"
    assert await c.submit(str.upper, future) == "COPY"
    assert [w.name for w in s.tasks[future.key].who_has] == ["copy"]
    ends["first"].set()
    await until(lambda: future.key not in workers["first"].state.tasks)


@with_copy
async def test_a_task_that_ends_before_its_copy_counts(c, s, plugin, future, workers, ends):
    ends["first"].set()
    assert await future == "first"
    ends["copy"].set()
    await until(lambda: future.key not in workers["copy"].state.tasks)
    await until(lambda: [w.name for w in s.tasks[future.key].who_has] == ["first"])


@with_copy
async def test_both_may_end_at_once(c, s, plugin, future, workers, ends):
    # Both results are on their way before the scheduler reads one of them.
    for event in ends.values():
        event.set()
    assert await future in ("first", "copy")
    assert await c.submit(len, future) > 0


@with_copy
async def test_a_copy_that_secedes_is_not_the_task(c, s, plugin, future, workers, ends):
    ws = s.tasks[future.key].processing_on
    before = len(s.story(future.key))
    await c.submit(str.upper, "x")  # after what the worker of the copy has sent
    await asyncio.sleep(0.05)
    assert len(s.story(future.key)) == before
    assert not ws.long_running and future.key not in plugin.pools.tracker.seceded_at
    ends["first"].set()
    assert await future == "first"


@with_copy
async def test_nothing_is_lost_with_the_worker_of_the_copy(c, s, plugin, future, workers, ends):
    await workers["copy"].close(executor_wait=False)
    ends["first"].set()
    assert await future == "first"


@with_copy
async def test_nothing_is_lost_with_the_first_worker(c, s, plugin, future, workers, ends):
    ends["copy"].set()
    await workers["first"].close(executor_wait=False)
    assert await future == "copy"


@with_copy
async def test_the_first_run_goes_on_if_the_copy_fails(c, s, plugin, future, workers, ends):
    ends["copy"].set()
    await until(lambda: workers["copy"].state.tasks[future.key].state == "error")
    assert future.status == "pending"
    ends["first"].set()
    assert await future == "first"
    await until(lambda: future.key not in workers["copy"].state.tasks)


@with_copy
async def test_the_first_run_counts_if_the_hook_is_broken(c, s, plugin, future, workers, ends):
    """Dask would end the connection of a worker that has a result which it does not expect."""
    plugin.spares.finished = lambda *args: 1 / 0
    connected = set(s.stream_comms)
    with captured_logger("dask_slaq", propagate=False):
        ends["copy"].set()
        await until(lambda: plugin.failed == "ZeroDivisionError: division by zero")
        assert future.status == "pending"
        ends["first"].set()
        assert await future == "first"
    assert set(s.stream_comms) == connected
    plugin.failed = None  # for what is checked at the end


@with_copy
async def test_a_task_that_is_stolen_has_no_copy(c, s, plugin, future, workers, ends):
    # Dask may have dropped inputs where the copy is, which the stolen task would lack there.
    first, copy = (s.workers[w.address] for w in workers.values())
    stealing, ts = s.extensions["stealing"], s.tasks[future.key]
    stealing.move_task_request(ts, first, copy)
    stealing.log(("request", []))
    assert not plugin.spares.running
    ends["copy"].set()
    await until(lambda: future.key not in workers["copy"].state.tasks)
    ends["first"].set()
    assert await future == "first"


@with_copy
async def test_a_cancelled_task_ends_on_both(c, s, plugin, future, workers, ends):
    await future.cancel()
    await until(lambda: future.key not in s.tasks)


@with_copy
async def test_copies_end_with_the_plugin(c, s, plugin, future, workers, ends):
    await c.unregister_scheduler_plugin("slaq")
    plugin.stop()
    ends["copy"].set()
    await until(lambda: future.key not in workers["copy"].state.tasks)
    ends["first"].set()
    assert await future == "first"
