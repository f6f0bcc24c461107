"""Drivers of emulated jobs: Dask's scheduler and workers in this process, on either clock.

Each job is a coroutine with its own client. Its tasks wait instead of computing. On the virtual
clock, a run does not depend on the load of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from distributed import Client, wait

from benchmarks import virtual
from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.live_jobs.emulated import EmulatedJob
from benchmarks.live_jobs.graphs import Compute, batch, iteration, load
from dask_slaq.core.run_history import PastRun

#: Bytes of a gradient.
GRADIENT_BYTES = 512
#: Timeout of a run in seconds, and further seconds per second of the jobs' compute.
PATIENCE, PATIENCE_EACH = 600.0, 10.0


async def partition(nbytes: int) -> Any:
    """Make a partition that weighs `nbytes` bytes."""
    return await virtual.work(nbytes=nbytes)


async def gradient(chunk: Any, seconds: float) -> Any:
    """Emulate the compute of one partition, some `seconds`."""
    return await virtual.work(chunk, seconds=seconds, nbytes=GRADIENT_BYTES)


async def total(parts: list[Any]) -> Any:
    """Emulate a sum of gradients."""
    return await virtual.work(*parts, nbytes=GRADIENT_BYTES)


COMPUTE = Compute(partition, gradient, total)


def run_emulated(
    jobs: Sequence[EmulatedJob],
    policy: str,
    *,
    seed: int,
    clock: str = "virtual",
    workers: int = 16,
    predictor: Any = None,
    past: Sequence[PastRun] = (),
    compute: Compute = COMPUTE,
    prepare: Callable[[virtual.Cluster], object] = lambda cluster: None,
    charge: float = 0.0,
    **settings: Any,
) -> Run:
    """Run all jobs under `policy` on a fresh cluster of one-thread workers.

    The `clock` is "virtual" or "real". The scheduler remembers the `past` runs. `compute` are the
    functions of the tasks, and `prepare` is called with the cluster before the first job. The
    scheduler's CPU time takes `charge` times as much virtual time. `settings` are further arguments
    of `SlaqPlugin`.
    """
    plugin = clusters.plugin(policy, predictor=predictor, **settings)

    async def main() -> Run:
        async with virtual.Cluster(threads=[1] * workers) as cluster, AsyncExitStack() as stack:
            stack.enter_context(virtual.charge_scheduler(cluster.scheduler, charge))
            meter = clusters.meter(cluster)
            clients = [await stack.enter_async_context(cluster.client()) for _ in jobs]
            if plugin is not None:
                await clients[0].register_plugin(plugin)
                for run in past:
                    cluster.scheduler.plugins["slaq"].run_history.runs.recall(run)
            prepare(cluster)
            inside = clusters.inside(cluster)  # after the plugin has seen each task
            begin = virtual.now()
            traces = await asyncio.gather(
                *(
                    _drive(client, job, policy, begin, compute)
                    for client, job in zip(clients, jobs, strict=True)
                )
            )
            sent = sum(int(w.transfer_outgoing_bytes_total) for w in cluster.workers)
            spent = virtual.seconds_charged()
            return Run(
                seed, traces, sent, meter.seconds, workers, charged=spent, inside=inside.parts
            )

    limit = PATIENCE + PATIENCE_EACH * sum(float(job.seconds.sum()) for job in jobs)
    if clock == "virtual":
        return virtual.run(main, seed=seed, limit=limit)
    with clusters.Lateness() as late:
        done = asyncio.run(asyncio.wait_for(main(), limit))
    return replace(done, late=late.mean)


async def _drive(
    client: Client, job: EmulatedJob, policy: str, begin: float, compute: Compute
) -> JobTrace:
    """Wait for the arrival of one job, and train it."""
    trace = JobTrace(job.name, job.arrival)
    await asyncio.sleep(begin + job.arrival - virtual.now())
    async with clusters.job_block(policy, job.name, client, job.max_iter, job.kind) as block:
        if job.shape != "training":
            futures = client.compute(batch(compute, job.name, job.shape, job.seconds))
            with client.as_current():
                await wait(futures)
            del futures
            trace.completion = virtual.now() - begin
            return trace
        data = load(client, compute, job.name, job.seconds.shape[1])
        with client.as_current():
            await wait(data)
        for k, seconds in enumerate(job.seconds):
            future = client.compute(iteration(compute, job.name, k, data, seconds))
            await future.result()
            trace.record(virtual.now() - begin, job.loss[k])
            block.report(float(job.reports[k]))
        del data, future
    trace.completion = virtual.now() - begin
    return trace
