"""Faults of workers, clients, the plugin itself, reports and the event loop.

Every fault is a coroutine with two arguments: the `Fault`, whose `number` selects the victim and
the variant, and the `Stage` on which it acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from distributed import Future, wait
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks import virtual
from benchmarks.chaos.outcome import Deliberate
from benchmarks.chaos.rounds import KINDS, Fault
from benchmarks.chaos.stage import CANCELLED, Stage
from benchmarks.common.model import train
from benchmarks.never_worse.probe import compute, who_of
from dask_slaq.scheduler.hooks import ENTRIES
from dask_slaq.scheduler.pools.scheduler_patch import OVERRIDDEN

#: Functions that undo prepared faults which have not happened yet.
pending_cleanups: list[Callable[[], None]] = []


# Workers


async def worker_dies(fault: Fault, stage: Stage) -> None:
    """Break the connection of a worker, and replace the worker."""
    worker = _worker(fault, stage)
    await stage.cluster.kill_worker(worker)
    await asyncio.sleep(0.3)
    await stage.cluster.add_worker(worker.state.nthreads, {"GPU": 1})


async def worker_pauses(fault: Fault, stage: Stage) -> None:
    """Pause a worker for a moment."""
    worker = _worker(fault, stage)
    worker.status = Status.paused
    await asyncio.sleep(0.1 + fault.number % 10 / 10)
    if worker.status == Status.paused:
        worker.status = Status.running


async def worker_retires(fault: Fault, stage: Stage) -> None:
    """Retire a worker, which hands over its data, and replace it."""
    worker = _worker(fault, stage)
    stage.cluster.workers.remove(worker)
    await stage.cluster.add_worker(worker.state.nthreads, {"GPU": 1})
    await stage.cluster.scheduler.retire_workers([worker.address], close_workers=True)
    await worker.close(nanny=False)


async def worker_comes(fault: Fault, stage: Stage) -> None:
    """Add a worker, and kill it after one second."""
    worker = await stage.cluster.add_worker(1 + fault.number % 3, {"GPU": 1})
    await asyncio.sleep(1.0)
    if worker in stage.cluster.workers and len(stage.cluster.workers) > 1:
        await stage.cluster.kill_worker(worker)


async def model_kills_worker(fault: Fault, stage: Stage) -> None:
    """Have a model of a search kill its worker, on which other models wait in their report.

    They must not be blamed, and all models must arrive.
    """
    import dask_slaq as slaq
    from dask_slaq.core.errors import SlaqError

    plugin, name = stage.plugin, f"grid-{fault.number}"
    if plugin is None or plugin.failed or name in plugin.jobs.reports:
        return
    killing: list[asyncio.Task[None]] = []

    async def kill(worker: Any) -> None:
        known = stage.cluster.scheduler.workers[worker.address]
        control = plugin.pools.control
        waits = {ts: ts.suspicious for ts in known.processing if ts in control.excused}
        stage.outcome.faults["models_beside_the_killer"] += len(waits)
        await stage.cluster.kill_worker(worker)
        while worker.address in stage.cluster.scheduler.workers:
            await asyncio.sleep(0.01)
        blamed = [ts.key for ts, count in waits.items() if ts.suspicious != count]
        await stage.cluster.add_worker(worker.state.nthreads, {"GPU": 1})
        assert not blamed, f"{blamed} waited, and count as suspicious"

    async def kill_once(worker: Any) -> None:
        known = stage.cluster.scheduler.workers
        if not killing and worker in stage.cluster.workers and worker.address in known:
            killing.append(asyncio.ensure_future(kill(worker)))  # closing it cancels its tasks
            await asyncio.Event().wait()

    async with stage.cluster.client() as client:
        try:
            async with slaq.search(name, client=client) as search:
                models = [
                    client.submit(
                        _call, _Unpickled(_train), f"{name}-{i}", search._run, i,
                        _Unpickled(kill_once) if i == 5 else None, key=f"{name}-{i}",
                    )
                    for i in range(8)
                ]  # fmt: skip
                found = await client.gather(models)
        except (SlaqError, *CANCELLED) as error:
            stage.outcome.notes.append(f"{name} without its models: {error!r}"[:150])
        else:
            assert found == list(range(8)), f"{found} from {name}"
    await asyncio.gather(*killing)


async def _train(key: str, run: str, number: int, kill: Any) -> int:
    """Train a model, which may kill its worker in the midst of it."""

    async def before(worker: Any, step: int) -> None:
        if kill is not None and step == 4:
            await kill.value(worker)

    losses = [number + 1 / (step + 1) for step in range(8)]
    await train(key, run, losses, 0.05, 0.02, before)
    return number


def _worker(fault: Fault, stage: Stage) -> Any:
    workers = stage.cluster.workers
    return workers[fault.number % len(workers)]


# Clients


async def client_closes(fault: Fault, stage: Stage) -> None:
    """Close a client in the middle of its work."""
    if name := stage.person(fault.number):
        stage.outcome.excused.add(name)
        stage.strike(name)
        await stage.clients[name].close()


async def client_loses_connection(fault: Fault, stage: Stage) -> None:
    """Break the connection of a client, which reconnects without its futures."""
    if name := stage.person(fault.number):
        stage.strike(name)
        stage.clients[name].scheduler_comm.comm.abort()


async def client_suspended(fault: Fault, stage: Stage) -> None:
    """Suspend a client, which neither reads nor writes for a while."""
    name = stage.person(fault.number)
    stream = name and stage.clients[name].scheduler_comm
    if not stream or "send" in vars(stream):
        return
    comm, read, waiting, goes_on = stream.comm, stream.comm.read, [], asyncio.Event()

    async def read_later(*args: Any, **kwargs: Any) -> Any:
        await goes_on.wait()
        return await read(*args, **kwargs)

    stream.send, comm.read = lambda *messages: waiting.extend(messages), read_later
    await asyncio.sleep(0.2 + fault.number % 20 / 10)
    del stream.send, comm.read
    goes_on.set()
    if not stream.closed():
        stream.send(*waiting)


async def restart(fault: Fault, stage: Stage) -> None:
    """Restart the scheduler, which forgets all tasks, and replace all workers."""
    stage.strike(*stage.running)
    threads = [worker.state.nthreads for worker in stage.cluster.workers]
    stage.cluster.workers.clear()
    await stage.admin.restart(wait_for_workers=False)
    for count in threads:
        await stage.cluster.add_worker(count, {"GPU": 1})
    # Clients that submitted during the restart learn of it now.
    stage.strike(*stage.running)


async def cancel(fault: Fault, stage: Stage) -> None:
    """Cancel some of a client's futures."""
    if name := stage.person(fault.number):
        client = stage.clients[name]
        futures = [future for future in client.futures if who_of(future) == name]
        some = sorted(map(str, futures))[:: 1 + fault.number % 3]
        if some:
            stage.strike(name)
            await client.cancel([Future(key, client) for key in some], force=fault.number % 2 == 0)


