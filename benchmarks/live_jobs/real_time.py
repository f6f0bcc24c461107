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
    """Run all jobs under `policy` on a fresh cluster of one-thread workers in this process.

    `settings` are further arguments of `SlaqPlugin`.
    """
    with clusters.local_cluster(workers) as (cluster, client), clusters.Lateness() as late:
        clusters.register(client, policy, predictor=predictor, **settings)
        meter = clusters.meter(cluster)
        start = time.perf_counter() + 0.2
        drivers = [Driver(job, policy, cluster, start, partition_bytes) for job in jobs]
        traces = run_threads(drivers, policy)
        moved = clusters.bytes_moved(client)
        return Run(seed, traces, moved, meter.seconds, workers, late.mean)


def run_threads(drivers: Sequence[JobThread], policy: str) -> list[JobTrace]:
    """Run all drivers. Raises RuntimeError if one of them failed."""
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    for driver in drivers:
        if driver.error is not None:
            raise RuntimeError(f"{driver.name} failed under {policy}") from driver.error
    return [driver.trace for driver in drivers]


class JobThread(threading.Thread):
    """Thread that trains one job with a client of its own: its trace, and the error that ended it.

    The run began at `begin` on the clock of `time.perf_counter`.
    """

    def __init__(self, trace: JobTrace, policy: str, cluster: Any, begin: float) -> None:
        super().__init__(name=trace.name, daemon=True)
        self.trace = trace
        self.policy = policy
        self.cluster = cluster
        self.begin = begin
        self.error: BaseException | None = None

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def run(self) -> None:
        try:
            with clusters.another_client(self.cluster) as client, client.as_current():
                data = self.load(client)
                time.sleep(max(0.0, self.trace.arrival - self.now()))
                self.train(client, data)
                self.trace.completion = self.now()
        except BaseException as error:
            self.error = error

    def load(self, client: Client) -> Any:
        """Return the data that the job finds when it arrives."""

    def train(self, client: Client, data: Any) -> None:
        raise NotImplementedError


class Driver(JobThread):
    """Thread with the training loop of one emulated job."""

    def __init__(
        self, job: EmulatedJob, policy: str, cluster: Any, begin: float, partition_bytes: int
    ) -> None:
        super().__init__(JobTrace(job.name, job.arrival), policy, cluster, begin)
        self.job = job
        self.partition_bytes = partition_bytes

    def train(self, client: Client, data: Any) -> None:
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
