"""Driver of emulated jobs on a virtual cluster: real Dask parts on a clock that never waits.

Each job is a coroutine with its own client. Each policy and seed is one virtual run, whose results
do not depend on the load of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
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
#: Timeout of a run in virtual seconds, and further seconds per second of the jobs' compute.
PATIENCE, PATIENCE_EACH = 600.0, 10.0


async def partition(nbytes: int) -> Any:
    """Make a partition that weighs `nbytes` bytes."""
    return await virtual.work(nbytes=nbytes)


async def gradient(chunk: Any, seconds: float) -> Any:
    """Emulate the compute of one partition, `seconds` on the virtual clock."""
    return await virtual.work(chunk, seconds=seconds, nbytes=GRADIENT_BYTES)


async def total(parts: list[Any]) -> Any:
    """Emulate a sum of gradients."""
    return await virtual.work(*parts, nbytes=GRADIENT_BYTES)


COMPUTE = Compute(partition, gradient, total)


def run_virtual(
    jobs: Sequence[EmulatedJob],
    policy: str,
    *,
    seed: int,
    workers: int = 16,
    partition_bytes: int = 2**20,
    predictor: Any = None,
    past: Sequence[PastRun] = (),
    compute: Compute | None = None,
    prepare: Callable[[virtual.Cluster], object] = lambda cluster: None,
    charge: float = 0.0,
    **settings: Any,
) -> Run:
    """Run all jobs under `policy` on a fresh virtual cluster of one-thread workers.

    The scheduler remembers the `past` runs. `compute` are the functions of the tasks, and `prepare`
    is called with the cluster before the first job. The scheduler's CPU time takes `charge` times
    as much virtual time. `settings` are further arguments of `SlaqPlugin`.
    """
    plugin = clusters.plugin(policy, predictor=predictor, **settings)

    async def main() -> Run:
        async with virtual.Cluster(threads=[1] * workers) as cluster, AsyncExitStack() as stack:
            stack.enter_context(virtual.charge_scheduler(cluster.scheduler, charge))
            meter = clusters.meter(cluster)
            counted: list[clusters.Inside] = []  # after the plugin has seen each task

            def begin(cluster: virtual.Cluster) -> None:
                prepare(cluster)
                counted.append(clusters.inside(cluster))

            train = partial(_train_all, cluster, jobs, policy, plugin, partition_bytes, past)
            traces = await train(compute or COMPUTE, begin)
            sent = sum(int(w.transfer_outgoing_bytes_total) for w in cluster.workers)
            spent = virtual.seconds_charged()
            return Run(
                seed, traces, sent, meter.seconds, workers, charged=spent, inside=counted[0].parts
            )

    limit = PATIENCE + PATIENCE_EACH * sum(float(job.seconds.sum()) for job in jobs)
    return virtual.run(main, seed=seed, limit=limit)


async def _train_all(
    cluster: virtual.Cluster,
    jobs: Sequence[EmulatedJob],
    policy: str,
    plugin: Any,
    partition_bytes: int,
    past: Sequence[PastRun],
    compute: Compute,
    prepare: Callable[[virtual.Cluster], object],
) -> list[JobTrace]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(cluster.client()) for _ in jobs]
        if plugin is not None:
            await clients[0].register_plugin(plugin)
            for run in past:
                cluster.scheduler.plugins["slaq"].run_history.runs.recall(run)
        prepare(cluster)
        begin = virtual.now()
        return await asyncio.gather(
            *(
                _drive(client, job, policy, begin, partition_bytes, compute)
                for client, job in zip(clients, jobs, strict=True)
            )
        )


async def _drive(
    client: Client,
    job: EmulatedJob,
    policy: str,
    begin: float,
    partition_bytes: int,
    compute: Compute,
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
        data = load(client, compute, job.name, job.seconds.shape[1], partition_bytes)
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
