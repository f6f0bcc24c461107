"""A real scheduler with protocol workers, for measuring the plugin's own cost.

Only the workers are emulated: they speak Dask's protocol and compute nothing (`protocol_workers`).
Python's garbage collector and work stealing are off while the cluster is open.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import dask
from distributed import Client, Scheduler

from benchmarks.common.cluster import plugin
from benchmarks.common.protocol_workers import ProtocolWorkers
from benchmarks.virtual.cluster import CONFIG

#: Services that measure the machine or send requests to the workers are off.
QUIET = {
    **CONFIG,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": None,
}


def first(x: int) -> int:
    """Return `x`: a task without inputs."""
    return x


def then(x: int) -> int:
    """Return `x`: a task whose input is on one worker."""
    return x


@asynccontextmanager
async def cluster(
    policy: str, seed: int, seconds: tuple[float, float] = (0.5, 1.5)
) -> AsyncIterator[tuple[Any, ProtocolWorkers, Client]]:
    """Start a scheduler without workers, with the plugin unless the policy is `none`.

    Yields the scheduler, its protocol workers and a client. The times of tasks are drawn from the
    seed, between the `seconds`.
    """
    draw = random.Random(seed)
    async with AsyncExitStack() as stack:
        stack.enter_context(dask.config.set(QUIET))
        logging.getLogger("distributed").setLevel(logging.WARNING)
        scheduler = await Scheduler(protocol="inproc://", dashboard=False, dashboard_address=":0")
        workers = ProtocolWorkers(scheduler, lambda key: draw.uniform(*seconds))
        stack.push_async_callback(workers.close)
        stack.push_async_callback(scheduler.close)
        client = await stack.enter_async_context(
            Client(scheduler.address, asynchronous=True, set_as_default=False)
        )
        made = plugin(policy, epoch="1h")  # benchmarks run the epochs themselves
        if made is not None:
            await client.register_plugin(made)
        reporting = asyncio.create_task(workers.run())
        stack.callback(reporting.cancel)
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        yield scheduler, workers, client


def submit(client: Client, job: str, count: int, *, steps: int = 0) -> list[Any]:
    """Submit root tasks of a job, each followed by a chain of `steps` dependent tasks.

    Returns the futures of all tasks.
    """
    with dask.annotate(slaq_job=job):
        futures = client.map(first, range(count), pure=False)
        last = futures
        for _ in range(steps):
            last = client.map(then, last, pure=False)
            futures = futures + last
    return futures


async def until(condition: Any, patience: float = 300.0) -> None:
    """Wait until `condition()` is true, for at most `patience` seconds."""
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.005)


async def settled(scheduler: Scheduler) -> None:
    """Wait until the plugin has finished the work that it put off to later steps."""
    await asyncio.sleep(0.05)
    slaq = scheduler.plugins.get("slaq")
    await until(lambda: slaq is None or not (_converts(slaq.pools) or slaq.pools.wakes.due))
    await asyncio.sleep(0.05)


def _converts(pools: Any) -> bool:
    """Return whether tasks that Dask has queued are still to be held, or held ones given back."""
    if not pools.records.holding:
        return bool(pools.holds_or_releases)
    return any(map(pools.tracker.is_held, pools.scheduler.queued))
