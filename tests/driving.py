"""How the tests of the shell drive it: jobs side by side, tasks held on events, recorded runs.

The plugin gets an epoch of an hour, so that nothing happens by a timer: tests call `run_once`.
Tests assert what a user sees: the order of `bindings`, where tasks ran, and their states in Dask.
"""

import asyncio
import contextlib
import functools
import inspect
import itertools
import math
import operator
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import dask
import numpy as np
from distributed import Client, Event, Future, LocalCluster, Scheduler, Status, Worker, utils_test
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.httpclient import AsyncHTTPClient

import dask_slaq as slaq
from dask_slaq.core.policies import Allocation, Snapshot
from dask_slaq.scheduler.current import current_plugin
from dask_slaq.worker import reports

#: Seconds after which a test gives up waiting: tests assert behaviour, on a slow machine too.
PATIENCE = 300

#: Arguments of `with_plugin` that are of the cluster.
OF_CLUSTER = ("config", "scheduler_kwargs", "worker_kwargs", "client_kwargs", "Worker")


class Fixed:
    """Policy that decides who comes first in a test: share in threads and index of jobs, by name.

    Other jobs get no share and come last.
    """

    name = "fixed"

    def __init__(self, **jobs: tuple[float, float]) -> None:
        self.jobs = jobs

    def __call__(self, snapshot: Snapshot) -> Allocation:
        of_jobs = np.array([self.jobs.get(name, (0.0, -1.0)) for name in snapshot.jobs], float)
        return Allocation(of_jobs[:, 0], of_jobs[:, 1])


