"""Whatever enters the plugin may fail: the cluster goes on under plain Dask, and says so, loudly.

The entries are those of the table of the boundary, and what the code puts on the event loop, so a
new one is tried here without further ado.
"""

import ast
import asyncio
import contextlib
import functools
import inspect
import re
from pathlib import Path
from unittest import mock

import pytest
from distributed import Worker, worker_client
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import captured_logger, inc
from driving import (
    PATIENCE,
    another_client,
    gen_cluster,
    in_job,
    inside,
    start_plugin,
    until,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.client.connection import request
from dask_slaq.core.errors import NoPlugin
from dask_slaq.core.settings import ALERT_TOPIC
from dask_slaq.scheduler.dask_hooks import SURROUNDED, DaskHooks
from dask_slaq.scheduler.hooks import ENTRIES, OF_TASKS
from dask_slaq.scheduler.plugin import CHECKS, SlaqPlugin
from dask_slaq.scheduler.pools.scheduler_patch import OVERRIDDEN, SchedulerPatch
from dask_slaq.scheduler.requests.handlers import REQUESTS, Messages

PACKAGE = Path(slaq.__file__).parent
PARTS = [PACKAGE / part for part in ("scheduler", "run_history", "lab/persisting")]
SOURCES = [path for part in PARTS for path in part.rglob("*.py") if path.name != "event_loop.py"]

#: What puts a function on the event loop; and what follows a failure, or only drops a record.
SCHEDULES = (
    *("call_soon", "call_later", "call_at", "call_soon_threadsafe", "PeriodicCallback"),
    *("add_done_callback", "Throttle", "Timers", "ChunkedWork"),
)
BY_THEMSELVES = {
    "self.free_forgotten",
    "self.pools.give_up",
    "self._ticked",
    "self._tell",
    "decide_soon",
}


NODES = [(path.name, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]


def calls(names):
    """Yield the calls of functions with these names, and their arguments, as text."""
    for file, node in NODES:
        called = getattr(node, "func", None)
        if getattr(called, "attr", getattr(called, "id", "")) in names:
            yield file, [ast.unparse(each) for each in node.args]


@functools.cache
def guarded_methods(decorators=("guarded", "guarded_as")):
    """Return the methods with these decorators, as ``Class.method``."""
    found = set()
    for _, owner in NODES:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            texts = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any(text.partition("(")[0] in decorators for text in texts):
                name = owner.name.replace("DaskHooks", "SlaqPlugin")
                found.add(f"{name}.{node.name}")
    return found


METHODS = {n.partition(".")[2] for n in guarded_methods() | guarded_methods(("safely",))}


def entered():
    """Return the names of what `SlaqPlugin.enter` is to call."""
    texts = [", ".join(given) for _, given in calls((*SCHEDULES, "_defer", "defer"))]
    return sorted(
        {
            match[1].rpartition(".")[2]
            for text in texts
            if (match := re.search(r"(?:enter, |^)self\.([\w.]+)", text))
            and match[0].rpartition(".")[2] not in METHODS
        }
        - {name.rpartition(".")[2] for name in BY_THEMSELVES}
    )


#: Entries that fall back, by class and name; of `enter`, what it is to call.
CLASSES = {"SlaqPlugin": SlaqPlugin, "SchedulerPatch": SchedulerPatch, "Messages": Messages}
GUARDED = [
    (CLASSES[owner], name, None)
    for kind in ("hook", "message", "override", "loop")
    for owner, _, name in (entry.partition(".") for entry in ENTRIES[kind])
    if owner in CLASSES and name != "enter"
] + [(SlaqPlugin, "enter", name) for name in entered()]


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
    futures += c.map(inc, range(12), pure=False)
    futures += c.map(seceding, range(4), pure=False)
    futures.append(c.submit(inc, 1, workers=[a.address], pure=False))
    futures.append(c.submit(inc, futures[0], pure=False))
    async with Worker(s.address, nthreads=1) as worker, another_client(s) as other:
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
        s.plugins["slaq"]._limit()  # which the loop calls once
        s.log_event("test", 1)
        await c.log_event("test", 1)
        worker.log_event("test", 1)
        await asyncio.sleep(0.01)


#: What is called only where there are jobs.
NOT_WITHOUT_JOBS = {
    *("run_once", "reallocate", "changed", "ask", "is_held", "_take"),
    *("_limit", "_keep_waiting", "_keep_open", "send_at_once"),
}


CASES = [(*entry, "a search") for entry in GUARDED]
WITHOUT_JOBS = [e for e in GUARDED if e[2] is None and e[1] not in NOT_WITHOUT_JOBS]
CASES += [(*entry, "no job") for entry in WITHOUT_JOBS[::4]]
SLOW = pytest.mark.slow  # two of three: what guards them is the same


@pytest.mark.parametrize(
    ("owner", "name", "part", "what"),
    [
        pytest.param(*case, id=f"{case[2] or case[1]}-{case[3]}", marks=SLOW if k % 3 else ())
        for k, case in enumerate(CASES)
    ],
)
@gen_cluster(client=True, nthreads=[2, 2])
async def test_a_hook_that_fails_leaves_the_cluster_to_dask(c, s, a, b, owner, name, part, what):
    plugin = await start_plugin(c, s, epoch="10ms")
    alive, called = set(s.stream_comms), []
    guard = getattr(owner, name)
    body = guard.body

    def fails(self, *args, **kwargs):
        mine = self in (plugin, inside(plugin).patch, plugin.messages)
        if mine and part in (None, args and getattr(args[0], "__name__", None)):
            called.append(name)
            broken()
        return body(self, *args, **kwargs)

    futures = []
    with captured_logger("dask_slaq", propagate=False) as log:
        try:
            async with contextlib.AsyncExitStack() as stack:
                if what != "no job":
                    await stack.enter_async_context(slaq.job("a", client=c))
                    await stack.enter_async_context(slaq.search("b", client=c))
                guard.body = fails
                if what != "no job":
                    futures += in_job(c, "a").map(inc, range(12), pure=False)
                    futures += c.map(trains, range(12), pure=False)
                await whatever_dask_calls(c, s, futures)
                if name == "restart":
                    plugin.restart(s)  # which Dask would call: its own needs nannies
                results = await asyncio.wait_for(c.gather(futures), PATIENCE)
                s.workers_to_close()  # asks only if some are idle
                if called:
                    await until(lambda: plugin.failed and not inside(plugin).holds)
            assert len(results) == len(futures)
            assert await c.gather(c.map(inc, range(8), pure=False)) == list(range(1, 9))
        finally:
            guard.body = body
    assert alive == set(s.stream_comms)  # no connection was lost
    assert called or part
    if called:
        assert plugin.failed == "ZeroDivisionError: on purpose"
        assert log.getvalue().count("dask_slaq failed;") == 1
        alerts = [event for _, event in s.get_events(ALERT_TOPIC)]
        assert [e["message"] for e in alerts if e["event"] == "fell back"] == [plugin.failed]
    assert not inside(plugin).is_running()
    assert not any(inside(plugin).restricts(ts) for ts in s.tasks.values())
    s.validate_state()


@contextlib.asynccontextmanager
async def held_beside(c, plugin):
    """Two jobs and a search, whose tasks wait for one another."""
    async with slaq.job("a", client=c), slaq.search("s", client=c):
        futures = in_job(c, "a").map(inc, range(20), pure=False)
        futures += c.map(trains, range(6), pure=False)
        yield futures


#: What opening and closing a job does, of the plugin.
OPENING = "engine.add_job goals.begin epochs.begin pools.add"
CLOSING = (
    "searches.end_model searches.end jobs.remember task_pools.ended jobs.heir_of pools.remove "
    "pools.tracker.disown goals.end jobs.admit run_history.runs.add"
)


@pytest.mark.parametrize(
    ("part", "end"),
    [*((p, "opened") for p in OPENING.split()), *((p, "closed") for p in CLOSING.split())],
)
@gen_cluster(client=True, nthreads=[1])
async def test_a_part_of_a_job_that_fails_leaves_nothing_half_open(c, s, a, part, end):
    # Jobs of no owner among owners.
    plugin = await start_plugin(c, s, epoch="10ms", owners={"ann": {"max-jobs": 3}})
    *way, name = part.split(".")
    owner, alive = plugin, set(s.stream_comms)
    for step in way:
        owner = getattr(plugin.jobs if step in ("goals", "epochs") else owner, step)
    with captured_logger("dask_slaq", propagate=False) as log:
        async with held_beside(c, plugin) as futures:
            if end == "closed":
                await request(c, "slaq_open", name="x", run="x")
            with mock.patch.object(owner, name, broken):
                if end == "closed":
                    await request(c, "slaq_close", name="x", run="x")
                else:
                    with contextlib.suppress(NoPlugin):
                        await request(c, "slaq_open", name="x", run="x")
            opened = plugin.failed is None and end == "opened"
            known = inside(plugin).reports, inside(plugin).jobs, inside(plugin).pools
            assert ["x" in some for some in known] == [opened] * 3
            if plugin.failed is not None:
                assert plugin.failed == "ZeroDivisionError: on purpose"
                assert log.getvalue().count("dask_slaq failed;") == 1
            if not opened:
                await request(c, "slaq_open", name="x", run="y")
            await asyncio.wait_for(c.gather(futures), PATIENCE)
            await request(c, "slaq_close", name="x")
        assert not inside(plugin).reports
    assert await c.submit(inc, 1, pure=False) == 2
    assert alive == set(s.stream_comms)
    if plugin.failed is not None:
        await until(lambda: not inside(plugin).holds)
    s.validate_state()


@with_plugin([1], epoch="10ms")
async def test_a_request_that_fails_is_answered(c, s, plugin, a):
    with captured_logger("dask_slaq", propagate=False), captured_logger("distributed.core"):
        async with held_beside(c, plugin) as futures:
            inside(plugin).handler = lambda asked: broken
            for name in REQUESTS:
                with pytest.raises((NoPlugin, ZeroDivisionError)):
                    await request(c, f"slaq_{name}")
                assert plugin.failed is None
            del inside(plugin).handler
            await asyncio.wait_for(c.gather(futures), PATIENCE)


#: What no key, and no worker, is; and further arguments.
HOSTILE = [
    {"key": {}, "worker": None}, {"worker": None}, {"key": {}}, {"key": [["x"]] * 50}, {},
    {"key": {"a": {}}, "worker": "x"}, {"key": 7, "worker": {}}, {"key": None, "worker": ["x"]},
    {"key": {}, "worker": "x" * 10**5, "run_id": {}, "compute_duration": []},
]  # fmt: skip


@pytest.mark.parametrize("op", OF_TASKS)
@with_plugin([1])
async def test_a_hostile_message_is_dropped_and_its_sender_named(c, s, plugin, a, op):
    deep = functools.reduce(lambda inner, _: [inner], range(30), [])
    async with another_client(s) as eve:
        with captured_logger("dask_slaq", propagate=False) as log:
            async with slaq.job("a", client=c):
                for message in [*HOSTILE, {"key": deep, "job": deep, "run": deep}]:
                    eve._send_to_scheduler({"op": op, **message})
                await eve.submit(inc, 1)
        assert eve.status == "running" and eve.id in s.stream_comms | s.client_comms
        a.batched_stream.send({"key": {}, "op": op})
        await until(lambda: plugin.messages._dropped.count == len(HOSTILE) + 2)
        assert log.getvalue().count("dropped a message from") == 1
        assert eve.id in log.getvalue()
        assert a.address in s.workers


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


@gen_cluster(client=True, nthreads=[1])
async def test_everything_that_dask_calls_is_in_the_list_and_guarded(c, s, a):
    before, periodic = followed(s), {n: p.callback for n, p in callbacks(s).items()}
    plugin = await start_plugin(c, s)
    assert taken_over(s, before) == {*SURROUNDED.values(), "update-graph"}  # by `identity`
    assert set(CHECKS) == {n for n, p in callbacks(s).items() if p.callback != periodic[n]}
    mine = {name for name, _ in inspect.getmembers(SlaqPlugin, inspect.isfunction)}
    hooks = {name for name, _ in inspect.getmembers(SchedulerPlugin, inspect.isfunction)}
    here = {n for n in {**vars(DaskHooks), **vars(SlaqPlugin)} if n[0] != "_"}
    own = {f"SlaqPlugin.{n}" for n in mine & hooks & here}
    outside = {"SlaqPlugin.start", "SlaqPlugin.close", "SlaqPlugin.transition"}
    assert own - outside == {name for name in ENTRIES["hook"] if name.partition(".")[2] in hooks}
    for kind, made in ((s.handlers, "Messages._answer"), (s.stream_handlers, "Messages._follow")):
        ours = {name: each for name, each in kind.items() if name.startswith("slaq")}
        assert ours and all(each.__qualname__.startswith(made) for each in ours.values())
    attributes = set(vars(s))
    inside(plugin).patch.install()
    assert set(vars(s)) - attributes == set(OVERRIDDEN)
    inside(plugin).patch.remove()
    assert set(vars(s)) == attributes
    await start_plugin(c, s)  # in place of the first
    now = callbacks(s)
    assert all(now[name].callback.args[1:] == (periodic[name],) for name in CHECKS)


def test_the_table_has_all_that_is_guarded_and_the_loop_calls_nothing_else():
    listed = {name for kind, names in ENTRIES.items() if kind != "request" for name in names}
    assert listed == guarded_methods()
    bare = [
        (path, given)
        for path, given in calls(SCHEDULES)
        if not {"enter", "_enter", *METHODS} & {*re.findall(r"\w+", " ".join(given))}
        and not BY_THEMSELVES & {*given}
    ]
    assert not bare
