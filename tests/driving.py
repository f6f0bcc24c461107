"""How the tests of the shell drive it: jobs side by side, tasks held on events, recorded runs.

The plugin gets an epoch of an hour, so that nothing happens by a timer: tests call `run_once`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import dask
from distributed import Client, Event, Scheduler, utils_test
from distributed.diagnostics.plugin import SchedulerPlugin

import dask_slaq as slaq

#: Seconds after which a test gives up waiting: tests assert behaviour, on a slow machine too.
PATIENCE = 300

#: A test on a scheduler and workers of this process.
gen_cluster = functools.partial(utils_test.gen_cluster, timeout=PATIENCE)


async def start_plugin(client: Client, scheduler: Scheduler, **settings: Any) -> slaq.SlaqPlugin:
    """Register the plugin and return the scheduler's instance."""
    await client.register_plugin(slaq.SlaqPlugin(**{"policy": "fair", "epoch": "1h", **settings}))
    return scheduler.plugins["slaq"]


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


def wait_for(event: str, result: Any = None, *dependencies: Any) -> Any:
    """A task that holds its thread until the event of this name is set."""
    Event(event).wait()
    return result


def where(*args: Any, **kwargs: Any) -> str:
    """A task that tells the worker it ran on."""
    from distributed import get_worker

    return get_worker().address


async def until(condition: Callable[[], Any], timeout: float = PATIENCE) -> None:
    """Wait until something holds, looking often."""
    await utils_test.async_poll_for(condition, timeout, period=0.005)


async def state_of(scheduler: Scheduler, future: Any, *states: str) -> None:
    """Wait until a task is in one of the states."""
    await until(
        lambda: future.key in scheduler.tasks and scheduler.tasks[future.key].state in states
    )


def assert_nothing_left(scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> None:
    """No job, no task in a pool, no restriction of ours."""
    assert plugin.pools.left_over() == []
    assert not plugin.engine.jobs
    assert not plugin.timer.is_running
    assert restricted_by_us(scheduler, plugin) == []


def restricted_by_us(scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> list[Any]:
    """Tasks that carry a restriction of the plugin's."""
    return [ts for ts in scheduler.tasks.values() if plugin.pools.control.has(ts)]


@dataclass
class Run:
    """One task sent to one worker, with what its job held at that moment."""

    key: Any
    job: str
    worker: str
    reason: str
    held: frozenset[str]
    jobs: int


class Recorder(SchedulerPlugin):
    """Records where tasks are sent, what their job holds then, and where they ended."""

    name = "recorder"

    def __init__(self, scheduler: Scheduler, plugin: slaq.SlaqPlugin) -> None:
        self.scheduler = scheduler
        self.plugin = plugin
        self.sent: dict[Any, Run] = {}
        self.ended: list[tuple[Run, str]] = []
        scheduler.add_plugin(self)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        pools = self.plugin.pools
        pool = pools.tracker.owner.get(key)
        if finish == "processing" and pool is not None:
            last = pools.bindings[-1]
            assert last.key == key
            self.sent[key] = Run(
                key,
                pool.name,
                self.scheduler.tasks[key].processing_on.address,
                last.reason,
                frozenset(pool.workers),
                len(pools.pools),
            )
        elif start == "processing" and finish == "memory" and key in self.sent:
            run, worker = self.sent.pop(key), kwargs["worker"]
            for binding in reversed(pools.bindings):
                if binding.key == key and run.reason != "passed":  # it may have been moved
                    held = run.held if binding.worker == run.worker else frozenset(pool.workers)
                    run = replace(run, worker=binding.worker, reason=binding.reason, held=held)
                    break
            self.ended.append((run, worker))

    def held(self) -> list[Run]:
        """Runs of tasks that went through a pool."""
        return [run for run, _ in self.ended if run.reason != "passed"]

    def check(self, *, lend: bool = True) -> None:
        """Each task ran where its job held a slot, or was lent one, at that moment."""
        assert self.ended
        for run, worker in self.ended:
            if run.reason == "passed":
                continue
            assert worker == run.worker, run
            assert run.reason in ("granted", "floor", "lent"), run
            if run.reason == "granted" or not lend:
                assert run.worker in run.held, run
            assert lend or run.reason != "lent", run
