"""Concurrent real fits, nothing emulated: one job per algorithm of the paper's Table 1.

Their partitions have many megabytes, so that the workers are the bottleneck. Each driver is a
thread with its own client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
from distributed import Client, wait

from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.live_jobs.real_time import JobThread, run_threads
from benchmarks.workloads.catalogue import CATALOGUE
from dask_slaq.demo.fits import PARTITIONS, compile_kmeans

__all__ = ["Fit", "runner"]

#: Rows per partition (25 MB), scaled by the workload's `size`, and iterations of each job.
ROWS, ITERATIONS = 100_000, 12
#: Seconds between arrivals, short enough that all jobs arrive before the first one ends.
GAP = 0.3


def runner(
    workers: int, *, rows: int = ROWS, part: float = 1.0, processes: bool = True, **settings: Any
) -> Callable[[str, int], Run]:
    """Make a function that runs a fit of each algorithm under one policy for one seed.

    Each makes a `part` of its iterations. With few `rows`, the drivers and the scheduler are the
    bottleneck. Workers have one thread; in-process workers are useful for trials only. `settings`
    are arguments of `SlaqPlugin`.
    """
    iterations = max(3, round(part * ITERATIONS))

    def run(policy: str, seed: int) -> Run:
        with clusters.local_cluster(workers, processes=processes) as (cluster, client):
            for name, row in CATALOGUE.items():
                with client.as_current():
                    held = dask.persist(*row.sized_data(rows, PARTITIONS, seed))
                    wait(held)
                client.publish_dataset(held, name=name)
            if processes:
                client.run(compile_kmeans)
            clusters.register(client, policy, **settings)
            meter, before = clusters.meter(cluster), clusters.bytes_moved(client)
            with clusters.Lateness() as late:
                start = time.perf_counter() + 0.2
                drivers = [
                    Fit(JobTrace(name, i * GAP), policy, cluster, start, name, model)
                    for i, (name, row) in enumerate(CATALOGUE.items())
                    for model in [row.estimator(iterations, seed)]
                ]
                traces = run_threads(drivers, policy)
            moved = clusters.bytes_moved(client) - before
            for name in CATALOGUE:
                client.unpublish_dataset(name)
        return Run(seed, traces, moved, meter.seconds, workers, late.mean)

    return run


class Fit(JobThread):
    """Thread that runs one fit as a job."""

    def __init__(
        self, trace: JobTrace, policy: str, cluster: Any, begin: float, data: str, model: Any
    ) -> None:
        super().__init__(trace, policy, cluster, begin)
        self.data = data
        self.model = model

    def load(self, client: Client) -> Any:
        return client.get_dataset(self.data)

    def train(self, client: Client, data: tuple[da.Array, ...]) -> None:
        from dask_slaq import instrument

        # Fits that report by themselves tell how many reports are to come.
        most = getattr(self.model, "max_iter", None)
        with clusters.job_block(self.policy, self.name, client, most and most + 1) as block:

            def publish(loss: float) -> None:
                self.trace.record(self.now(), loss)
                block.report(loss)

            with instrument(publish):  # with nested blocks, the innermost one receives the losses
                self.model.fit(*data)
