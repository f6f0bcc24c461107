"""Instrumentation benchmark: the cost of reporting the losses of dask-ml's fits.

The same fit runs inside an `instrument` block and without one, in pairs on one cluster. The order
within a pair is random, and a ratio is the median over pairs. CPU seconds of the process are given
as well, since other load on the machine affects them less. The tasks, submitted graphs and fetched
results of one fit are counted too; they hardly depend on the machine.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.diagnostics.plugin import SchedulerPlugin
from threadpoolctl import threadpool_limits

from benchmarks.common.cluster import local_cluster
from benchmarks.common.results import give, json_option

__all__ = ["CASES", "main", "measure"]

FEATURES = 20
#: Standard error of a median, in units of the median absolute deviation / sqrt(count).
ERROR = 1.25 * 1.48
Data = dict[str, da.Array]
seeds = itertools.count()


def glm(solver: str, **settings: Any) -> Callable[[Data], Any]:
    """Return a fit of a logistic regression that runs a few iterations."""

    def fit(data: Data) -> Any:
        from dask_ml.linear_model import LogisticRegression

        model = LogisticRegression(solver=solver, max_iter=5, tol=0.0, **settings)
        return model.fit(data["X"], data["y"])

    return fit


def k_means(data: Data) -> Any:
    """Run a few of Lloyd's iterations from fixed centers."""
    from dask_ml.cluster import KMeans

    return KMeans(5, init=data["centers"], max_iter=5, tol=0.0).fit(data["X"])


def incremental(name: str, **settings: Any) -> Callable[[Data], Any]:
    """Return a fit of `Incremental`, over the given class of scikit-learn, with one pass."""

    def fit(data: Data) -> Any:
        from dask_ml.wrappers import Incremental
        from sklearn import cluster, linear_model, neural_network

        modules = (cluster, linear_model, neural_network)
        kind = next(getattr(m, name) for m in modules if hasattr(m, name))
        # A new seed each time, so that Dask cannot reuse the previous results.
        model = Incremental(kind(random_state=next(seeds), **settings), shuffle_blocks=False)
        if name == "MiniBatchKMeans":
            return model.fit(data["X"])
        return model.fit(data["X"], data["y"], **({"classes": [0, 1]} if "Cl" in name else {}))

    return fit


def search(data: Data) -> Any:
    """Run a small incremental search."""
    from dask_ml.model_selection import IncrementalSearchCV
    from sklearn.linear_model import SGDClassifier

    grid = {"alpha": np.logspace(-4, 0, 8)}
    model = IncrementalSearchCV(
        SGDClassifier(random_state=0), grid, n_initial_parameters=4, max_iter=4, random_state=0
    )
    return model.fit(data["X"], data["y"], classes=[0, 1])


#: By name: whether the library computes the loss anyway, and the fit itself.
CASES: dict[str, tuple[bool, Callable[[Data], Any]]] = {
    "gradient_descent": (True, glm("gradient_descent")),
    "lbfgs": (True, glm("lbfgs")),
    "proximal_grad": (True, glm("proximal_grad")),
    "newton": (False, glm("newton")),
    "admm": (False, glm("admm", solver_kwargs={"abstol": 0.0, "reltol": 0.0})),
    "KMeans": (False, k_means),
    "Incremental(MLPClassifier)": (True, incremental("MLPClassifier")),
    "Incremental(MiniBatchKMeans)": (
        True,
        incremental("MiniBatchKMeans", n_clusters=200, n_init=1),
    ),
    "Incremental(SGDClassifier)": (False, incremental("SGDClassifier")),
    "Incremental(SGDRegressor)": (False, incremental("SGDRegressor")),
    "IncrementalSearchCV": (True, search),
}