async def release(fault: Fault, stage: Stage) -> None:
    """Submit extra tasks of a client, and release them before they are done."""
    if name := stage.person(fault.number):
        futures = _extra(fault, stage, name, 12)
        await asyncio.sleep(fault.number % 7 / 20)
        while futures:
            futures.pop().release()


async def retry(fault: Fault, stage: Stage) -> None:
    """Submit tasks that fail once, and retry them."""
    if not (name := stage.person(fault.number)):
        return
    client = stage.clients[name]
    failed: set[str] = set()
    keys = [f"fails-{name}.x-{fault.number}-{i}" for i in range(4)]

    async def fails_once(key: str) -> str:
        await asyncio.sleep(0.02)
        if key not in failed:
            failed.add(key)
            raise Deliberate(key)
        return key

    futures = [client.submit(_call, _Unpickled(fails_once), key, key=key) for key in keys]
    try:
        with client.as_current():
            await wait(futures)
        await client.retry(futures)
        got = await client.gather(futures)
    except Exception as error:
        # A client that has all its results leaves, so errors are expected then.
        gone = client.status != "running"
        hit = stage.was_hit(name, virtual.now())
        assert gone or hit, f"a task that was tried again failed: {error!r}"
        return
    assert got == keys, f"{got} instead of {keys}"


