"""Recorder of real fits: what their tasks took, and how long their drivers computed in between.

A recording is JSON: by name of a fit its ``iterations``, each the seconds for which the driver
alone computed and a list of the seconds of its tasks, in order of their starts, its ``losses``,
one per report, and the ``max_iter`` that it announced. The last iteration may have none. Ours are
twelve fits that make all iterations that they announce, and `others`, in a file of their own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks.common.results import say
from dask_slaq.lab.simulation.workload import iterations_to

RECORDED, OTHERS = (Path(__file__).with_name(f"{name}.json.gz") for name in ("recorded", "others"))
#: Lists of half of the other fits each: rules are chosen on the first, judged on the second.
HALVES = ("others-1", "others-2")


class Fit(NamedTuple):
    """Recorded fit."""

    iterations: list[tuple[float, list[float]]]  # seconds of the driver, and of its tasks
    losses: list[float]
    max_iter: int = 0  # iterations that it announces

    def reports_to(self, fraction: float) -> int:
        """Return the number of reports until a fraction of its fall."""
        return iterations_to(np.array(self.losses), fraction) or len(self.losses)

    def seconds(self, first: int = 0, last: int | None = None) -> float:
        """Return the core-seconds of its tasks in some iterations."""
        return sum(sum(tasks) for _, tasks in self.iterations[first:last])


def read(path: str | Path | None = None) -> dict[str, Fit]:
    """Read the fits of a recording, by default of the one that comes along."""
    data = Path(path or RECORDED).read_bytes()
    found = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return {
        name: Fit(
            [(gap, tasks or []) for gap, tasks in row["iterations"]],
            row["losses"],
            row.get("max_iter", len(row["losses"]) - 1),
        )
        for name, row in found.items()
    }


def others(seed: int = 0) -> dict[str, tuple[str, int, Any]]:
    """Make 24 unfitted estimators: the data, the factor of its rows in percent, and the model.

    They have dask-ml's own limits and tolerances, long tails, many small ones beside a few large
    ones, and sparse data.
    """
    from dask_ml.cluster import KMeans
    from dask_ml.linear_model import LinearRegression, LogisticRegression, PoissonRegression
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    def logistic(solver: str, **more: Any) -> Any:
        return LogisticRegression(solver=solver, **more)

    def linear(solver: str, **more: Any) -> Any:
        return LinearRegression(solver=solver, **more)

    def k_means(k: int, **more: Any) -> Any:
        return KMeans(k, random_state=seed, **more)

    def sgd(rate: float) -> Any:
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, tol=None)
        return Incremental(model, shuffle_blocks=False)

    tail: dict[str, Any] = {"tol": 0.0, "max_iter": 60}
    return {
        "default-lbfgs": ("classes", 100, logistic("lbfgs")),
        "default-newton": ("classes", 100, logistic("newton")),
        "default-admm": ("classes", 5, logistic("admm")),
        "default-l1": ("classes", 50, logistic("proximal_grad", penalty="l1")),
        "default-linear": ("amounts", 100, linear("lbfgs")),
        "default-linear-gd": ("amounts", 50, linear("gradient_descent")),
        "default-poisson": ("counts", 100, PoissonRegression(solver="lbfgs")),
        "default-kmeans": ("clusters", 100, k_means(8)),
        "default-kmeans-20": ("clusters", 50, k_means(20)),
        "tail-gd": ("classes", 50, logistic("gradient_descent", **tail)),
        "tail-linear": ("amounts", 50, linear("gradient_descent", **tail)),
        "tail-poisson": ("counts", 50, PoissonRegression(solver="lbfgs", **tail)),
        "tail-kmeans": ("clusters", 50, k_means(16, init="random", **tail)),
        "small-lbfgs": ("classes", 10, logistic("lbfgs", C=10.0)),
        "small-newton": ("classes", 10, logistic("newton")),
        "small-linear": ("amounts", 10, linear("lbfgs")),
        "small-gd": ("amounts", 10, linear("gradient_descent", max_iter=20)),
        "small-poisson": ("counts", 10, PoissonRegression(solver="newton")),
        "small-kmeans": ("clusters", 10, k_means(6, init="random")),
        "large-lbfgs": ("classes", 300, logistic("lbfgs", max_iter=20)),
        "large-kmeans": ("clusters", 300, k_means(12, init="random", max_iter=12)),
        "large-linear-l1": ("amounts", 200, linear("proximal_grad", penalty="l1", max_iter=15)),
        "sparse-sgd": ("sparse", 100, sgd(0.01)),
        "sparse-sgd-slow": ("sparse", 100, sgd(0.001)),
    }


def lengthen(fit: Fit, times: int) -> Fit:
    """Repeat what comes after 90 % of the fall, which then takes as many times as long."""
    k = fit.reports_to(0.9)
    tail, end = fit.iterations[k : len(fit.losses)], fit.iterations[len(fit.losses) :]
    if not tail:
        return fit
    steps = np.linspace(0, len(tail), len(tail) * times + 1)[1:]
    losses = np.interp(steps, np.arange(len(tail) + 1), fit.losses[k - 1 :])
    more = len(tail) * (times - 1)
    return Fit(
        fit.iterations[:k] + tail * times + end,
        fit.losses[:k] + losses.tolist(),
        fit.max_iter + more,
    )


class _Tasks(SchedulerPlugin):
    """Plugin that notes when tasks computed."""

    name = "benchmark-recorder"

    def __init__(self) -> None:
        self.runs: list[tuple[float, float]] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        ran = [run for run in kwargs.get("startstops") or () if run["action"] == "compute"]
        if ran:  # a key that is computed again on the same worker brings its earlier runs along
            self.runs.append((ran[-1]["start"], ran[-1]["stop"]))


def record(
    models: Mapping[str, tuple[str, int, Any]], rows: int, workers: int = 2
) -> dict[str, Any]:
    """Fit estimators of dask-ml one after the other on worker processes. Returns a recording.

    `models` has the name of the data, its rows per partition in percent of `rows`, and the
    estimator of each fit.
    """
    from benchmarks.common import cluster as clusters
    from dask_slaq import instrument
    from dask_slaq.lab.demo.fits import compile_kmeans

    found = {}
    with clusters.local_cluster(workers, processes=True) as (cluster, client):
        client.run(compile_kmeans)
        for name, (kind, percent, model) in models.items():
            data = _data(client, kind, rows * percent // 100)
            tasks, reports, losses = _Tasks(), [time.time()], []
            cluster.scheduler.add_plugin(tasks, name=tasks.name)

            def publish(loss: float, reports: Any = reports, losses: Any = losses) -> None:
                reports.append(time.time())
                losses.append(loss)

            more = {"classes": [0.0, 1.0]} if kind == "sparse" else {}
            with client.as_current(), instrument(publish):
                model.fit(*data, **more)
            cluster.scheduler.remove_plugin(tasks.name)
            say(f"{name}: {len(losses)} reports, {len(tasks.runs)} tasks")
            if losses:
                found[name] = {
                    "iterations": _iterations(sorted(tasks.runs), [*reports, time.time()]),
                    "losses": losses,
                    "max_iter": model.get_params().get("max_iter", BLOCKS),
                }
    return found


#: Blocks of sparse data: one iteration each.
BLOCKS, WORDS = 24, 5000


def _data(client: Any, kind: str, rows: int) -> Any:
    """Return data in memory on the workers; `sparse` are counts of words."""
    import dask
    import dask.array as da
    import scipy.sparse
    from distributed import wait

    from dask_slaq.lab.demo.fits import make_data

    def counts(block_info: Any = None) -> Any:
        rng = np.random.default_rng(block_info[None]["chunk-location"])
        return scipy.sparse.random(rows, WORDS, density=0.01, format="csr", random_state=rng)

    with client.as_current():
        if kind == "sparse":
            chunks = ((rows,) * BLOCKS, (WORDS,))
            X = da.map_blocks(
                counts, chunks=chunks, dtype=float, meta=scipy.sparse.csr_matrix((0, 0))
            )
            y = X.map_blocks(_label, drop_axis=1, dtype=float, meta=np.empty(0))
            data: Any = X, y
        else:
            data = make_data(kind, 0, rows)
        data = dask.persist(*data)
        wait(data)
        return data


def _label(X: Any) -> Any:
    """Return 1 for rows whose first words are more frequent than usual, else 0."""
    score = np.asarray(X[:, : WORDS // 4].sum(axis=1)).ravel()
    return (score > np.median(score)).astype(float)


def _iterations(
    runs: Sequence[tuple[float, float]], reports: Sequence[float]
) -> list[tuple[float, list[float]]]:
    """Return for each interval between two reports the driver's seconds and those of tasks."""
    found = []
    for first, last in itertools.pairwise(reports):
        here = [run for run in runs if first <= run[0] < last]
        busy, until = 0.0, first
        for start, stop in here:
            busy += max(stop - max(start, until), 0.0)
            until = max(until, stop)
        seconds = [round(stop - start, 5) for start, stop in here]
        found.append((round(max(last - first - busy, 0.0), 5), seconds))
    return found
