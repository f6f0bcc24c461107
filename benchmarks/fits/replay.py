"""Replay of recorded fits on the virtual clock."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
from dask import delayed

from benchmarks import virtual
from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.fits.recording import HALVES, OTHERS, Fit, lengthen, read
from dask_slaq.core.policies import Allocation, Snapshot

#: Blocks of data per fit, their bytes, those of results, and worker threads.
BLOCKS, BLOCK_BYTES, RESULT_BYTES, WORKERS = 4, 10_000_000, 200_000, 2
#: Virtual seconds of a task where none was recorded, and the timeout of a run.
SHORTEST, LIMIT = 0.0005, 5000.0


class Oracle:
    """Policy that knows the core-seconds left by name: to 90 % of the fall, or to the end."""

    name = "oracle"
    needs: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.left: dict[str, tuple[bool, float]] = {}

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Give all threads to the first job."""
        order = sorted(range(len(snapshot.jobs)), key=lambda i: self.left[snapshot.jobs[i]])
        index, share = np.zeros(len(order)), np.zeros(len(order))
        index[order] = np.arange(len(order), 0, -1)
        share[order[:1]] = snapshot.capacity
        return Allocation(share, index)


def make_list(name: str, fits: Mapping[str, Fit], seed: int) -> dict[str, tuple[float, Fit]]:
    """Return the arrival in seconds and the fit of each job of a list."""
    rng = np.random.default_rng([3, seed])
    names = [list(fits)[i] for i in rng.permutation(len(fits))]
    if name == "six":
        return {each: (0.0, fits[each]) for each in names[:6]}
    gap, times = (4.0, 4) if name == "long" else (2.0, 1)
    at = np.cumsum(rng.exponential(gap, len(names)))
    made = (lengthen(fits[each], times) for each in names)
    return dict(zip(names, zip((at - at[0]).tolist(), made, strict=True), strict=True))


def graph(name: str, k: int, data: list[Any], seconds: list[float]) -> Any:
    """Return four chains of tasks on four blocks of data, and their sum."""
    ends = []
    for p in range(BLOCKS):
        last = data[p]
        for i, each in enumerate(seconds[p:-1:BLOCKS] or [SHORTEST]):
            key = (f"t{i}-{name}-{k}", p)
            last = delayed(virtual.work)(last, seconds=each, nbytes=RESULT_BYTES, dask_key_name=key)
        ends.append(last)
    total = seconds[-1] if seconds else SHORTEST
    return delayed(virtual.work)(*ends, seconds=total, nbytes=512, dask_key_name=f"sum-{name}-{k}")


def run(which: str, path: str | None, policy: str, seed: int, latency: float, charge: float) -> Run:
    """Run a list under one policy."""
    fits = read(path or (OTHERS if which in HALVES else None))
    if which in HALVES:
        fits = dict(list(fits.items())[HALVES.index(which) :: 2])
    jobs = make_list(which, fits, seed)
    traces = {name: JobTrace(name, arrival) for name, (arrival, _) in jobs.items()}
    oracle = Oracle() if policy == "oracle" else None
    settings = {"epoch": "1s"}
    if oracle is not None:
        settings = {"epoch": "200ms", "floor": 0.0, "max_slowdown": math.inf}
    plugin = clusters.plugin("max-total" if oracle is not None else policy, **settings)
    virtual.set_latency(latency)

    async def drive(client: Any, name: str, data: list[Any], begin: float) -> None:
        (arrival, fit), trace = jobs[name], traces[name]
        goal = fit.reports_to(0.9)
        await asyncio.sleep(begin + arrival - virtual.now())
        if oracle is not None:
            oracle.left[name] = False, fit.seconds(0, goal)
        async with clusters.job_block(policy, name, client, fit.max_iter) as block:
            for k, (gap, seconds) in enumerate(fit.iterations):
                await asyncio.sleep(gap)
                future = client.compute(graph(name, k, data, seconds))
                await future
                del future
                if oracle is not None:
                    past = k + 1 >= goal
                    oracle.left[name] = past, fit.seconds(k + 1, None if past else goal)
                if k < len(fit.losses):
                    trace.record(virtual.now() - begin, fit.losses[k])
                    block.report(fit.losses[k])
        trace.completion = virtual.now() - begin

    async def main() -> Run:
        async with virtual.Cluster(threads=[1] * WORKERS) as cluster, AsyncExitStack() as stack:
            stack.enter_context(virtual.charge_scheduler(cluster.scheduler, charge))
            clients = {n: await stack.enter_async_context(cluster.client()) for n in jobs}
            if plugin is not None:
                await next(iter(clients.values())).register_plugin(plugin)
            if oracle is not None:
                cluster.scheduler.plugins["slaq"].engine.set_policy(oracle)
            at, data = itertools.cycle(list(cluster.scheduler.workers)), {}
            for name, client in clients.items():
                data[name] = [
                    client.submit(
                        virtual.work, nbytes=BLOCK_BYTES, key=f"data-{name}-{p}",
                        workers=[next(at)], pure=False,
                    )
                    for p in range(BLOCKS)
                ]  # fmt: skip
                await asyncio.gather(*data[name])
            begin, meter = virtual.now(), clusters.meter(cluster)
            inside = clusters.inside(cluster)
            await asyncio.gather(*(drive(clients[n], n, data[n], begin) for n in jobs))
            data.clear()
            return Run(seed, list(traces.values()), 0, meter.seconds, WORKERS, inside=inside.parts)

    return virtual.run(main, seed=seed, limit=LIMIT)
