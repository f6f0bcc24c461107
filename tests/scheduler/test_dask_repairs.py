"""Scheduling survives errors in Dask's own bookkeeping, and what would lead to one."""

import inspect

import pytest
from distributed import Event, Worker, secede
from distributed.utils_test import captured_logger, inc
from driving import ONE, tasks_of, until, with_plugin

import dask_slaq as slaq


def give_up_slot():
    secede()
    Event("seceded").wait()


@pytest.mark.parametrize("failed", [False, True])
@with_plugin(ONE)
async def test_a_secession_that_is_told_twice_counts_once(c, s, plugin, a, failed):
    """Workers may, says their source. Dask would keep a count of -1 over a restart, and fail."""
    if failed:
        plugin.failed = "before"
    future = c.submit(give_up_slot)
    await until(lambda: any(ws.long_running for ws in s.workers.values()))
    again = {"key": future.key, "worker": a.address, "compute_duration": None}
    if "run_id" in inspect.signature(s.handle_long_running).parameters:
        again["run_id"] = s.tasks[future.key].run_id
    s.stream_handlers["long-running"](**again, stimulus_id="again")
    await Event("seceded").set()
    await future
    assert s.total_occupancy == 0
    del future
    await until(lambda: not s.tasks)
    with captured_logger("distributed"):
        await c.restart(wait_for_workers=False)
    assert s.total_occupancy == 0
    async with Worker(s.address):
        assert await c.gather(c.map(inc, range(8))) == list(range(1, 9))
    plugin.failed = None


@with_plugin(ONE, config={"distributed.scheduler.validate": False}, ahead=0)
async def test_a_task_that_dask_failed_to_send_is_sent_again(c, s, plugin, a, monkeypatch):
    async with slaq.job("a", client=c), slaq.job("b", client=c):
        await slaq.pause("a", client=c)
        with tasks_of("a"):
            held = c.map(inc, range(8))
        await until(lambda: len(plugin.pools.pools["a"].ready) == 8)
        plain = s.check_idle_saturated

        def fails_once(*args, **kwargs):
            monkeypatch.setattr(s, "check_idle_saturated", plain)
            raise KeyError("gone")

        monkeypatch.setattr(s, "check_idle_saturated", fails_once)
        with captured_logger("distributed"), captured_logger("dask_slaq") as log:
            await slaq.resume("a", client=c)
            assert await c.gather(held) == list(range(1, 9))
        assert "failed in Dask's scheduler" in log.getvalue()
        assert "tasks may hang" not in log.getvalue()
        plugin.pools.check()
    assert plugin.failed is None