def data_of(client: Client, rows: int, partitions: int, seed: int) -> Data:
    """Persist a two-class data set: ``X``, (rows, 20), ``y``, (rows,), and five ``centers``."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, FEATURES))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=FEATURES)))).astype(int)
    chunk = -(-rows // partitions)
    # Copy each block: dask 2025.1.0 cannot fit KMeans on an array that is persisted as is.
    arrays = [da.from_array(a, chunks=(chunk, *a.shape[1:])).map_blocks(np.copy) for a in (X, y)]
    lazy = client.persist(arrays)
    wait(lazy)
    return {"X": lazy[0], "y": lazy[1], "centers": X[:5]}


class Traffic(SchedulerPlugin):
    """Counter of computed tasks, submitted graphs and fetched results on a cluster."""

    name = "traffic"

    def __init__(self, cluster: LocalCluster) -> None:
        self.tasks = self.graphs = self.fetches = 0
        cluster.scheduler.add_plugin(self)
        answer = cluster.scheduler.handlers["gather"]

        async def gather(*args: Any, **kwargs: Any) -> Any:
            self.fetches += 1
            return await answer(*args, **kwargs)

        cluster.scheduler.handlers["gather"] = gather

    def update_graph(self, *args: Any, **kwargs: Any) -> None:
        self.graphs += 1

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        self.tasks += start == "processing" and finish == "memory"

    def of(self, fit: Callable[[Data], Any], data: Data) -> dict[str, dict[str, int]]:
        """Count the traffic of one plain and one observed fit, after a warm-up fit."""
        found = {}
        _once(fit, data, "plain")
        for side in ("plain", "observed"):
            self.tasks = self.graphs = self.fetches = 0
            _once(fit, data, side)
            counts = {"tasks": self.tasks, "graphs": self.graphs, "fetches": self.fetches}
            found[side] = counts
        return found


def measure(
    fit: Callable[[Data], Any], data: Data, *, repetitions: int, seed: int = 0
) -> dict[str, list[float]]:
    """Time pairs of a plain and an observed fit, in random order.

    Returns the seconds and CPU seconds of each side, and the number of losses that each observed
    fit reported. Imports and compilation are included if the fit has not run before.
    """
    order = random.Random(seed)
    found: dict[str, list[float]] = {
        key: [] for key in ("plain", "observed", "plain_cpu", "observed_cpu", "reports")
    }
    for _ in range(repetitions):
        for side in order.sample(["plain", "observed"], 2):
            wall, cpu, reports = _once(fit, data, side)
            found[side].append(wall)
            found[f"{side}_cpu"].append(cpu)
            if side == "observed":
                found["reports"].append(reports)
    return found


def _once(fit: Callable[[Data], Any], data: Data, side: str) -> tuple[float, float, int]:
    from dask_slaq import instrument

    losses: list[float] = []
    block = instrument(losses.append) if side == "observed" else nullcontext()
    wall, cpu = time.perf_counter(), time.process_time()
    with block:
        fit(data)
    return time.perf_counter() - wall, time.process_time() - cpu, len(losses)


def summary(found: dict[str, list[float]], free: bool) -> dict[str, Any]:
    """Compute ratios of observed to plain, with standard errors robust to a single slow fit."""
    result: dict[str, Any] = {"loss_is_computed_anyway": free, "reports": found["reports"][0]}
    for key, suffix in (("ratio", ""), ("cpu_ratio", "_cpu")):
        pairs = zip(found["observed" + suffix], found["plain" + suffix], strict=True)
        ratios = [observed / plain for observed, plain in pairs]
        result[key] = statistics.median(ratios)
        off = statistics.median(abs(ratio - result[key]) for ratio in ratios)
        result[key + "_error"] = ERROR * off / len(ratios) ** 0.5
    return {**result, "plain_s": statistics.median(found["plain"]), "seconds": found}


@click.command()
@click.option("--rows", default=200_000, show_default=True, type=click.IntRange(100))
@click.option("--partitions", default=8, show_default=True, type=click.IntRange(1))
@click.option("--repetitions", default=9, show_default=True, type=click.IntRange(1))
@click.option("--workers", default=1, show_default=True, help="One-thread workers, in-process.")
@click.option(
    "--case", "only", multiple=True, type=click.Choice(list(CASES)), help="Case; all by default."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the data and of the order.")
@click.option("--quick", is_flag=True, help="Fewer rows and repetitions; takes about a minute.")
@json_option
def main(
    rows: int, partitions: int, repetitions: int, workers: int, only: tuple[str, ...], seed: int,
    quick: bool, output: str | None,
) -> None:  # fmt: skip
    """Compare the times of dask-ml's fits with and without reports of their losses."""
    from dask_slaq.adapters import repairs

    if quick:
        rows, repetitions = min(rows, 20_000), min(repetitions, 3)
    repairs.follow_settings()  # without the repairs, current Dask cannot run some fits
    result = {}
    one_thread = threadpool_limits(1)  # library threads must not compete with the workers
    with one_thread, local_cluster(workers) as (cluster, client), client.as_current():
        traffic = Traffic(cluster)
        data = data_of(client, rows, partitions, seed)
        for name in only or CASES:
            print(f"{name}: {repetitions} pairs", file=sys.stderr, flush=True)
            free, fit = CASES[name]
            counts = traffic.of(fit, data)
            found = measure(fit, data, repetitions=repetitions, seed=seed)
            result[name] = {**summary(found, free), "traffic": counts}
    give(result, output, _table(result))


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{'fit':>30}{'plain s':>9}{'reports':>9}{'ratio':>17}{'by CPU':>17}"
        f"{'tasks':>12}{'graphs':>9}{'fetches':>9}  loss"
    ]
    for name, row in result.items():
        ratios = (f"{row[k]:.3f} ± {row[k + '_error']:.3f}" for k in ("ratio", "cpu_ratio"))
        lines.append(
            f"{name:>30}{row['plain_s']:>9.2f}{row['reports']:>9}"
            + "".join(f"{r:>17}" for r in ratios)
            + _counts(row["traffic"])
            + ("  there" if row["loss_is_computed_anyway"] else "  extra")
        )
    lines.append("medians over pairs, ± a standard error; loss: there if the library computes it")
    lines.append(
        "tasks, submitted graphs and fetched results of one plain fit, + when it is observed"
    )
    return "\n".join(lines)


def _counts(traffic: dict[str, dict[str, int]]) -> str:
    plain, observed = traffic["plain"], traffic["observed"]
    widths = {"tasks": 12, "graphs": 9, "fetches": 9}
    return "".join(
        f"{f'{plain[k]}{observed[k] - plain[k]:+d}':>{width}}" for k, width in widths.items()
    )


if __name__ == "__main__":
    main()