class Inside:
    """What tests look at in the scheduler's instance of the plugin, by names of their own.

    No other module of tests says where in the plugin it is.
    """

    PARTS: ClassVar[dict[str, str]] = {
        # Jobs, by name
        "jobs": "engine.jobs",  # what decisions know of each: iteration, loss, weight, share, use
        "grants": "engine.grants",  # what the last decision gave
        "reallocate": "engine.reallocate",  # the decision of an epoch
        "policy": "engine.policy",
        "forecaster": "engine.forecaster",
        "report": "engine.report",  # what a loss that came is told to
        "open": "jobs.open",
        "runs": "jobs.runs",  # whether a job is open
        "admission": "jobs.admission",  # who waits to begin
        "record": "jobs.record",  # of history
        "reports": "jobs.reports",  # open ones, and how many losses have come
        "queued": "jobs.queued",  # those that wait to begin
        "ended": "jobs.ended",
        "epochs": "jobs.epochs",  # their history
        "owners": "jobs.owner",
        "value_of": "jobs.value_of",
        "pause": "jobs.pause",
        # Owners
        "clients": "jobs.owners",  # whose each client is
        "terms": "engine.owners",  # shares and limits
        "accounts": "jobs.accounts",
        "budgets": "jobs.budgets",
        "proofs": "identity._secrets",  # clients by the secret that they were told
        "dropped": "messages._dropped._held",  # messages of which the log is still to tell
        # Tasks
        "pools": "pools.pools",  # ready, running and all tasks of each job, and its workers
        "pool_of": "pools.records.pool_of",  # by key
        "migrating": "pools.records.migrating",  # models between two workers
        "excused": "pools.tracker.control.excused",  # deaths of workers that do not count
        "tracker": "pools.tracker",
        "records": "pools.records",
        "control": "pools.control",  # what changes tasks
        "patch": "pools.patch",  # of the scheduler's methods
        "hold": "pools.hold",
        "dispatch": "pools.dispatch",  # one round of sending
        "slots_changed": "pools.slots_changed",  # of a worker
        "is_held": "pools.tracker.is_held",
        "restricts": "pools.control.has",  # whether a task carries a restriction of ours
        "bindings": "pools.bindings",  # what was sent where, and why
        "limits": "pools.limits",
        "set_limits": "pools.set_limits",
        "holds": "pools.holds_or_releases",
        "tick": "pools.tick",  # the watchdog's look, after so many seconds: how many it has freed
        "check": "pools.check",  # the laws of the pools
        "left_over": "pools.left_over",
        # Searches, by name
        "searches": "searches.running",
        "kept": "searches.kept",  # those whose client has gone
        "states": "searches.states.names",  # where states of models are, by their key
        "quotas": "searches.quotas",  # memory of workers for models
        # Memory, workers, and what answers
        "store": "run_history.store",
        "past_runs": "run_history.runs",
        "memory_error": "run_history.broken",
        "speeds": "speeds",
        "scaler": "by_value.scaler",
        "advise": "by_value.advise",
        "draining": "by_value.draining",
        "scaling_error": "scaling.failed",
        "is_running": "timer.is_running",  # the timer of epochs
        "drop_shown": "shown.drop",  # what is shown is made anew
        "status": "messages.status",
        "handler": "messages.handler",
    }

    def __init__(self, plugin: slaq.SlaqPlugin) -> None:
        vars(self)["plugin"] = plugin

    def _place_of(self, name: str) -> tuple[Any, str]:
        if name not in self.PARTS:
            raise AttributeError(f"tests have no name {name!r} for a part of the plugin")
        owner, _, attribute = self.PARTS[name].rpartition(".")
        return operator.attrgetter(owner)(self.plugin) if owner else self.plugin, attribute

    def __getattr__(self, name: str) -> Any:
        return getattr(*self._place_of(name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Put something in the place of a part: a function that counts, or breaks."""
        setattr(*self._place_of(name), value)

    def __delattr__(self, name: str) -> None:
        """Take away what was put in the place of a part."""
        delattr(*self._place_of(name))

    def job(self, name: str) -> Any:
        """What decisions know of a job."""
        return self.jobs[name]

    def pool(self, job: str) -> Any:
        """The tasks of a job, and the workers that it was granted."""
        return self.pools[job]

    def search(self, name: str) -> Any:
        """A search that runs."""
        return self.searches[name]

    def trials(self, search: str) -> Any:
        """The models of a search that runs."""
        return self.search(search).trials


def inside(plugin: slaq.SlaqPlugin) -> Inside:
    """The inside of the plugin, of its instance on a scheduler."""
    return Inside(plugin)


async def start_plugin(client: Client, scheduler: Scheduler, **settings: Any) -> slaq.SlaqPlugin:
    """Register the plugin and return the scheduler's instance.

    The policy may be an instance, such as `Fixed`; jobs then have no floor by default.
    """
    policy = settings.get("policy", "fair")
    given = {"epoch": "1h", **settings, "policy": policy}
    if not isinstance(policy, str):
        given = {"floor": 0.0, **given, "policy": "max-total"}
    await client.register_plugin(slaq.SlaqPlugin(**given))
    plugin = scheduler.plugins["slaq"]
    if not isinstance(policy, str):
        plugin.engine.set_policy(policy)
    return plugin


def gen_cluster(*, nthreads: Iterable[Any] = (1, 2), **settings: Any) -> Callable[..., Any]:
    """A test on a scheduler and workers of this process: Dask's, where a number is that of threads.

    Workers with settings of their own are tuples, as for Dask.
    """
    workers = [("127.0.0.1", n) if isinstance(n, int) else n for n in nthreads]
    return utils_test.gen_cluster(nthreads=workers, **{"timeout": PATIENCE, **settings})


def with_plugin(
    nthreads: list[Any], *, may_fail: bool = False, **settings: Any
) -> Callable[..., Any]:
    """A test on a scheduler and workers of this process, with the plugin.

    It is called with the client, the scheduler, the plugin and the workers. Nothing of the plugin's
    may be left at its end, and it may not have failed unless that is said.

    Parameters
    ----------
    nthreads : list
        See `gen_cluster`.
    **settings
        See `start_plugin`, where ``prefetch=0`` sends a task only when a thread is free; or of
        the cluster, those in `OF_CLUSTER`.
    """
    of_cluster = {name: settings.pop(name) for name in OF_CLUSTER if name in settings}

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        async def run(c: Client, s: Scheduler, *workers: Any, **given: Any) -> None:
            plugin = await start_plugin(c, s, **settings)
            await test(c, s, plugin, *workers, **given)
            assert may_fail or plugin.failed is None
            await until(lambda: not inside(plugin).reports, 20)
            assert_nothing_left(s, plugin)

        signature = inspect.signature(test)
        kept = [each for each in signature.parameters.values() if each.name != "plugin"]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return gen_cluster(client=True, nthreads=nthreads, **of_cluster)(run)

    return decorate


def on_virtual_clock(
    scenario: Callable[..., Any], threads: list[int], *, resources: Any = None, **settings: Any
) -> Any:
    """Run ``scenario(client, cluster, plugin)`` on real Dask, on a clock that waits for nothing.

    `threads` and `resources` (dicts) are those of each worker. The epoch is a second by default.
    """
    from benchmarks import virtual

    async def run() -> Any:
        config = {"distributed.scheduler.validate": True}
        cluster = virtual.Cluster(threads, resources=resources, config=config)
        async with cluster, cluster.client() as client:
            plugin = await start_plugin(client, cluster.scheduler, **{"epoch": "1s", **settings})
            result = await scenario(client, cluster, plugin)
            inside(plugin).check()
            assert plugin.failed is None
            return result

    return virtual.run(run)


def virtually(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test on the virtual clock without a cluster."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        from benchmarks import virtual

        virtual.run(functools.partial(test, **given))

    return run


def on_virtual(threads: list[int], *, resources: Any = None, **settings: Any) -> Callable[..., Any]:
    """A test on the virtual clock: it is called with the arguments of `on_virtual_clock`."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            scenario = functools.partial(test, **given)
            on_virtual_clock(scenario, threads, resources=resources, **settings)

        signature = inspect.signature(test)
        given = [p.replace(kind=p.KEYWORD_ONLY) for p in [*signature.parameters.values()][3:]]
        run.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return run

    return decorate


@contextlib.contextmanager
def counted_calls(*parts: str) -> Iterator[Counter[str]]:
    """Count the calls of functions of this thread in files with these ends, by function."""
    found: Counter[str] = Counter()

    def count(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(parts):
            found[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def small_cluster(workers: int = 2, **settings: Any) -> Iterator[Client]:
    """A client of a cluster in this process: workers of one thread each, no dashboard."""
    shape = {"n_workers": workers, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(dashboard_address=None, **shape, **settings) as cluster,
        Client(cluster, **settings) as client,
    ):
        yield client


async def work(seconds: float, *inputs: Any) -> None:
    """A task that holds its thread for some seconds of the virtual clock."""
    from benchmarks import virtual

    await virtual.work(seconds=seconds)


async def train(
    client: Client,
    name: str,
    fall: float,
    *,
    iterations: int,
    tasks: int = 8,
    seconds: float = 0.1,
    end: float = 0.0,
    **settings: Any,
) -> float:
    """Have a job train on some tasks at a time; return the seconds of the virtual clock."""
    from benchmarks import virtual

    begin = virtual.now()
    async with slaq.job(name, client=client, **settings) as job:
        for k in range(iterations):
            await client.gather(in_job(client, name).map(work, [seconds] * tasks, pure=False))
            job.report(end + fall**k)
    return virtual.now() - begin


class Spans:
    """Times at which the tasks of `spend` began and ended on the virtual clock, by name."""

    seen: ClassVar[list[tuple[str, float, float]]] = []

    @classmethod
    def at_once(cls, *names: str) -> int:
        """Return the most tasks of these names that computed at once."""
        found = [(t, way) for n, a, b in cls.seen if n in names for t, way in ((a, 1), (b, -1))]
        return max(itertools.accumulate(way for _, way in sorted(found)), default=0)

    @classmethod
    def seconds(cls, *names: str, before: float = math.inf) -> float:
        """Return the sum of the seconds of the tasks of these names, `before` a time."""
        return sum(max(min(b, before) - a, 0.0) for n, a, b in cls.seen if n in names)


async def spend(name: str, seconds: float) -> None:
    """As `work`, and note it in `Spans`."""
    from benchmarks import virtual

    begin = virtual.now()
    await virtual.work(seconds=seconds)
    Spans.seen.append((name, begin, virtual.now()))


@contextlib.asynccontextmanager
async def jobs(client: Client, *names: str, **settings: Any) -> AsyncIterator[list[Any]]:
    """Several jobs of one coroutine; submit under `tasks_of`."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(slaq.job(name, client=client, **settings))
            for name in names
        ]


def tasks_of(job: str) -> Any:
    """Tasks submitted in this block belong to `job`, whichever block was entered last."""
    return dask.annotate(slaq_job=job)


def in_job(client: Client, job: str) -> Any:
    """A client whose tasks belong to `job`, whichever block was entered last."""

    def method(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with tasks_of(job):
                return getattr(client, name)(*args, **kwargs)

        return call

    return SimpleNamespace(**{name: method(name) for name in ("submit", "map", "compute")})


def wait_for(event: str, result: Any = None, *dependencies: Any) -> Any:
    """A task that holds its thread until the event of this name is set."""
    Event(event).wait()
    return result


async def let_end(client: Client, futures: Any, event: str = "go") -> Any:
    """Let tasks that wait for an event end, and return the results of tasks."""
    await Event(event, client=client).set()
    return await (futures if isinstance(futures, Future) else client.gather(futures))


def name_a_task(client: Client, key: str) -> None:
    """Have the graphs of a client say that a task submits them."""
    send, more = client._send_to_scheduler, {"submitting_task": key}
    client._send_to_scheduler = lambda m: send(m | more if m["op"] == "update-graph" else m)


def where(*args: Any, **kwargs: Any) -> str:
    """A task that tells the worker it ran on."""
    from distributed import get_worker

    return get_worker().address


async def begun(scheduler: Scheduler, futures: Any) -> Any:
    """Wait until a task, or each of several, is on a worker; return it or them."""
    for future in futures if isinstance(futures, list) else [futures]:
        await state_of(scheduler, future, "processing")
    return futures


async def held_tasks(client: Client, plugin: slaq.SlaqPlugin, job: str, n: int, run: int) -> Any:
    """Tasks that hold their threads until the event "go": `run` compute, the others are held."""
    with tasks_of(job):
        futures = client.map(wait_for, ["go"] * n, range(n), pure=False)
    await until(lambda: (running(plugin, job), ready(plugin, job)) == (run, n - run))
    return futures


def map_in_each(client: Client, names: Iterable[str], *args: Any, **kwargs: Any) -> list[Any]:
    """Submit the same tasks in each of several jobs."""
    futures = []
    for name in names:
        with tasks_of(name):
            futures += client.map(*args, pure=False, **kwargs)
    return futures


def hook(scheduler: Scheduler, name: str, function: Callable[..., Any]) -> None:
    """Have a function called by one hook of a plugin, which has the name of the hook."""
    plugin = type(name, (SchedulerPlugin,), {name: staticmethod(function)})()
    scheduler.add_plugin(plugin, name=name)


async def until(condition: Callable[[], Any], timeout: float = PATIENCE) -> None:
    """Wait until something holds, looking often."""
    await utils_test.async_poll_for(condition, timeout, period=0.005)


def pause(worker: Worker) -> None:
    """Pause a worker for good: Dask resumes one by itself that has memory."""
    worker.memory_manager.memory_pause_fraction = False
    worker.status = Status.paused


def steal(scheduler: Scheduler, ts: Any, thief: Worker) -> None:
    """Have work stealing ask for a task, and say so, as `WorkStealing.balance` does."""
    stealing, there = scheduler.extensions["stealing"], ts.processing_on
    stealing.move_task_request(ts, there, scheduler.workers[thief.address])
    stealing.log(("request", [(0.0, 0, ts.key, 1.0, there.address, 1.0, thief.address, 0.0)]))


def compute_seconds(scheduler: Scheduler) -> float:
    """Compute seconds of all tasks, as Dask counts them."""
    return sum(prefix.all_durations["compute"] for prefix in scheduler.task_prefixes.values())


def another_client(scheduler: Scheduler) -> Client:
    """A further client, which is nobody's default."""
    return Client(scheduler.address, asynchronous=True, set_as_default=False)


async def report_epochs(plugin: slaq.SlaqPlugin, job: Any, losses: Iterable[float]) -> None:
    """Report losses, and let an epoch pass after each."""
    for loss in losses:
        before = inside(plugin).reports[job.name]
        job.report(loss)
        await until(lambda before=before: inside(plugin).reports[job.name] > before)
        plugin.run_once()


async def used_in(plugin: slaq.SlaqPlugin, seconds: float) -> dict[str, float]:
    """Return the core-seconds that each owner uses in so many seconds from now on."""
    before = {owner: usage.core_seconds for owner, usage in inside(plugin).accounts.totals.items()}
    await asyncio.sleep(seconds)
    usage = inside(plugin).accounts.totals
    return {o: usage.of(o).core_seconds - before.get(o, 0.0) for o, _ in usage.items()}


async def page_of(scheduler: Scheduler, path: str) -> str:
    """What the scheduler's dashboard serves."""
    url = f"http://127.0.0.1:{scheduler.http_server.port}{path}"
    return (await AsyncHTTPClient().fetch(url)).body.decode()


async def alerts_of(client: Client, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Follow all alerts from now on."""
    seen: list[dict[str, Any]] = []
    slaq.alerts(seen.append, client=client)
    await until(lambda: client.id in current_plugin(scheduler).subscribers)
    return seen


def asked_to_stop(job: Any) -> bool:
    """Whether a job of a client was told to stop: its next report raises."""
    return job._asked_to_stop


def warn_again() -> None:
    """Let workers of this process say once more what they say once."""
    reports._warned.clear()


def forget_shown() -> None:
    """Let the pages of the board be made anew, rather than be those of a moment ago."""
    from dask_slaq.scheduler.board import data

    data._cache.clear()


#: States of ready tasks that wait in a pool.
HELD = ("queued", "no-worker")


async def state_of(scheduler: Scheduler, future: Any, *states: str) -> None:
    """Wait until a task is in one of the states."""
    await until(
        lambda: future.key in scheduler.tasks and scheduler.tasks[future.key].state in states
    )


def assert_nothing_left(scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> None:
    """No job, no task in a pool, no restriction of ours."""
    assert inside(plugin).left_over() == []
    assert not inside(plugin).jobs
    assert not inside(plugin).is_running()
    assert restricted_by_us(scheduler, plugin) == []


def restricted_by_us(scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> list[Any]:
    """Tasks that carry a restriction of the plugin's."""
    return [ts for ts in scheduler.tasks.values() if inside(plugin).restricts(ts)]


def ready(plugin: slaq.SlaqPlugin, job: str) -> int:
    """The number of tasks of a job that wait for a slot."""
    return len(inside(plugin).pool(job).ready)


def running(plugin: slaq.SlaqPlugin, job: str) -> int:
    """The number of tasks of a job that were sent through slots and compute."""
    return len(inside(plugin).pool(job).running)


def served(plugin: slaq.SlaqPlugin) -> list[str]:
    """The jobs of the tasks that were sent to workers, in this order."""
    return [binding.job for binding in inside(plugin).bindings]


def reasons(plugin: slaq.SlaqPlugin) -> dict[Any, str]:
    """Why each task was last sent to its worker, by key."""
    return {binding.key: binding.reason for binding in inside(plugin).bindings}


@dataclass
class Run:
    """A task that ended: the set of its job when sent and at the end; the jobs when sent."""

    key: Any
    job: str
    reason: str
    sent_to: str
    ran_on: str
    held_then: frozenset[str]
    held_now: frozenset[str]
    jobs: int


class Recorder(SchedulerPlugin):
    """Records where tasks are sent, what their job holds then, and where they ended."""

    name = "recorder"

    def __init__(self, scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> None:
        self.scheduler = scheduler
        self.plugin = plugin
        self.sent: dict[Any, tuple[str, str, frozenset[str], int]] = {}
        self.ended: list[Run] = []
        scheduler.add_plugin(self)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        pools = self.plugin.pools
        pool = pools.records.pool_of.get(key)
        if finish == "processing" and pool is not None:
            worker = self.scheduler.tasks[key].processing_on.address
            self.sent[key] = pool.name, worker, frozenset(pool.granted.workers), len(pools.pools)
        elif start == "processing" and finish == "memory" and key in self.sent:
            job, worker, held, jobs = self.sent.pop(key)
            sent = (b for b in reversed(pools.bindings) if (b.key, b.worker) == (key, worker))
            reason = next(sent).reason
            now = frozenset(pool.granted.workers if pool is not None else held)
            self.ended.append(Run(key, job, reason, worker, kwargs["worker"], held, now, jobs))

    def held(self) -> list[Run]:
        """Runs of tasks that went through a pool."""
        return [run for run in self.ended if run.reason != "passed"]

    def check(self, *, lend: bool = True) -> None:
        """Each task ran where its job held a slot, or was lent one, at that moment."""
        assert self.ended
        for run in self.held():
            assert run.reason in ("granted", "floor", "lent"), run
            if run.reason == "granted":
                assert run.sent_to in run.held_then | run.held_now, run
            if not lend:
                assert run.reason != "lent", run
                # A job that was granted no worker yet has its floor wherever a thread is free.
                unset = run.reason == "floor" and not run.held_then
                assert unset or run.ran_on in run.held_then | run.held_now, run