async def _call(function: Any, *arguments: Any) -> Any:
    return await function.value(*arguments)


class _Unpickled:
    """Wrapper that passes an object to a worker of this process without pickling it."""

    known: dict[int, Any] = {}  # noqa: RUF012

    def __init__(self, value: Any) -> None:
        self.value = value
        self.known[id(self)] = self

    def __reduce__(self) -> Any:
        return _known, (id(self),)


def _known(number: int) -> _Unpickled:
    found: _Unpickled = _Unpickled.known[number]
    return found


def _extra(fault: Fault, stage: Stage, name: str, count: int) -> list[Any]:
    client = stage.clients[name]
    keys = [f"extra-{name}.x-{fault.number}-{i}" for i in range(count)]
    return [client.submit(compute, name=key, seconds=0.05, key=key) for key in keys]


async def loop_stalls(fault: Fault, stage: Stage) -> None:
    """Block the event loop of the scheduler and everything else for a while."""
    time.sleep([0.05, 0.3, 2.0][fault.number % 3])


# The plugin


async def part_raises(fault: Fault, stage: Stage) -> None:
    """Make the engine, the dispatcher or a part that hooks call raise once."""
    if (plugin := stage.plugin) is None:
        return
    pools = plugin.pools
    places = [
        (plugin.engine, "reallocate"),
        *((pools, name) for name in ("dispatch", "apply", "tick", "forget_worker")),
        (pools.order, "key"),
        (pools.control, "send"),
        *((pools.tracker, name) for name in ("transition", "moving", "is_held")),
        *((plugin.task_pools, name) for name in ("own", "adopt")),
        *((plugin.jobs, name) for name in ("observe_demand", "open", "forget")),
    ]
    await _fail(stage, *places[fault.number % len(places)])


async def entry_raises(fault: Fault, stage: Stage) -> None:
    """Make one of the entries of the boundary raise once."""
    if (plugin := stage.plugin) is None:
        return
    parts = {
        "SlaqPlugin": plugin,
        "SchedulerPatch": plugin.pools.patch,
        "Messages": plugin.messages,
    }
    entries = [e.partition(".") for names in ENTRIES.values() for e in names]
    entries = [e for e in entries if hasattr(getattr(parts.get(e[0]), e[2], None), "body")]
    owner, _, name = entries[fault.number % len(entries)]
    await _fail(stage, getattr(type(parts[owner]), name), "body")


async def _fail(stage: Stage, owner: Any, name: str) -> None:
    """Make the next call of a method raise, and register a new plugin if this one failed."""
    plain = vars(owner).get(name)
    if getattr(plain, "fails", False):
        return

    def fails(*args: Any, **kwargs: Any) -> Any:
        undo()
        raise Deliberate(name)

    def undo() -> None:
        if vars(owner).get(name) is fails:
            delattr(owner, name) if plain is None else setattr(owner, name, plain)

    plugin = stage.plugin
    fails.fails = True  # type: ignore[attr-defined]
    setattr(owner, name, fails)
    pending_cleanups.append(undo)
    for _ in range(20):
        await asyncio.sleep(0.05)
        if plugin.failed:
            break
    undo()
    await asyncio.sleep(0.3)
    if plugin.failed and stage.plugin is plugin:
        stage.outcome.faults["plugin_registered_again"] += 1
        await stage.register()


async def plugin_registered_twice(fault: Fault, stage: Stage) -> None:
    """Register the plugin again: refused while jobs run; otherwise the new one takes over."""
    before = stage.plugin
    if before is None:
        return
    jobs = not before.failed and list(before.jobs.reports)
    try:
        await stage.register()
    except Exception as error:
        assert "must end before" in str(error), error
        assert stage.plugin is before or stage.plugin is None, "the plugin was replaced"
    else:
        assert not jobs or list(before.jobs.reports) != jobs or before.failed, (
            "replaced beside jobs"
        )


