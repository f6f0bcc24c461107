"""Driver of emulated jobs on a real cluster, whose tasks sleep instead of computing.

Each job is a thread with its own client, and keeps its partitions on the workers. An iteration is
one task per partition, a small tree of sums, and one report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client, wait

from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.live_jobs.emulated import EmulatedJob
from benchmarks.live_jobs.graphs import Compute, iteration, load

__all__ = ["Driver", "run_emulated"]

#: Timeout of an iteration in seconds, and further seconds per second of its compute, since a job
#: may get much less than one thread.
PATIENCE, PATIENCE_EACH = 120.0, 10.0


def run_emulated(
    jobs: Sequence[EmulatedJob],
    policy: str,
    *,
    seed: int,
    workers: int = 16,
    partition_bytes: int = 2**20,
    predictor: Any = None,
    **settings: Any,
) -> Run:
    """Run all jobs under `policy` on a fresh cluster.

    Parameters
    ----------
    jobs : sequence of EmulatedJob
    policy : str
    seed : int
        Recorded in the result.
    workers : int
        One-thread workers in this process.
    partition_bytes : int
        Bytes per partition.
    predictor : object, optional
        Replacement for the plugin's loss predictor.
    **settings
        Further arguments of `SlaqPlugin`.
    """
    with clusters.local_cluster(workers) as (cluster, client), clusters.Lateness() as late:
        clusters.register(client, policy, predictor=predictor, **settings)
        meter = clusters.meter(cluster)
        start = time.perf_counter() + 0.2
        drivers = [Driver(job, policy, cluster, start, partition_bytes) for job in jobs]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        for driver in drivers:
            if driver.error is not None:
                raise RuntimeError(f"{driver.job.name} failed under {policy}") from driver.error
        return Run(
            seed,
            [driver.trace for driver in drivers],
            clusters.bytes_moved(client),
            meter.seconds,
            workers,
            late.mean,
        )


class Driver(threading.Thread):
    """Thread with the training loop of one job.

    Parameters
    ----------
    job : EmulatedJob
    policy : str
    cluster : LocalCluster
    start : float
        Start of the run on the clock of `time.perf_counter`.
    partition_bytes : int

    Attributes
    ----------
    trace : JobTrace
    error : BaseException or None
        The exception that ended the thread.
    """

    def __init__(
        self, job: EmulatedJob, policy: str, cluster: Any, start: float, partition_bytes: int
    ) -> None:
        super().__init__(name=job.name, daemon=True)
        self.job = job
        self.policy = policy
        self.cluster = cluster
        self.begin = start
        self.partition_bytes = partition_bytes
        self.trace = JobTrace(job.name, job.arrival)
        self.error: BaseException | None = None

    def now(self) -> float:
        return time.perf_counter() - self.begin

    def run(self) -> None:
        try:
            with clusters.another_client(self.cluster) as client, client.as_current():
                time.sleep(max(0.0, self.job.arrival - self.now()))
                self.train(client)
        except BaseException as error:
            self.error = error

    def train(self, client: Client) -> None:
        job = self.job
        with clusters.job_block(self.policy, job.name, client, job.max_iter) as block:
            data = load(client, COMPUTE, job.name, job.seconds.shape[1], self.partition_bytes)
            wait(data, timeout=PATIENCE)
            for k, seconds in enumerate(job.seconds):
                future = client.compute(iteration(COMPUTE, job.name, k, data, seconds))
                future.result(timeout=PATIENCE + PATIENCE_EACH * float(seconds.sum()))
                self.trace.record(self.now(), job.loss[k])
                block.report(float(job.reports[k]))
            del data, future
        self.trace.completion = self.now()


def partition(nbytes: int) -> np.ndarray:
    """Make a partition of `nbytes` bytes."""
    return np.zeros(nbytes, dtype=np.uint8)


def gradient(chunk: np.ndarray, seconds: float) -> np.ndarray:
    """Emulate the compute of one partition by sleeping for `seconds`."""
    time.sleep(seconds)
    return np.full(64, float(chunk[0]) if len(chunk) else 0.0)


def total(parts: list[np.ndarray]) -> np.ndarray:
    """Sum gradients."""
    return np.sum(parts, axis=0)


COMPUTE = Compute(partition, gradient, total)
