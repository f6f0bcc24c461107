"""Scheduling survives errors in Dask's own bookkeeping, such as stale counts after a restart."""

from __future__ import annotations

import inspect

import pytest
from distributed import Event, Scheduler, Worker, secede
from distributed.utils_test import captured_logger, inc
from driving import ONE, tasks_of, until, with_plugin

import dask_slaq as slaq

CONFIG = {"distributed.scheduler.validate": False}


def give_up_slot():
    secede()
    Event("seceded").wait()


async def leave_a_count_behind(c, s, worker):
    """A task whose secession is told twice (workers may, says their source), then a restart."""
    s.validate = False
    future = c.submit(give_up_slot)
    await until(lambda: any(ws.long_running for ws in s.workers.values()))
    again = {"key": future.key, "worker": worker.address, "compute_duration": None}
    if "run_id" in inspect.signature(s.handle_long_running).parameters:
        again["run_id"] = s.tasks[future.key].run_id
    s.handle_long_running(**again, stimulus_id="again")
    await Event("seceded").set()
    await future
    assert dict(s._task_prefix_count_global) == {"give_up_slot": -1}
    del future
    await until(lambda: not s.tasks)
    with captured_logger("distributed"):
        await c.restart(wait_for_workers=False)


@pytest.mark.skipif(
    "run_id" not in inspect.signature(Scheduler.handle_long_running).parameters,
    reason="this Dask's own occupancy fails already when a secession is told twice",
)
@with_plugin(ONE, config=CONFIG)
async def test_counts_that_outlive_a_restart_are_dropped(c, s, plugin, a):
    with captured_logger("dask_slaq") as log:
        await leave_a_count_behind(c, s, a)
    assert "give_up_slot" in log.getvalue()
    assert s.total_occupancy == 0
    async with Worker(s.address):
        assert await c.gather(c.map(inc, range(8))) == list(range(1, 9))
    assert plugin.failed is None


@with_plugin(ONE, config=CONFIG, ahead=0)
async def test_a_task_that_dask_failed_to_send_is_sent_again(c, s, plugin, a):
    async with slaq.job("a", client=c), slaq.job("b", client=c):
        await slaq.pause("a", client=c)
        with tasks_of("a"):
            held = c.map(inc, range(8))
        await until(lambda: len(plugin.pools.pools["a"].ready) == 8)
        s._task_prefix_count_global["gone"] = -1
        with pytest.raises(KeyError, match="gone"):
            assert s.total_occupancy
        with captured_logger("distributed"), captured_logger("dask_slaq") as log:
            await slaq.resume("a", client=c)
            assert await c.gather(held) == list(range(1, 9))
        assert "failed in Dask's scheduler" in log.getvalue()
        assert "tasks may hang" not in log.getvalue()
        plugin.pools.check()
    assert plugin.failed is None
