"""When workers, clients or tasks fail mid-run, other results arrive and no state remains."""

import asyncio
import inspect

import dask
import pytest
from distributed import Event, Variable, Worker, secede
from distributed.utils_test import captured_logger, inc
from driving import (
    HELD,
    another_client,
    begun,
    held_tasks,
    in_job,
    inside,
    jobs,
    let_end,
    start_plugin,
    state_of,
    tasks_of,
    until,
    wait_for,
    where,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.core.errors import SlaqError


@with_plugin([1, 1], prefetch=0)
async def test_inputs_lost_while_a_task_waits_in_its_pool_are_computed_again(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        await (x := in_job(c, "a").submit(inc, 1, key="x", workers=[a.address, b.address]))
        home = next(iter(s.tasks["x"].who_has)).address
        busy = await held_tasks(c, plugin, "a", 2, run=2)
        later = in_job(c, "a").submit(inc, x, key="later")
        await state_of(s, later, *HELD)
        await s.remove_worker(home, stimulus_id="test")
        assert s.tasks["later"].state == "waiting"
        assert await let_end(c, later) == 3
        await c.gather(busy)


@with_plugin([1, 1], prefetch=0)
async def test_a_paused_worker_gets_nothing_until_it_resumes(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        s.handle_worker_status_change("paused", a.address, "test")
        assert set(await c.gather(in_job(c, "a").map(where, range(6), pure=False))) == {b.address}
        plugin.run_once()
        grants = inside(plugin).grants
        assert not any(a.address in grant.workers for grant in grants.values())
        with tasks_of("a"):
            busy = await begun(s, c.submit(wait_for, "go", workers=[b.address]))
            later = c.submit(where)
        await state_of(s, later, *HELD)
        change = s.stream_handlers["worker-status-change"]
        change(status="running", worker=a.address, stimulus_id="test")
        assert await later == a.address
        await let_end(c, busy)


@with_plugin([])
async def test_jobs_outlive_a_restart_of_the_cluster(c, s, plugin):
    async with jobs(c, "a", "b") as (job, _):
        held = in_job(c, "a").map(inc, range(6))
        await state_of(s, held[-1], *HELD)
        await c.restart(wait_for_workers=False)
        assert not inside(plugin).pool_of
        assert not inside(plugin).pool("a").tasks
        async with Worker(s.address), Worker(s.address):
            assert await in_job(c, "a").submit(inc, 1) == 2
            job.report(1.0)
            await until(lambda: inside(plugin).job("a").iteration == 1)


def fail_first(counter: str) -> int:
    tries = Variable(counter)
    n = tries.get()
    tries.set(n + 1)
    if n == 0:
        raise ZeroDivisionError("the first time")
    return n


@with_plugin([1])
async def test_a_task_that_is_retried_goes_through_the_pool_again(c, s, plugin, a):
    for name in ("tries", "again"):
        await Variable(name).set(0)
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            assert await c.submit(fail_first, "tries", retries=1, key="tries") == 1
            again = c.submit(fail_first, "again", key="again")
        with pytest.raises(ZeroDivisionError):
            await again
        await again.retry()
        assert await again == 1
    assert [b.key for b in inside(plugin).bindings] == ["tries", "tries", "again", "again"]
    assert "passed" not in {b.reason for b in inside(plugin).bindings}


@with_plugin([1], prefetch=0)
async def test_a_task_released_and_submitted_again_at_once_runs(c, s, plugin, a):
    async with jobs(c, "a", "b"):
        with tasks_of("a"):
            busy = await begun(s, c.submit(wait_for, "go"))
            first = c.submit(inc, 1, key="x")
            await state_of(s, first, *HELD)
            first.release()
        second = in_job(c, "b").submit(inc, 1, key="x")
        assert await let_end(c, second) == 2
        await busy


@with_plugin([1, 1])
async def test_a_job_whose_client_reconnects_leaves_one_of_its_name_alone(c, s, plugin, a, b):
    async with another_client(s) as other:
        mine = await slaq.job("a", client=other).__aenter__()
        mine.report(1.0)
        running = s.plugins["slaq"].jobs.reports
        await until(lambda: running == {"a": 1})
        before = other.scheduler_comm
        before.comm.abort()
        await until(lambda: not running and other.scheduler_comm is not before)
        await until(lambda: other.id in s.clients and other.status == "running")
        async with slaq.job("a", client=c) as theirs:
            with captured_logger("dask_slaq", propagate=False) as log:
                for loss in (0.5, 0.4):
                    mine.report(loss)
                await mine.__aexit__(None, None, None)
            assert log.getvalue().count("its client lost its connection") == 1
            assert mine.iteration == 1
            theirs.report(1.0)
            await until(lambda: running == {"a": 1})
        with pytest.raises(SlaqError, match="its block was left already"):
            await mine.__aexit__(None, None, None)


@with_plugin([1, 1])
async def test_a_job_waits_for_its_client_to_connect_again(c, s, plugin, a, b):
    async with another_client(s) as other:
        connect, may_connect = other._ensure_connected, asyncio.Event()

        async def connect_later(timeout=None):
            await may_connect.wait()
            await connect(timeout)

        other._ensure_connected = connect_later
        other.scheduler_comm.comm.abort()
        await until(lambda: other.status == "connecting" and other.id not in s.client_comms)
        job = slaq.job("a", client=other)
        opening = asyncio.create_task(job.__aenter__())
        await slaq.status(c)  # what comes later is answered
        assert not opening.done() and not inside(plugin).reports
        may_connect.set()
        await opening
        assert list(inside(plugin).reports) == ["a"]
        await job.__aexit__(None, None, None)


@with_plugin([1, 1])
async def test_a_client_that_connects_again_says_again_whose_its_tasks_are(c, s, plugin, a, b):
    with dask.config.set({"slaq.owner": "ann", "distributed.client.preload": ["dask_slaq"]}):
        other = await another_client(s)
    async with other:
        assert inside(plugin).clients.of(other.id) == "ann"
        await c.unregister_scheduler_plugin("slaq")
        plugin = await start_plugin(c, s)  # as on a scheduler that was started again
        assert inside(plugin).clients.of(other.id).startswith("unknown@")
        other.scheduler_comm.comm.abort()
        await until(lambda: inside(plugin).clients.of(other.id) == "ann")


@with_plugin([1, 1], prefetch=0)
async def test_the_jobs_of_a_closed_client_end_and_its_tasks_go(c, s, plugin, a, b):
    other = await another_client(s)
    async with slaq.job("mine", client=c):
        mine = in_job(c, "mine").map(wait_for, ["go"] * 4, range(4), pure=False)
        async with slaq.job("theirs", client=other) as job:
            theirs = other.map(wait_for, ["go"] * 4, pure=False)
            await until(lambda: len(s.tasks) == 8)
            await other.close()
            with captured_logger("dask_slaq", propagate=False) as log:
                job.report(1.0)  # training goes on without the scheduler
                job.report(0.5)
            assert log.getvalue().count("no longer get through") == 1
        await until(lambda: set(inside(plugin).pools) == {"mine"})
        assert not {future.key for future in theirs} & set(inside(plugin).pool_of)
        assert await let_end(c, mine) == [0, 1, 2, 3]


@pytest.mark.parametrize("failed", [False, True])
@with_plugin([1])
async def test_a_secession_that_is_told_twice_counts_once(c, s, plugin, a, failed):
    """Workers may, says their source. Dask would keep a count of -1 over a restart, and fail."""

    def give_up_slot():
        secede()
        Event("seceded").wait()

    if failed:
        plugin.failed = "before"
    future = c.submit(give_up_slot)
    await until(lambda: any(ws.long_running for ws in s.workers.values()))
    again = {"key": future.key, "worker": a.address, "compute_duration": None}
    if "run_id" in inspect.signature(s.handle_long_running).parameters:
        again["run_id"] = s.tasks[future.key].run_id
    s.stream_handlers["long-running"](**again, stimulus_id="again")
    await let_end(c, future, "seceded")
    assert s.total_occupancy == 0
    del future
    await until(lambda: not s.tasks)
    with captured_logger("distributed"):
        await c.restart(wait_for_workers=False)
    assert s.total_occupancy == 0
    async with Worker(s.address):
        assert await c.gather(c.map(inc, range(8))) == list(range(1, 9))
    plugin.failed = None


@with_plugin([1], config={"distributed.scheduler.validate": False}, prefetch=0)
async def test_a_task_that_dask_failed_to_send_is_sent_again(c, s, plugin, a, monkeypatch):
    async with slaq.job("a", client=c), slaq.job("b", client=c):
        await slaq.pause("a", client=c)
        held = in_job(c, "a").map(inc, range(8))
        await until(lambda: len(inside(plugin).pool("a").ready) == 8)
        plain = s.check_idle_saturated

        def fails_once(*args, **kwargs):
            monkeypatch.setattr(s, "check_idle_saturated", plain)
            raise KeyError("gone")

        monkeypatch.setattr(s, "check_idle_saturated", fails_once)
        with captured_logger("distributed"), captured_logger("dask_slaq") as log:
            await slaq.unpause("a", client=c)
            assert await c.gather(held) == list(range(1, 9))
        assert "failed in Dask's scheduler" in log.getvalue()
        assert "tasks may hang" not in log.getvalue()
        inside(plugin).check()
