"""Search benchmark: an incremental search of dask-ml alongside two jobs, against plain Dask.

The sides alternate: with `slaq` the search and both jobs are jobs of the plugin, with `none` there
is no plugin. Compute is emulated by sleeping. The models of the search differ in speed and quality,
and the two jobs differ in how fast they converge.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import dask.array as da
import numpy as np
from dask_ml.model_selection import HyperbandSearchCV, SuccessiveHalvingSearchCV
from sklearn.base import BaseEstimator

from benchmarks.common import cluster as clusters
from benchmarks.common.results import give, json_option
from benchmarks.live_jobs.emulated import EmulatedJob
from benchmarks.live_jobs.real_time import Driver
from dask_slaq.adapters.compat import repairs

SIDES = ("slaq", "none")
#: Factor by which each iteration of the two other jobs multiplies the remaining loss.
OTHERS = {"quick": 0.8, "slow": 0.93}
#: Iterations of each of these jobs, tasks per iteration, and seconds per task.
ITERATIONS, TASKS, SECONDS = 48, 12, 0.1
GRID = {
    "seconds": [0.05, 0.1, 0.15, 0.2],
    "kept": np.linspace(0.8, 0.97, 12).tolist(),
    "best": np.linspace(0.6, 1.0, 12).tolist(),
}
MEASURES = ("search_s", "near_best_s", "t90_quick_s", "t90_slow_s", "all_done_s")


class Slept(BaseEstimator):
    """Estimator that sleeps `seconds` per block, and scores ``best * (1 - kept**blocks)``."""

    def __init__(self, seconds: float = 0.1, kept: float = 0.9, best: float = 1.0) -> None:
        self.seconds, self.kept, self.best = seconds, kept, best

    def fit(self, X: Any, y: Any) -> Slept:
        """Sleep, and count the block."""
        time.sleep(self.seconds)
        self.blocks_ = getattr(self, "blocks_", 0) + 1
        return self

    partial_fit = fit

    def score(self, X: Any, y: Any) -> float:
        """Return a score that rises with the number of blocks."""
        time.sleep(self.seconds / 4)
        return float(self.best * (1 - self.kept**self.blocks_))


def search_of(kind: str, models: int, seed: int, part: float) -> Any:
    """Make a search over `GRID`, of a length relative to a full run.

    `models` is their initial number or, for Hyperband, its `max_iter`.
    """
    if kind == "hyperband":
        return HyperbandSearchCV(Slept(), GRID, max_iter=models, random_state=seed)
    first = max(int(part * 6), 1)
    sizes = {"n_initial_parameters": models, "n_initial_iter": first, "max_iter": 9 * first}
    return SuccessiveHalvingSearchCV(Slept(), GRID, random_state=seed, **sizes)


def run(side: str, kind: str, policy: str, models: int, seed: int, part: float) -> dict[str, float]:
    """Run one search alongside the other jobs, all of a length of `part` of a full run.

    Returns `MEASURES` in seconds from the common start, ``late_s`` (see `Lateness`) and the
    ``best`` score.
    """
    policy = "none" if side == "none" else policy
    with clusters.local_cluster(8) as (cluster, client), clusters.Lateness() as late:
        clusters.register(client, policy)
        data = client.persist([da.zeros((800, 4), chunks=(50, 4)), da.zeros(800, chunks=50)])
        k = np.arange(max(int(part * ITERATIONS), 2))
        sleeps = np.full((len(k), TASKS), SECONDS)
        jobs = [EmulatedJob(n, n, 0.0, q**k, 0.1 + q**k, sleeps) for n, q in OTHERS.items()]
        begin = time.perf_counter()
        drivers = [Driver(job, policy, cluster, begin, 100) for job in jobs]
        [driver.start() for driver in drivers]
        found = search_of(kind, models, seed, part)
        with client.as_current(), clusters.job_block(policy, "search", client):
            found.fit(*data)
        ended = time.perf_counter() - begin
        [driver.join() for driver in drivers]
    times = {"search_s": ended, "near_best_s": near_best(found.history_, ended)}
    times |= {f"t90_{driver.job.name}_s": driver.trace.time_to(0.9) for driver in drivers}
    times["all_done_s"] = max(ended, *(driver.trace.completion for driver in drivers))
    return {**times, "late_s": late.mean, "best": found.best_score_}


def near_best(history: list[dict[str, Any]], ended: float) -> float:
    """Return when a score first came within 1 % of the best one, on the clock of `ended`.

    `history` is that of dask-ml's search, whose clock starts when training starts.
    """
    best = max(h["score"] for h in history)
    first = min(h["elapsed_wall_time"] for h in history if h["score"] >= 0.99 * best)
    return float(ended - max(h["elapsed_wall_time"] for h in history) + first)


@click.command()
@click.option("--kind", type=click.Choice(["halving", "hyperband"]), default="halving")
@click.option(
    "--models", default=16, show_default=True, help="Initial models; for Hyperband, its max_iter."
)
@click.option("--policy", default="max-total", show_default=True)
@click.option("--repetitions", default=4, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the first repetition.")
@click.option("--quick", is_flag=True, help="One small repetition.")
@json_option
def main(quick: bool, repetitions: int, seed: int, output: str | None, **given: Any) -> None:
    """Time a search and the jobs alongside it, with the plugin and under plain Dask."""
    if quick:
        repetitions, given["models"] = 1, min(given["models"], 4)
    repairs.follow_settings()  # without the repairs, current Dask cannot run a search
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for turn in range(repetitions):
        for side in SIDES[turn % 2 :] + SIDES[: turn % 2]:
            done = run(side, seed=seed + turn, part=0.1 if quick else 1.0, **given)
            found[side].append(done)
            print(side, *(f"{k} {v:.2f}" for k, v in done.items()), file=sys.stderr, flush=True)
    give(found, output, _table(found))


def _table(found: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'':>14}" + "".join(f"{side:>16}" for side in (*SIDES, "slaq / none"))]
    for name in MEASURES:
        of = [np.array([run[name] for run in found[side]]) for side in SIDES]
        cells = (f"{v.mean():.2f} ± {v.std():.2f}" for v in (*of, of[0] / of[1]))
        lines.append(f"{name:>14}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join([*lines, "means over repetitions ± standard deviation"])


if __name__ == "__main__":
    main()
