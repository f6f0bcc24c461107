"""Whatever fails while models with states train, wait, migrate or arrive, all results arrive."""

import asyncio

import dask
import pytest
from distributed import Client, Event, Nanny, Status, get_worker
from distributed.scheduler import KilledWorker
from distributed.utils import sync
from distributed.utils_test import captured_logger
from driving import inside, until, with_plugin
from moving import begin, check, killing, let_some_leave

import dask_slaq as slaq
from dask_slaq.scheduler.trials.states import release
from dask_slaq.worker import reports
from dask_slaq.worker.trial_agent import agent_of


@with_plugin([1, 1])
async def test_nothing_is_left_of_models_whose_client_is_lost(c, s, plugin, a, b):
    async with Client(s.address, asynchronous=True) as other:
        _search, futures = await begin(other, plugin)
        await let_some_leave(other, plugin, a)
        assert futures
    await until(lambda: not s.tasks)
    await until(lambda: not (agent_of(b).slots or inside(plugin).searches))
    assert not inside(plugin).migrating and not inside(plugin).states


@with_plugin([1, 1])
async def test_models_whose_states_are_all_lost_begin_anew(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    for key in [key for key, t in search.trials.alive.items() if t.checkpoint.reports]:
        release(s, inside(plugin).states[key], "slaq-states")
    with captured_logger("dask_slaq.worker.reports") as log:
        await a.close()
        check(await c.gather(futures))
    assert "was lost with its workers: it begins anew" in log.getvalue()


@with_plugin([1, 1])
async def test_a_model_begins_without_a_traceback_on_a_worker_that_closes(c, s, plugin, a, b):
    def train():
        worker = get_worker()
        sync(worker.loop, worker.rpc.close)  # as a worker does first
        for k in slaq.steps(3):
            slaq.report(1 / (k + 1))
        return slaq.resume()

    with captured_logger("dask_slaq") as log:
        async with slaq.search("grid", client=c):
            with dask.annotate(slaq_state=["slaq-state-x"]):
                assert await c.submit(train, workers=[b.address]) is None
    assert "Traceback" not in log.getvalue()


@pytest.mark.slow
@with_plugin([1, 1], Worker=Nanny, config={"distributed.scheduler.allowed-failures": 1})
async def test_a_model_with_a_state_that_kills_its_workers_is_lost_alone(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=20):
        futures = c.map(killing(5, at=4, states=True), range(6), pure=False)
        found = await asyncio.gather(*(f._result() for f in futures), return_exceptions=True)
    assert found[:5] == list(range(5)) and isinstance(found[5], KilledWorker)


@pytest.mark.parametrize("what", ["failure", "worker", "cancelled", "paused"])
@with_plugin([1, 1, 1], may_fail=True)
async def test_a_fault_while_models_arrive(c, s, plugin, a, b, d, what, monkeypatch):
    """They have been sent to a worker, and are about to fetch their state there."""
    fetch, arriving = reports.fetch, []

    async def late(worker, names):
        arriving.append(worker)
        await Event("fetch", client=c).wait()
        return await fetch(worker, names)

    _search, futures = await begin(c, plugin)
    await slaq.pause("grid", client=c)
    await c.retire_workers([a.address])
    await until(lambda: inside(plugin).migrating)
    monkeypatch.setattr(reports, "fetch", late)
    await slaq.unpause("grid", client=c)
    await until(lambda: arriving)
    if what == "failure":
        plugin.fall_back(RuntimeError("test"))
    elif what == "worker":
        closing = asyncio.ensure_future(arriving[0].close(executor_wait=False))
    elif what == "paused":
        arriving[0].status = Status.paused
    else:
        await c.cancel(futures)
    await Event("fetch", client=c).set()
    if what == "cancelled":
        await until(lambda: not s.tasks)
        assert not inside(plugin).migrating and not inside(plugin).states
        return
    check(await c.gather(futures))
    if what == "worker":
        await closing
    assert not inside(plugin).migrating
    arriving[0].status = Status.running if what == "paused" else arriving[0].status
