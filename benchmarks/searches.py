"""Search benchmark: an incremental search of dask-ml beside other jobs, in three ways by turns.

Its models are jobs (`models`), or it is one job (`one`), or there is no plugin (`none`). All compute
is slept: models differ in speed and in how well they score, and so do the other jobs.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from typing import Any

import click
import dask
import dask.array as da
import numpy as np
from dask_ml.model_selection import HyperbandSearchCV, SuccessiveHalvingSearchCV
from distributed import Client
from sklearn.base import BaseEstimator

from benchmarks import cluster as clusters
from benchmarks.measure import JobTrace
from benchmarks.results import give, json_option
from dask_slaq.adapters import repairs

SIDES = ("models", "one", "none")
#: Of the others: iterations, what is left of the loss after each, and seconds of each task.
OTHERS = {"quick": (60, 0.8, 0.1), "slow": (60, 0.93, 0.1)}
MEASURES = ("search_s", "near_best_s", *(f"t90_{name}_s" for name in OTHERS), "all_done_s")


class Slept(BaseEstimator):
    """A model that sleeps `seconds` for a block of data and scores ``best * (1 - kept**blocks)``."""

    def __init__(self, seconds: float = 0.1, kept: float = 0.9, best: float = 1.0) -> None:
        self.seconds, self.kept, self.best = seconds, kept, best

    def partial_fit(self, X: Any, y: Any, **settings: Any) -> Slept:
        """Learn a block."""
        time.sleep(self.seconds)
        self.blocks_ = getattr(self, "blocks_", 0) + 1
        return self

    fit = partial_fit

    def score(self, X: Any, y: Any) -> float:
        """Rise with the blocks."""
        time.sleep(self.seconds / 4)
        return self.best * (1 - self.kept**self.blocks_)


GRID = {
    "seconds": [0.05, 0.1, 0.15, 0.2],
    "kept": np.linspace(0.8, 0.97, 12).tolist(),
    "best": np.linspace(0.6, 1.0, 12).tolist(),
}


def made_search(kind: str, models: int, seed: int) -> Any:
    """A search over `GRID`."""
    if kind == "hyperband":
        return HyperbandSearchCV(Slept(), GRID, max_iter=models, random_state=seed)
    return SuccessiveHalvingSearchCV(
        Slept(), GRID, n_initial_parameters=models, n_initial_iter=6, max_iter=54,
        random_state=seed,
    )  # fmt: skip


def train(client: Client, policy: str, trace: JobTrace, begin: float, part: float) -> None:
    """One of the other jobs: 12 tasks an iteration."""
    iterations, kept, seconds = OTHERS[trace.name]
    with clusters.job_block(policy, trace.name, client) as report:
        for k in range(max(int(part * iterations), 2)):
            tasks = [(seconds, f"{trace.name}-{k}-{i}") for i in range(12)]
            client.gather([client.submit(time.sleep, s, key=key) for s, key in tasks])
            trace.record(time.perf_counter() - begin, kept**k)
            report(0.1 + kept**k)


def run(side: str, kind: str, policy: str, models: int, seed: int, part: float) -> dict[str, float]:
    """One search beside the others; seconds from their common start."""
    policy = "none" if side == "none" else policy
    with (
        clusters.local_cluster(8) as (cluster, client),
        dask.config.set({"slaq.search-models": side == "models"}),
        clusters.Lateness() as late,
    ):
        clusters.register(client, policy)
        X = client.persist(da.zeros((800, 4), chunks=(50, 4)))
        y = client.persist(da.zeros(800, chunks=50))
        traces = [JobTrace(name, 0.0) for name in OTHERS]
        clients = [clusters.another_client(cluster) for _ in traces]
        begin = time.perf_counter()
        threads = [
            threading.Thread(target=train, args=(c, policy, trace, begin, part))
            for c, trace in zip(clients, traces, strict=True)
        ]
        for thread in threads:
            thread.start()
        search = made_search(kind, models, seed)
        with client.as_current(), clusters.job_block(policy, "search", client):
            search.fit(X, y)
        ended = time.perf_counter() - begin
        for thread in threads:
            thread.join()
        found = {"search_s": ended, "near_best_s": near_best(search.history_, ended)}
        found |= {f"t90_{t.name}_s": t.time_to(0.9) or t.times[-1] for t in traces}
        found |= {"all_done_s": time.perf_counter() - begin, "late_s": late.mean}
        for one in clients:
            one.close()
        return {**found, "best": float(search.best_score_)}


def near_best(history: list[dict[str, Any]], ended: float) -> float:
    """When a score came within 1 % of the best one; dask-ml's clock starts with the training."""
    best = max(h["score"] for h in history)
    first = min(h["elapsed_wall_time"] for h in history if h["score"] >= 0.99 * best)
    return ended - max(h["elapsed_wall_time"] for h in history) + first


@click.command()
@click.option("--kind", type=click.Choice(["halving", "hyperband"]), default="halving")
@click.option("--models", default=16, show_default=True, help="Of halving; max_iter of Hyperband.")
@click.option("--policy", default="max-total", show_default=True)
@click.option("--repetitions", default=4, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Of the first repetition.")
@click.option("--quick", is_flag=True, help="One repetition of a small search.")
@json_option
def main(
    kind: str, models: int, policy: str, repetitions: int, seed: int, quick: bool,
    output: str | None,
) -> None:  # fmt: skip
    """Seconds of a search and of the jobs beside it: models as jobs, one job, plain Dask."""
    if quick:
        models, repetitions = min(models, 4), 1
    repairs.follow_settings()  # without them current Dask runs no search
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for turn in range(repetitions):
        for side in SIDES[turn % 3 :] + SIDES[: turn % 3]:
            done = run(side, kind, policy, models, seed + turn, 0.1 if quick else 1.0)
            found[side].append(done)
            print(f"{side}: {done}", file=sys.stderr, flush=True)
    give(found, output, _table(found))


def _table(found: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'':>14}" + "".join(f"{side:>18}" for side in SIDES) + f"{'models / one':>18}"]
    for measure in MEASURES:
        of = {side: [run[measure] for run in runs] for side, runs in found.items()}
        ratios = [a / b for a, b in zip(of["models"], of["one"], strict=True)]
        columns = [_spread(of[side]) for side in SIDES]
        lines.append(f"{measure:>14}" + "".join(f"{c:>18}" for c in [*columns, _spread(ratios)]))
    return "\n".join([*lines, "means over repetitions, ± standard deviation"])


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {deviation:.2f}"


if __name__ == "__main__":
    main()
