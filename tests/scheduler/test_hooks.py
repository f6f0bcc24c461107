"""Each hook that Dask calls may fail: the cluster goes on under plain Dask, and says so, loudly.

The hooks are those of the list that installs them, so a new one is tried here without further ado.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect

import dask
import pytest
from distributed import Client, Worker, worker_client
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import captured_logger, inc
from driving import PATIENCE, gen_cluster, start_plugin, tasks_of, until

import dask_slaq as slaq
from dask_slaq.core.settings import ALERT_TOPIC
from dask_slaq.scheduler.plugin import AT_FIRST_USE, HOOKS, SlaqPlugin
from dask_slaq.scheduler.pools.seam import OVERRIDDEN, QUESTIONS, Seam

#: Hooks of the plugin, of the seam, and of the plugin's own timers.
GUARDED = [
    *((SlaqPlugin, name) for name in (*HOOKS, "run_once", "reallocate", "changed")),
    *((Seam, name) for name in QUESTIONS),
]


def broken(*args, **kwargs):
    raise ZeroDivisionError("on purpose")


def seceding(n):
    with worker_client():
        return n + 1


def trains(n):
    for k in range(5):
        slaq.report(1 / (k + 1))
    return n + 1


async def whatever_dask_calls(c, s, futures):
    """Have Dask call everything that is in the list, in the middle of other work."""
    a, b = list(s.workers.values())[:2]
    with dask.annotate(slaq_spare=True):
        futures += c.map(inc, range(12), pure=False)
    futures += c.map(seceding, range(4), pure=False)
    async with (
        Worker(s.address, nthreads=1) as worker,
        Client(s.address, asynchronous=True) as other,
    ):
        futures += c.map(inc, range(12), pure=False)
        await other.submit(inc, 3, pure=False)
        with pytest.raises(ZeroDivisionError):
            await c.submit(broken, pure=False)
        for ws in (a, b):
            change = s.stream_handlers["worker-status-change"]
            for status in ("paused", "running"):
                change(status=status, worker=ws.address, stimulus_id="test")
        s.log_event("stealing", ("confirm", "x", "ready", a.address, b.address, "x"))
        s.plugins["slaq"]._keep()  # which a timer calls
        s.log_event("test", 1)
        await c.log_event("test", 1)
        worker.log_event("test", 1)
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def situation(c, plugin, what):
    """No job, two of them, or a search beside another job."""
    async with contextlib.AsyncExitStack() as stack:
        if what != "no job":
            kind = slaq.search if what == "a search" else slaq.job
            await stack.enter_async_context(slaq.job("a", client=c, spare=True))
            await stack.enter_async_context(kind("b", client=c))
        yield stack


@pytest.mark.parametrize("what", ["no job", "a job", "a search"])
@pytest.mark.parametrize(("owner", "name"), GUARDED, ids=[name for _, name in GUARDED])
@gen_cluster(client=True, nthreads=[("127.0.0.1", 2)] * 2)
async def test_a_hook_that_fails_leaves_the_cluster_to_dask(c, s, a, b, owner, name, what):
    plugin = await start_plugin(c, s, epoch="10ms")
    alive, called = set(s.stream_comms), []
    guard = getattr(owner, name)
    body = guard.body

    def fails(self, *args, **kwargs):
        if self in (plugin, plugin.pools.seam):
            called.append(name)
            broken()
        return body(self, *args, **kwargs)

    futures = []
    with captured_logger("dask_slaq", propagate=False) as log:
        try:
            async with situation(c, plugin, what):
                guard.body = fails
                if what != "no job":
                    with tasks_of("a"):
                        futures += c.map(inc, range(12), pure=False)
                if what == "a search":
                    futures += c.map(trains, range(12), pure=False)
                await whatever_dask_calls(c, s, futures)
                if name == "restart":
                    plugin.restart(s)  # which Dask would call: its own needs nannies
                results = await asyncio.wait_for(c.gather(futures), PATIENCE)
                s.workers_to_close()  # asks only if some are idle
                if called:
                    await until(lambda: plugin.failed and not plugin.pools.holds_or_releases)
            assert len(results) == len(futures)
            assert await c.gather(c.map(inc, range(8), pure=False)) == list(range(1, 9))
        finally:
            guard.body = body
    assert alive == set(s.stream_comms)  # no connection was lost
    without = {
        "run_once",
        "reallocate",
        "changed",
        *QUESTIONS,
    }  # where there is no job
    assert called or (what == "no job" and name in without)
    if called:
        assert plugin.failed == "ZeroDivisionError: on purpose"
        assert log.getvalue().count("dask_slaq failed;") == 1
        alerts = [event for _, event in s.get_events(ALERT_TOPIC)]
        assert [e["message"] for e in alerts if e["event"] == "fell back"] == [plugin.failed]
    assert not plugin.timer.is_running()
    assert not any(plugin.pools.control.has(ts) for ts in s.tasks.values())
    s.validate_state()


def callbacks(s):
    """Dask's own periodic callbacks."""
    return {n: p for n, p in s.periodic_callbacks.items() if not n.startswith("slaq")}


def followed(s):
    """Handlers of messages, and that of the request by which clients publish."""
    return {**s.stream_handlers, "log_event": s.handlers["log_event"]}


def taken_over(s, before):
    """Names of Dask's handlers that are not as they were."""
    changed = {op for op, handler in followed(s).items() if before.get(op) != handler}
    return {op for op in changed if not op.startswith("slaq")}


@gen_cluster(client=True, nthreads=[("127.0.0.1", 1)])
async def test_everything_that_dask_calls_is_in_the_list_and_guarded(c, s, a):
    before, periodic = followed(s), {n: p.callback for n, p in callbacks(s).items()}
    plugin = await start_plugin(c, s)
    around = {name: put[1] for name, put in HOOKS.items() if put is not None}
    later = {around[name] for name in AT_FIRST_USE}
    assert taken_over(s, before) == set(around.values()) - later
    with dask.annotate(slaq_spare=True):
        await c.submit(inc, 1)
    assert taken_over(s, before) == set(around.values())
    assert periodic == {n: p.callback for n, p in callbacks(s).items()}
    mine = {name for name, _ in inspect.getmembers(SlaqPlugin, inspect.isfunction)}
    hooks = {name for name, _ in inspect.getmembers(SchedulerPlugin, inspect.isfunction)}
    own = {name for name in mine & hooks if name in vars(SlaqPlugin) and name[0] != "_"}
    assert (
        own - {"start", "close", "transition"}
        == {name for name, put in HOOKS.items() if put is None} & hooks
    )
    attributes = set(vars(s))
    plugin.pools.seam.install()
    assert set(vars(s)) - attributes == set(OVERRIDDEN)
    plugin.pools.seam.remove()
    assert set(vars(s)) == attributes
    for owner, name in GUARDED:
        assert callable(getattr(owner, name).body), f"{name} is not guarded"
