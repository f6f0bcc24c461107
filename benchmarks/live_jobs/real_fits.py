"""Workloads `dask-ml` and `nine`: concurrent real fits on worker processes, nothing emulated.

`dask-ml` runs six unmodified estimators of dask-ml on four persisted data sets. Their partitions
have many megabytes, so that the workers are the bottleneck. `nine` runs one job per algorithm of
the paper's Table 1. Each driver is a thread with its own client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run
from benchmarks.live_jobs.real_time import JobThread, run_threads

__all__ = ["MIXES", "compile_kmeans", "estimators", "nine", "publish", "runner"]

DATA = ("classes", "amounts", "counts", "clusters")
FEATURES = 32
CENTERS = 12
#: Number of strong directions among the features, which carry most of the signal.
STRONG = 8
#: Partitions per data set, and rows per partition (25 MB).
PARTITIONS = 4
ROWS = 100_000
#: Iterations of each job of `nine`.
NINE_ITERATIONS = 12
#: Seconds between arrivals, short enough that all jobs arrive before the first one ends.
GAP = 0.3


def estimators(seed: int, part: float = 1.0) -> dict[str, tuple[str, Any]]:
    """Make unfitted dask-ml estimators: the name of the data and the estimator, by job name.

    `part` is the number of iterations relative to a full run.
    """
    from dask_ml.cluster import KMeans
    from dask_ml.linear_model import LinearRegression, LogisticRegression, PoissonRegression

    def glm(kind: Any, iterations: int, solver: str, **kwargs: Any) -> Any:
        # tol=0 runs all iterations, as users often do to be safe.
        return kind(solver=solver, tol=0.0, max_iter=count(iterations), **kwargs)

    def count(iterations: int) -> int:
        return max(3, round(part * iterations))

    kmeans = KMeans(CENTERS, init="random", tol=0.0, max_iter=count(16), random_state=seed)
    return {
        "logistic-gd": ("classes", glm(LogisticRegression, 20, "gradient_descent")),
        "kmeans": ("clusters", kmeans),
        "logistic-lbfgs": ("classes", glm(LogisticRegression, 12, "lbfgs", C=10.0)),
        "linear-gd": ("amounts", glm(LinearRegression, 20, "gradient_descent")),
        "logistic-l1": ("classes", glm(LogisticRegression, 16, "proximal_grad", penalty="l1")),
        "poisson-lbfgs": ("counts", glm(PoissonRegression, 12, "lbfgs")),
    }


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

        return CATALOGUE[name].sized_data(rows, PARTITIONS, seed)
    columns = FEATURES if name == "clusters" else FEATURES + 1
    table = da.map_blocks(
        _block,
        name,
        seed,
        rows,
        chunks=((rows,) * PARTITIONS, (columns,)),
        dtype=float,
        meta=np.empty((0, 0)),
    )
    return (table,) if name == "clusters" else (table[:, :-1], table[:, -1])


def _block(name: str, seed: int, rows: int, block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Make one partition: features of decaying strength, and the target in the last column.

    Weak directions are learned long after the strong ones, so training has a long tail.
    """
    place = block_info[None]["chunk-location"][0] if block_info else 0
    rng, shared = np.random.default_rng([seed, place]), np.random.default_rng(seed)
    if name == "clusters":
        centers = 0.6 * shared.standard_normal((CENTERS, FEATURES))
        return centers[rng.integers(CENTERS, size=rows)] + rng.standard_normal((rows, FEATURES))
    basis, _ = np.linalg.qr(shared.standard_normal((FEATURES, FEATURES)))
    strong = np.arange(FEATURES) < STRONG
    hidden = rng.standard_normal((rows, FEATURES))
    weight = np.sqrt(np.where(strong, 0.9 / STRONG, 0.1 / (FEATURES - STRONG)))
    signal = hidden @ (weight * shared.choice([-1.0, 1.0], FEATURES))
    X = (hidden * np.where(strong, 1.0, 0.1)) @ basis
    if name == "classes":
        y = rng.random(rows) < 1.0 / (1.0 + np.exp(-3.0 * signal))
    elif name == "counts":
        y = rng.poisson(np.exp(0.7 * signal))
    else:
        y = signal + 0.3 * rng.standard_normal(rows)
    return np.column_stack([X, y])


def compile_kmeans() -> None:
    """Import and compile on a worker what its first KMeans task would otherwise wait for.

    Data from another worker are read-only, for which numba compiles a second version.
    """
    from dask_ml.cluster import KMeans

    for writeable in (True, False):
        X = np.random.default_rng(0).random((64, 2))
        X.flags.writeable = writeable
        with dask.config.set(scheduler="synchronous"):
            KMeans(2, init="random", max_iter=2).fit(da.from_array(X, chunks=32))


def _fit_all(
    cluster: LocalCluster, policy: str, models: dict[str, tuple[str, Any]]
) -> list[JobTrace]:
    start = time.perf_counter() + 0.2
    drivers = [
        _Fit(JobTrace(name, i * GAP), policy, cluster, start, *models[name])
        for i, name in enumerate(models)
    ]
    return run_threads(drivers, policy)


class _Fit(JobThread):
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

        with clusters.job_block(self.policy, self.name, client) as block:

            def publish(loss: float) -> None:
                self.trace.record(self.now(), loss)
                block.report(loss)

            with instrument(publish):  # with nested blocks, the innermost one receives the losses
                self.model.fit(*data)
