"""Drives emulated jobs on a virtual cluster: real Dask parts, and a clock that never waits.

Each job is a coroutine with a client of its own. A policy and a seed are one virtual run, whose
figures do not depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from distributed import Client, wait

from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.live_jobs.emulated import EmulatedJob
from benchmarks.live_jobs.graphs import Compute, iteration, load
from dask_slaq.simulation import virtual

__all__ = ["run_virtual"]

#: Bytes of what a partition gives to the sums.
GRADIENT_BYTES = 512
#: Virtual seconds, for each second of the jobs' compute and in all, after which a run is given up.
PATIENCE, PATIENCE_EACH = 600.0, 10.0


async def partition(nbytes: int) -> Any:
    """Hold `nbytes` on a worker."""
    return await virtual.work(nbytes=nbytes)


async def gradient(chunk: Any, seconds: float) -> Any:
    """Stand for the compute of one partition."""
    return await virtual.work(chunk, seconds=seconds, nbytes=GRADIENT_BYTES)


async def total(parts: list[Any]) -> Any:
    """Stand for the sum of what the partitions gave."""
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
    **settings: Any,
) -> Run:
    """Run all jobs under `policy` on a fresh virtual cluster.

    Parameters
    ----------
    jobs : sequence of EmulatedJob
    policy : str
    seed : int
        Noted in the result, and the seed of the virtual run.
    workers : int
        One-thread workers.
    partition_bytes : int
        Data that each partition of a job keeps on a worker.
    predictor : object, optional
        In place of the plugin's own loss predictor.
    settings
        Further arguments of `SlaqPlugin`.
    """
    plugin = clusters.plugin(policy, predictor=predictor, **settings)

    async def main() -> Run:
        async with virtual.Cluster(threads=[1] * workers) as cluster:
            meter = clusters.meter(cluster)
            traces = await _train_all(cluster, jobs, policy, plugin, partition_bytes)
            sent = sum(int(w.transfer_outgoing_bytes_total) for w in cluster.workers)
            return Run(seed, traces, sent, meter.seconds, workers)

    limit = PATIENCE + PATIENCE_EACH * sum(float(job.seconds.sum()) for job in jobs)
    return virtual.run(main, seed=seed, limit=limit)


async def _train_all(
    cluster: virtual.Cluster,
    jobs: Sequence[EmulatedJob],
    policy: str,
    plugin: Any,
    partition_bytes: int,
) -> list[JobTrace]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(cluster.client()) for _ in jobs]
        if plugin is not None:
            await clients[0].register_plugin(plugin)
        begin = virtual.now()
        return await asyncio.gather(
            *(
                _drive(client, job, policy, begin, partition_bytes)
                for client, job in zip(clients, jobs, strict=True)
            )
        )


async def _drive(
    client: Client, job: EmulatedJob, policy: str, begin: float, partition_bytes: int
) -> JobTrace:
    """Train one job from its arrival on."""
    trace = JobTrace(job.name, job.arrival)
    await asyncio.sleep(begin + job.arrival - virtual.now())
    async with clusters.job_block(policy, job.name, client, job.max_iter) as block:
        data = load(client, COMPUTE, job.name, job.seconds.shape[1], partition_bytes)
        with client.as_current():
            await wait(data)
        for k, seconds in enumerate(job.seconds):
            future = client.compute(iteration(COMPUTE, job.name, k, data, seconds))
            await future.result()
            trace.record(virtual.now() - begin, job.loss[k])
            block.report(float(job.reports[k]))
        del data, future
    trace.completion = virtual.now() - begin
    return trace
