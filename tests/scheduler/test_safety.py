"""Never worse than plain Dask: no effect without jobs, and any error gives all tasks back."""

import pytest
from distributed.utils_test import captured_logger, inc
from driving import (
    another_client,
    assert_nothing_left,
    held_tasks,
    hook,
    in_job,
    inside,
    jobs,
    let_end,
    restricted_by_us,
    start_plugin,
    until,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, NoPlugin


def broken(*args, **kwargs):
    raise ZeroDivisionError("on purpose")


@with_plugin([1, 1], epoch="1ms")
async def test_without_jobs_there_is_no_effect(c, s, plugin, a, b):
    seen = []
    hook(s, "transition", lambda key, *_, **__: seen.append(s.tasks[key].worker_restrictions))
    assert await c.gather(c.map(inc, range(30))) == list(range(1, 31))
    assert seen and set(seen) == {None}
    assert not inside(plugin).is_running()
    assert not inside(plugin).bindings and not inside(plugin).epochs


@with_plugin([1, 1], prefetch=0, may_fail=True)
async def test_any_error_gives_everything_back_and_is_logged_once(c, s, plugin, a, b):
    with captured_logger("dask_slaq", propagate=False) as log:
        async with jobs(c, "a", "b"):
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            inside(plugin).reallocate = broken
            plugin.run_once()
            assert plugin.failed == "ZeroDivisionError: on purpose"
            await until(lambda: not inside(plugin).holds)
            plugin.run_once()
            assert not inside(plugin).is_running()
            assert restricted_by_us(s, plugin) == []
            assert (await slaq.status(c))["failed"] == plugin.failed
            assert await let_end(c, futures) == list(range(8))
            assert await in_job(c, "b").submit(inc, 3) == 4
    assert log.getvalue().count("dask_slaq failed") == 1


@with_plugin([2], may_fail=True)
async def test_an_error_while_a_task_is_sent_ends_the_dispatch(c, s, plugin, a):
    with captured_logger("dask_slaq", propagate=False) as log:
        async with jobs(c, "a", "b"):
            tracker, control, sent = inside(plugin).tracker, inside(plugin).control, []
            follow, send = tracker.transition, control.send
            tracker.transition = lambda key, start, finish, kwargs: (
                broken() if finish == "processing" else follow(key, start, finish, kwargs)
            )
            control.send = lambda sending, why: sent.append(sending) or send(sending, why)
            assert await in_job(c, "a").submit(inc, 1) == 2  # the other thread stays free meanwhile
            assert len(sent) == 1
            assert plugin.failed == "ZeroDivisionError: on purpose"
    assert log.getvalue().count("dask_slaq failed") == 1


@with_plugin([1, 1], may_fail=True)
async def test_jobs_that_start_after_a_failure_are_told(c, s, plugin, a, b):
    with captured_logger("dask_slaq", propagate=False) as log:
        plugin.fall_back(ZeroDivisionError("on purpose"))
        async with jobs(c, "a", "b"):
            assert await in_job(c, "a").submit(inc, 1) == 2
    assert "job a runs under plain Dask: ZeroDivisionError: on purpose" in log.getvalue()
    await c.unregister_scheduler_plugin("slaq")
    await start_plugin(c, s)
    async with jobs(c, "a"):
        assert (await slaq.status(c))["failed"] is None


@with_plugin([1, 1], may_fail=True)
async def test_after_a_failure_the_jobs_of_a_closed_client_still_end(c, s, plugin, a, b):
    other = await another_client(s)
    with captured_logger("dask_slaq", propagate=False):
        async with slaq.job("a", client=other):
            plugin.fall_back(ZeroDivisionError("on purpose"))
            await other.close()
            await until(lambda: not inside(plugin).jobs)
        async with slaq.job("a", client=c):
            pass


@with_plugin([1, 1], prefetch=0, may_fail=True)
async def test_after_a_failure_a_job_whose_tasks_have_ended_ends_before_another(c, s, plugin, a, b):
    with captured_logger("dask_slaq", propagate=False):
        async with jobs(c, "b", "a"):  # "a" ends first
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            plugin.fall_back(ZeroDivisionError("on purpose"))
            assert await let_end(c, futures) == [*range(8)]


@with_plugin([1, 1], prefetch=0, may_fail=True)
async def test_a_job_that_ends_right_after_a_failure_leaves_nothing(c, s, plugin, a, b):
    """What was told of in the same turn of the event loop, before all tasks are given back."""
    with captured_logger("dask_slaq", propagate=False) as log:
        async with jobs(c, "a", "b"):
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            ended = next(ts for ts in s.tasks.values() if ts.processing_on)
            plugin.fall_back(ZeroDivisionError("on purpose"))
            s.transitions({ended.key: "released"}, stimulus_id="test")  # nobody follows it
            plugin.end_job("a", "done")
            assert "a" not in inside(plugin).jobs and not inside(plugin).pool_of
            assert await let_end(c, futures) == [*range(8)]
            assert plugin.scaling.busy() <= {"b"}
    assert log.getvalue().count("dask_slaq failed") == 1


@with_plugin([1, 1], prefetch=0, epoch="20ms")
async def test_unregistering_mid_run_gives_everything_back(c, s, plugin, a, b):
    with captured_logger("dask_slaq", propagate=False) as log:
        async with jobs(c, "a", "b") as (job, _):
            futures = await held_tasks(c, plugin, "a", 8, run=2)
            await c.unregister_scheduler_plugin("slaq")
            await until(lambda: not inside(plugin).pools)
            assert_nothing_left(s, plugin)
            job.report(1.0)
            with pytest.raises(NoPlugin):
                await slaq.status(c)
            assert await let_end(c, futures) == list(range(8))
    assert log.getvalue().count("was unregistered") == 1


@with_plugin([1, 1], prefetch=0)
async def test_registering_again_while_jobs_run_is_refused(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        futures = await held_tasks(c, plugin, "a", 8, run=2)
        refused = pytest.raises(InvalidSetting, match="before another one is registered: a, b")
        with captured_logger("distributed", propagate=False), refused:
            await start_plugin(c, s)
        assert s.plugins["slaq"] is plugin
        assert set((await slaq.status(c))["jobs"]) == {"a", "b"}
        assert await let_end(c, futures) == list(range(8))
