"""Unmodified fits of dask-ml, each of them a job: plain Dask and the default policy, in turn."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, wait
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.lab.demo import local, many_tasks
from dask_slaq.lab.demo.local import DemoTraining, Options

#: Columns of the data, and clusters in one of the data sets.
N_FEATURES, N_CENTERS = 32, 12
#: Partitions per data set.
N_PARTITIONS = 4
#: Rows per partition for 32 seconds of work, if a gradient on as many takes 16 ms.
N_ROWS = 200_000


def estimators(seed: int, part: float = 1.0) -> dict[str, tuple[str, Any]]:
    """Make unfitted estimators of dask-ml: the name of the data and the estimator, by job name.

    `part` is the number of iterations relative to a full run.
    """
    from dask_ml.cluster import KMeans
    from dask_ml.linear_model import LinearRegression, LogisticRegression, PoissonRegression

    kinds = {
        "classes": LogisticRegression,
        "amounts": LinearRegression,
        "counts": PoissonRegression,
        "clusters": partial(KMeans, init="random"),
    }
    # Data, iterations of a full run, and settings.
    rows: dict[str, tuple[str, int, dict[str, Any]]] = {
        "logistic-gd": ("classes", 20, {"solver": "gradient_descent"}),
        "kmeans": ("clusters", 16, {"n_clusters": N_CENTERS, "random_state": seed}),
        "logistic-lbfgs": ("classes", 12, {"solver": "lbfgs", "C": 10.0}),
        "linear-gd": ("amounts", 20, {"solver": "gradient_descent"}),
        "logistic-l1": ("classes", 16, {"solver": "proximal_grad", "penalty": "l1"}),
        "poisson-lbfgs": ("counts", 12, {"solver": "lbfgs"}),
        "logistic-newton": ("classes", 11, {"solver": "newton"}),
        "logistic-1": ("classes", 29, {"solver": "lbfgs", "C": 1.0}),
        "linear-lbfgs": ("amounts", 21, {"solver": "lbfgs"}),
        "poisson-gd": ("counts", 21, {"solver": "gradient_descent"}),
        "linear-l1": ("amounts", 29, {"solver": "proximal_grad", "penalty": "l1"}),
        "kmeans-20": ("clusters", 17, {"n_clusters": 20, "random_state": 1}),
    }
    # tol=0 runs all iterations, as users often do to be safe.
    return {
        name: (data, kinds[data](tol=0.0, max_iter=max(3, round(part * count)), **given))
        for name, (data, count, given) in rows.items()
    }


def make_data(name: str, seed: int, rows: int) -> tuple[da.Array, ...]:
    """Make the arrays X and, for supervised learning, y, of so many `rows` per partition.

    `name` is classes, amounts, counts or clusters.
    """
    columns = N_FEATURES if name == "clusters" else N_FEATURES + 1
    table = da.map_blocks(
        _block,
        name,
        seed,
        rows,
        chunks=((rows,) * N_PARTITIONS, (columns,)),
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
        centers = 0.6 * shared.standard_normal((N_CENTERS, N_FEATURES))
        return centers[rng.integers(N_CENTERS, size=rows)] + rng.standard_normal((rows, N_FEATURES))
    basis, _ = np.linalg.qr(shared.standard_normal((N_FEATURES, N_FEATURES)))
    # Number of strong directions among the features, which carry most of the signal.
    n_strong = 8
    strong = np.arange(N_FEATURES) < n_strong
    hidden = rng.standard_normal((rows, N_FEATURES))
    weight = np.sqrt(np.where(strong, 0.9 / n_strong, 0.1 / (N_FEATURES - n_strong)))
    signal = hidden @ (weight * shared.choice([-1.0, 1.0], N_FEATURES))
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


def gradient_seconds() -> float:
    """Return the seconds that a gradient of a logistic regression on `N_ROWS` rows takes."""
    X, y = np.split(_block("classes", 0, N_ROWS), [N_FEATURES], axis=1)
    times = []
    for _ in range(5):
        start = time()
        X.T @ (1 / (1 + np.exp(-X.sum(axis=1))) - y[:, 0])
        times.append(time() - start)
    return float(np.median(times))


def fits(client: Client, options: Options) -> local.Result:
    """Fit the same estimators on the cluster of `client` by plain Dask, and twice as jobs."""
    from sklearn.base import clone

    print("Measuring how long a gradient takes ...", flush=True)
    one = float(np.mean(local.on_each_worker(client, gradient_seconds)))
    rows = max(round(N_ROWS * options.seconds / 32.0 * 0.016 / one), 1000)
    print(f"Making the data, of {N_PARTITIONS} times {rows:,} rows each ...", flush=True)
    local.on_each_worker(client, compile_kmeans)
    # Iterations of a fit relative to those of `estimators`.
    part = 0.35 * options.steps / many_tasks.N_STEPS
    models = estimators(options.seed, part)
    rng = np.random.default_rng(options.seed)
    names = rng.permutation(list(models))[: options.count].tolist()
    data = {name: make_data(name, options.seed, rows) for name, _ in models.values()}
    data = dict(zip(data, dask.persist(*data.values()), strict=True))
    wait(list(data.values()))
    # Mean gap between arrivals, as a fraction of the time of all fits.
    gaps = 0.06 * options.seconds * rng.exponential(size=len(names))
    arrivals = dict(zip(names, np.cumsum(gaps) - gaps[0], strict=True))
    plain, runs = "none", []
    ours = slaq.SlaqPlugin().settings.policy
    both = (plain, "plain Dask"), (ours, "each fit a job")
    for way in local.announced((*both, *reversed(both))):  # so drift of the machine cancels
        plugin = slaq.SlaqPlugin()  # a new one remembers no run
        if way != plain:
            client.register_plugin(plugin)

        def fit(training: DemoTraining, way: str = way) -> None:
            name, model = models[training.name]
            _fit(client, training, data[name], clone(model), way != plain)

        runs.append(many_tasks.train_all(way, arrivals, fit))
        if way != plain:
            client.unregister_scheduler_plugin(plugin.name)
    lowest = many_tasks.lowest_losses(runs)
    figures = local.figures_of(runs, lambda run: many_tasks.measure(run, lowest, options.seed))
    for name in names:
        _normalize([t for run in runs for t in run.trainings if t.name == name and t.curve])
    about = (
        f"{len(names)} fits of dask-ml, unmodified, arrive one after the other on two one-thread "
        f"worker processes: on plain Dask, twice each in a block of its own, and on plain Dask "
        f"again (seed {options.seed}). Losses are drawn as the part of their fall that is left."
    )
    said = local.judge(many_tasks.verdict(figures), figures, "t90_mean_s")
    return local.Result(about, runs, {"policies": figures}, many_tasks.SHOWN, said)


def _normalize(same: list[DemoTraining]) -> None:
    """Replace losses of the same fit by the part of the fall that was left: 1 to 0.001."""
    losses = [loss for training in same for loss in training.losses]
    if losses:
        low, high = min(losses), max(losses)
        for training in same:
            training.curve = [
                (at, max((loss - low) / max(high - low, 1e-300), 1e-3))
                for at, loss in training.curve
            ]


def _fit(
    client: Client, training: DemoTraining, data: tuple[da.Array, ...], model: Any, is_job: bool
) -> None:
    """Fit a `model`, as a job or by plain Dask, and record its losses in `training`."""
    block: Any = nullcontext()
    if is_job:  # which a fit that reports by itself tells how many reports are to come
        block = slaq.job(training.name, max_iter=model.max_iter + 1, client=client)
    with client.as_current(), block as job:

        def publish(loss: float) -> None:
            training.curve.append((time(), loss))
            if is_job:
                job.report(loss)

        with slaq.instrument(publish):
            model.fit(*data)