async def plugin_unregistered(fault: Fault, stage: Stage) -> None:
    """Unregister the plugin, and register it again at once or after some epochs."""
    if stage.plugin is not None:
        await stage.admin.unregister_scheduler_plugin(stage.plugin_name)
        await asyncio.sleep(fault.number % 3 / 3)
        if stage.plugin is None:
            await stage.register()


async def seam_overridden(fault: Fault, stage: Stage) -> None:
    """Override methods of the scheduler that the plugin overrides too, and undo that later.

    It is done as others do: around what is there, with its marks or without, and undone by what was
    there before, by deletion, or never.
    """
    scheduler, number = stage.cluster.scheduler, fault.number
    undone = ("restored", "deleted", "stays")[number // 2 % 3]
    before = {}
    for i, name in enumerate(OVERRIDDEN):
        if number >> i & 1 or i == number % len(OVERRIDDEN):
            before[name] = getattr(scheduler, name)
            setattr(scheduler, name, _around(before[name], wraps=number % 2 == 0))
    await asyncio.sleep(number % 30 / 10)
    for name, plain in before.items():
        if undone == "restored":
            setattr(scheduler, name, plain)
        elif undone == "deleted":
            vars(scheduler).pop(name, None)


def _around(plain: Callable[..., Any], wraps: bool) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    return functools.wraps(plain)(override) if wraps else override


# Reports


async def report_stray(fault: Fault, stage: Stage) -> None:
    """Send two reports that the client has not made, at once or after the end of the job."""
    if (name := stage.person(fault.number)) and name in stage.blocks:
        block = stage.blocks[name]
        for _ in range(100 if fault.number % 2 else 0):
            if block._client is None:
                break
            await asyncio.sleep(0.05)
        for _ in range(2):
            _send(stage, name, job=block.name, run=block._run, loss=0.25)


async def report_malformed(fault: Fault, stage: Stage) -> None:
    """Send malformed reports."""
    nonsense: list[dict[str, Any]] = [
        {}, {"job": None, "loss": 1.0}, {"job": ["a"], "loss": 1.0}, {"job": {"a": 1}},
        {"job": "x" * 10**6, "loss": 1}, {"loss": float("nan")}, {"loss": "much"},
        {"loss": [1.0]}, {"loss": 10**400}, {"loss": b"1", "client": 3},
        {"loss": True}, {"loss": 1.0, "run": ["r"]}, {"loss": 1.0, "run": 7, "worker": None},
    ]  # fmt: skip
    if name := stage.person(fault.number):
        block = stage.blocks.get(name)
        for i in range(30):
            message = nonsense[(fault.number + i) % len(nonsense)]
            known = {"job": block.name, "run": block._run} if block else {}
            _send(stage, name, **{**known, **message})
        for more in ({"key": {}, "worker": None}, {"key": {}}, {}, {"key": 7, "worker": [None]}):
            stage.clients[name]._send_to_scheduler({"op": "long-running", **more})
        stage.clients[name]._send_to_scheduler(
            {"op": "slaq-expect", "job": block and block.name, "iterations": "many"}
        )


async def hostile_client(fault: Fault, stage: Stage) -> None:
    """Send every request and message about others' jobs, in every name."""
    plugin, name = stage.plugin, stage.person(fault.number)
    if not name or plugin is None:
        return
    client, jobs = stage.clients[name], plugin.jobs
    mine = [block.name for block in stage.blocks.values() if block._client is client]
    others = [job for job in jobs.reports if job not in mine]
    worker = _worker(fault, stage).address
    people = [pool.client for pool in plugin.pools.pools.values() if pool.client != client.id]
    names: list[Any] = [
        "",
        client.id,
        "<img src=x onerror=alert(1)>\n",
        None,
        7,
        ["x"],
        worker,
        *people[:2],
    ]
    for i, job in enumerate(others):
        run, loss = jobs._runs[job], plugin.engine.jobs[job].loss
        said = names[(fault.number + i) % len(names)]
        for operation, more in _HOSTILE.items():
            message = {**more, "client": said}
            message |= {key: job for key in ("job", "name") if key in more}
            try:
                if operation.startswith("slaq-"):
                    message = {"op": operation, **message, "worker": worker}
                    client._send_to_scheduler(message)
                else:
                    await getattr(client.scheduler, operation)(**message)
            except Exception:  # it is refused, or the client is gone
                continue
        for topic in ("all", "slaq-unowned", "slaq-alerts", worker):
            with contextlib.suppress(Exception):
                await client.log_event(topic, {"action": "remove-worker", "key": job, "x": said})
        # A job may report, end and begin anew meanwhile, but not so.
        if jobs.runs(job, run):
            now = plugin.engine.jobs[job]
            assert now.loss != -1e6, f"{name} reported for {job}: {loss}"
            assert now.max_iter != 1, f"{name} set the iterations of {job}"
    assert plugin.failed is None or stage.plugin is not plugin or _expected(plugin), plugin.failed


def _expected(plugin: Any) -> bool:
    """Return whether the plugin failed by a fault that makes it raise."""
    return plugin.failed.startswith(Deliberate.__name__)


#: What a hostile client says; it names the job of another client.
_HOSTILE: dict[str, dict[str, Any]] = {
    "slaq_close": {"name": "", "outcome": "failed"},
    "slaq_open": {"name": ""},
    "slaq_introduce": {"owner": "eve"},
    "slaq_left": {"run": ["x"]},
    "slaq_trials": {"run": {}},
    "slaq_explain": {"job": ""},
    **{f"slaq_{name}": {} for name in ("status", "ended", "audit", "usage", "bindings")},
    "slaq-report": {"job": "", "loss": -1e6},
    "slaq-expect": {"job": "", "iterations": 1},
    "slaq-kind": {"job": "", "kind": "eves"},
    "slaq-enter": {"job": ""},
    "slaq-leave": {"job": "", "failed": True},
    "slaq-trial": {"key": ["x"], "what": "waits", "losses": "abc"},
    "slaq-prove": {"proof": 3},
}


async def second_plugin(fault: Fault, stage: Stage) -> None:
    """Add a plugin of somebody else, or a second one of ours under another name."""
    scheduler, before = stage.cluster.scheduler, stage.plugin
    if fault.number % 3 == 0:
        busy = before is not None and not before.failed and before.jobs.reports
        try:
            await stage.register(name=f"second-{fault.number}")
        except Exception as error:
            assert busy, f"refused although no job runs: {error}"
        return
    other = _Other(scheduler, raises=fault.number % 3 == 1)
    scheduler.add_plugin(other)
    await asyncio.sleep(1.0)
    other.leave()


class _Other(SchedulerPlugin):
    """Plugin of somebody else, which looks at everything and wraps messages as ours does."""

    name = "other"

    def __init__(self, scheduler: Any, raises: bool) -> None:
        self.name = f"other-{id(self)}"
        self.scheduler, self.raises, self.on = scheduler, raises, True
        for op in ("long-running", "slaq-report", "slaq-trial", "worker-status-change"):
            if op in scheduler.stream_handlers:
                self._wrap(op, scheduler.stream_handlers[op])

    def _wrap(self, op: str, plain: Any) -> None:
        def call(**message: Any) -> Any:
            return plain(**message)

        if not asyncio.iscoroutinefunction(plain):
            self.scheduler.stream_handlers[op] = call

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Raise now and then: Dask logs that, and goes on."""
        if self.raises and self.on and hash(key) % 7 == 0:
            raise Deliberate("of another plugin")

    def leave(self) -> None:
        """Leave the scheduler."""
        self.on = False
        self.scheduler.remove_plugin(self.name)


def _send(stage: Stage, name: str, **report: Any) -> None:
    stage.clients[name]._send_to_scheduler({"op": "slaq-report", **report})


#: Faults by kind.
HAPPEN = {kind: globals()[kind] for kind in KINDS}
