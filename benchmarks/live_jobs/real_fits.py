"""Workloads `dask-ml` and `nine`: concurrent real fits on worker processes, nothing emulated.

`dask-ml` runs twelve unmodified estimators of dask-ml on four persisted data sets. Their partitions
have many megabytes, so that the workers are the bottleneck. `nine` runs one job per algorithm of
the paper's Table 1. Each driver is a thread with its own client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
from distributed import Client, LocalCluster, wait

from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from dask_slaq.lab.demo.fits import N_PARTITIONS, compile_kmeans, estimators, make_data

DATA = ("classes", "amounts", "counts", "clusters")
#: Rows per partition (25 MB).
ROWS = 100_000
#: Iterations of each job of `nine`.
NINE_ITERATIONS = 12
#: Seconds between arrivals, short enough that all jobs arrive before the first one ends.
GAP = 0.3


def nine(seed: int, part: float = 1.0) -> dict[str, tuple[str, Any]]:
    """Make unfitted estimators of the paper's Table 1, each with its own data. See `estimators`."""
    from benchmarks.workloads.catalogue import CATALOGUE

    iterations = max(3, round(part * NINE_ITERATIONS))
    return {name: (name, row.estimator(iterations, seed)) for name, row in CATALOGUE.items()}


#: Functions that make the jobs, by workload.
MIXES = {"dask-ml": estimators, "nine": nine}


def runner(
    workers: int,
    *,
    mix: str = "dask-ml",
    rows: int = ROWS,
    part: float = 1.0,
    processes: bool = True,
    **settings: Any,
) -> Callable[[str, int], Run]:
    """Make a function that runs all fits of a mix under one policy for one seed.

    There are `rows` per partition, for `nine` scaled by the workload's `size`. With few rows, the
    drivers and the scheduler are the bottleneck. Workers have one thread; in-process workers are
    useful for trials only. `settings` are arguments of `SlaqPlugin`.
    """

    def run(policy: str, seed: int) -> Run:
        models = MIXES[mix](seed, part)
        names = sorted({data for data, _ in models.values()})
        with clusters.local_cluster(workers, processes=processes) as (cluster, client):
            publish(client, names, seed, rows)
            if processes:
                client.run(compile_kmeans)
            clusters.register(client, policy, **settings)
            meter, before = clusters.meter(cluster), clusters.bytes_moved(client)
            with clusters.Lateness() as late:
                traces = _fit_all(cluster, policy, models)
            moved = clusters.bytes_moved(client) - before
            for name in names:
                client.unpublish_dataset(name)
        return Run(seed, traces, moved, meter.seconds, workers, late.mean)

    return run


def publish(client: Client, names: list[str], seed: int, rows: int) -> None:
    """Persist the data sets on the workers, and publish them to all clients by name."""
    for name in names:
        with client.as_current():
            held = dask.persist(*_data(name, seed, rows))
            wait(held)
        client.publish_dataset(held, name=name)


def _data(name: str, seed: int, rows: int) -> tuple[da.Array, ...]:
    """Make the arrays X and, for supervised learning, y."""
    if name not in DATA:
        from benchmarks.workloads.catalogue import CATALOGUE

        return CATALOGUE[name].sized_data(rows, N_PARTITIONS, seed)
    return make_data(name, seed, rows)


def _fit_all(
    cluster: LocalCluster, policy: str, models: dict[str, tuple[str, Any]]
) -> list[JobTrace]:
    start = time.perf_counter() + 0.2
    drivers = [
        Fit(JobTrace(name, i * GAP), policy, cluster, start, *models[name])
        for i, name in enumerate(models)
    ]
    return run_threads(drivers, policy)


def run_threads(drivers: Sequence[Fit], policy: str) -> list[JobTrace]:
    """Run all drivers. Raises RuntimeError if one of them failed."""
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    for driver in drivers:
        if driver.error is not None:
            raise RuntimeError(f"{driver.name} failed under {policy}") from driver.error
    return [driver.trace for driver in drivers]


class Fit(threading.Thread):
    """Thread that runs one fit as a job, with a client of its own.

    The run began at `begin` on the clock of `time.perf_counter`; `data` is the name of a published
    data set. An error that ends the fit is kept.
    """

    def __init__(
        self, trace: JobTrace, policy: str, cluster: Any, begin: float, data: str, model: Any
    ) -> None:
        super().__init__(name=trace.name, daemon=True)
        self.trace = trace
        self.policy = policy
        self.cluster = cluster
        self.begin = begin
        self.data = data
        self.model = model
        self.error: BaseException | None = None

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def run(self) -> None:
        try:
            with clusters.another_client(self.cluster) as client, client.as_current():
                data = client.get_dataset(self.data)
                time.sleep(max(0.0, self.trace.arrival - self.now()))
                self.train(client, data)
                self.trace.completion = self.now()
        except BaseException as error:
            self.error = error

    def train(self, client: Client, data: tuple[da.Array, ...]) -> None:
        """Fit the model to its data."""
        from dask_slaq import instrument

        # Fits that report by themselves tell how many reports are to come.
        most = getattr(self.model, "max_iter", None)
        with clusters.job_block(self.policy, self.name, client, most and most + 1) as block:

            def publish(loss: float) -> None:
                self.trace.record(self.now(), loss)
                block.report(loss)

            with instrument(publish):  # with nested blocks, the innermost one receives the losses
                self.model.fit(*data)
