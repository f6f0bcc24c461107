"""Jobs of asynchronous clients and other processes report, and queries describe them."""

import asyncio
from unittest import mock

import numpy as np
import pytest
from distributed.utils_test import captured_logger, inc
from driving import (
    another_client,
    assert_nothing_left,
    gen_cluster,
    in_job,
    inside,
    jobs,
    until,
    where,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.client import bindings
from dask_slaq.core.errors import SlaqError
from dask_slaq.scheduler.views import status_of_jobs


@with_plugin([1, 1])
async def test_jobs_of_an_asynchronous_client(c, s, plugin, a, b):
    async def drive(name):
        async with slaq.job(name, client=c) as job:
            for loss in (2.0, 1.0):
                assert await c.submit(inc, 1, pure=False) == 2
                slaq.report(loss)
            return job.iteration

    assert await asyncio.gather(*map(drive, "abc")) == [2, 2, 2]
    assert {binding.job for binding in inside(plugin).bindings} == set("abc")
    assert_nothing_left(s, plugin)
    with pytest.raises(SlaqError, match="async with"), slaq.job("d", client=c):
        pass
    assert not inside(plugin).jobs


@with_plugin([1, 1], epoch="1h", policy="max-total")
async def test_status_tells_every_job(c, s, plugin, a, b):
    status = await slaq.status(c)
    assert status == {
        "policy": "max-total",
        "epoch": 3600.0,
        "capacity": 2,
        "holding": False,
        "failed": None,
        "jobs": {},
        "owners": {},
        "teams": {},
        "limits": {},
        "speeds": "",
        "foretold": {"ended": 0, "held": 0},
        "run_history": {"file": None, "runs": 0, "stored": 0, "failed": None},
        "searches": (),
    }
    async with jobs(c, "a", "b") as (job, _):
        for loss in (4.0, 2.0, 1.0):
            job.report(loss)
        await until(lambda: inside(plugin).job("a").iteration == 3)
        await in_job(c, "a").submit(inc, 1)
        plugin.run_once()
        status = await slaq.status(c)
        assert status["holding"]
        told = status["jobs"]["a"]
        assert told["iteration"] == 3
        assert told["max_iter"] is None
        assert told["loss"] == 1.0
        assert 0 <= told["normalized_loss"] < 1
        assert told["share"] + status["jobs"]["b"]["share"] == pytest.approx(2)
        assert set(told["workers"]) <= {a.address, b.address}
        assert told["attained"] > 0
        assert told["running"] == told["ready"] == 0
        assert told["why"]
        assert status["jobs"]["b"]["iteration"] == 0
        assert np.isnan(status["jobs"]["b"]["loss"])


@with_plugin([1, 1], policy="max-total")
async def test_history_is_what_the_status_was_read_in_pieces(c, s, plugin, a, b):
    asked, told = [], []
    plain = inside(plugin).epochs.read

    def read(*args):
        asked.append(args)
        plugin.run_once()  # epochs go on meanwhile, and are not in this answer
        return plain(*args)

    async with jobs(c, "a", "b") as (one, two):
        for k in range(12):
            one.report(1.0 / (k + 1))
            if k % 3:
                two.report(0.5**k)
            await until(lambda k=k: inside(plugin).reports["a"] == k + 1)
            plugin.run_once()
            told.append(status_of_jobs(plugin.jobs))
        with mock.patch("dask_slaq.core.jobs.history.PIECE_BYTES", 200):
            inside(plugin).epochs.read = read
            history = await slaq.history(c)
    assert len(asked) >= 6
    rows = history.isel(epoch=slice(-len(told) - 1, -1))
    for name in history.data_vars:
        for job in "ab":
            key = "attained" if name == "core_seconds" else name  # no task runs
            expected = [status[job][key] for status in told]
            np.testing.assert_array_equal(rows[name].sel(job=job), expected)


@with_plugin([1, 1])
async def test_bindings_tell_what_went_where_and_why(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        worker = await in_job(c, "a").submit(where, key=("x", 1))
    [told] = await bindings(c)
    assert told.pop("time") > 1.7e9
    assert told.pop("why").startswith("its turn")
    assert told == {"key": "('x', 1)", "job": "a", "worker": worker, "reason": "granted"}


@with_plugin([1, 1])
async def test_a_client_closed_in_the_block_ends_it_quietly(c, s, plugin, a, b):
    other = await another_client(s)
    with captured_logger("dask_slaq", propagate=False) as log:
        async with slaq.job("a", client=other):
            await other.close()
    await until(lambda: not inside(plugin).jobs)
    assert log.getvalue() == ""


@gen_cluster(client=True, nthreads=[1, 1])
async def test_the_plugin_can_be_registered_by_its_old_name(c, s, a, b):
    if not hasattr(c, "register_scheduler_plugin"):
        pytest.skip("register_scheduler_plugin is gone from this distributed")
    with pytest.warns(DeprecationWarning):
        await c.register_scheduler_plugin(slaq.SlaqPlugin(policy="fair"))
    assert (await slaq.status(c))["policy"] == "fair"
