"""Allocation benchmark: exact water-rounds against the paper's Algorithm 1 with a heap.

Both start with one core per job, as the policy `slaq2017` does.

Gains come from synthetic forecasts in the form that the engine uses: tables of predicted
reductions, interpolated at the number of iterations that a job completes in an epoch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common.results import give, json_option, say, table
from benchmarks.common.slaq2017 import algorithm_1
from dask_slaq.core.forecast.types import HORIZONS
from dask_slaq.core.policies.water_filling import hand_out

#: Numbers of jobs and cores; the second pair is the paper's largest.
SIZES = ((160, 640), (4_000, 16_384), (20_000, 100_000), (100_000, 1_000_000))
#: Length of an epoch, seconds.
EPOCH = 1.0
#: Index of the last horizon at or before each number of iterations; never the last horizon.
BEFORE = np.searchsorted(HORIZONS[:-1], np.arange(HORIZONS[-1] + 1), side="right") - 1


@dataclass(frozen=True)
class Forecasts:
    """Predicted reductions of synthetic jobs, and the cost of their iterations.

    Calling it gives the worth of threads, as `hand_out` takes it.
    """

    reduction: np.ndarray  # (n_jobs, n_horizons) of the normalized loss, concave in the horizon
    work: np.ndarray  # (n_jobs,) core-seconds per iteration
    width: np.ndarray  # (n_jobs,) threads that a job can use: the parallel tasks of an iteration

    @classmethod
    def draw(cls, jobs: int, cores: int, seed: int) -> Forecasts:
        """Draw jobs at all stages of training, with rates and sizes over two decades."""
        rng = np.random.default_rng(seed)
        left, power = rng.beta(1.0, 3.0, jobs), rng.uniform(0.5, 4.0, jobs)
        pace = rng.lognormal(2.5, 1.0, jobs)
        shape = 1.0 - (1.0 + HORIZONS / pace[:, None]) ** -power[:, None]
        width = np.ceil(rng.lognormal(np.log(4.0 * cores / jobs), 0.8, jobs))
        return cls(left[:, None] * shape, rng.lognormal(0.0, 1.0, jobs), width)

    def __call__(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        return (self.gain(stop) - self.gain(start)) / (stop - start)

    def gain(self, threads: np.ndarray) -> np.ndarray:
        """Return each job's reduction in one epoch, interpolated linearly between horizons."""
        ahead = np.minimum(EPOCH * np.minimum(threads, self.width) / self.work, HORIZONS[-1])
        left = BEFORE.take(ahead.astype(int))
        cell = np.arange(len(left)) * len(HORIZONS) + left
        low, high = self.reduction.take(cell), self.reduction.take(cell + 1)
        start, stop = HORIZONS.take(left), HORIZONS.take(left + 1)
        return low + (ahead - start) / (stop - start) * (high - low)

    def of(self, rows: np.ndarray) -> Forecasts:
        """Select the forecasts of some jobs."""
        return Forecasts(self.reduction[rows], self.work[rows], self.width[rows])

    def one_by_one(self) -> list[Callable[[int], float]]:
        """Return the same gains as one plain function per job, with the same arithmetic."""
        grid, before = HORIZONS.tolist(), BEFORE.tolist()

        def gain_of(table: list[float], work: float, width: float) -> Callable[[int], float]:
            def gain(threads: int) -> float:
                ahead = min(EPOCH * min(threads, width) / work, grid[-1])
                left = before[int(ahead)]
                low, high = table[left], table[left + 1]
                start, stop = grid[left], grid[left + 1]
                return low + (ahead - start) / (stop - start) * (high - low)

            return gain

        rows = zip(self.reduction.tolist(), self.work.tolist(), self.width.tolist(), strict=True)
        return [gain_of(*row) for row in rows]


def measure(
    jobs: int, cores: int, *, seed: int = 0, repetitions: int = 5, heap: bool = True
) -> dict[str, Any]:
    """Time both methods at one size, and compare their results.

    The median of `repetitions` of water-rounds counts. Algorithm 1 runs once, if `heap`.
    """
    forecasts = Forecasts.draw(jobs, cores, seed)
    one, most = np.ones(jobs), np.minimum(forecasts.width, cores)
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        share = hand_out(forecasts, one, most, cores)
        seconds.append(time.perf_counter() - start)
    found: dict[str, Any] = {"jobs": jobs, "cores": cores, "seconds": statistics.median(seconds)}
    if not heap:
        return {**found, "heap_seconds": None, "identical": None}
    gains, upper = forecasts.one_by_one(), most.astype(int).tolist()
    start = time.perf_counter()
    want = algorithm_1(gains, upper, cores)
    heap_seconds = time.perf_counter() - start
    return {**found, "heap_seconds": heap_seconds, "identical": share.tolist() == want}


@click.command()
@click.option("--seed", default=0, show_default=True, help="Seed of the synthetic forecasts.")
@click.option("--quick", is_flag=True, help="No heap for the largest size; takes under a minute.")
@json_option
def main(seed: int, quick: bool, output: str | None) -> None:
    """Time the allocation of threads by marginal gain, on one thread of this machine."""
    result = []
    with threadpool_limits(1):
        for jobs, cores in SIZES:
            say(f"{jobs} jobs on {cores} cores")
            heap = not quick or (jobs, cores) != SIZES[-1]
            result.append(measure(jobs, cores, seed=seed, heap=heap))
    give(result, output, _table(result))


def _table(result: list[dict[str, Any]]) -> str:
    rows = []
    for row in result:
        heap, seconds = row["heap_seconds"], row["seconds"]
        rival = [1e3 * heap, heap / seconds] if heap else [None, None]
        rows.append([row["jobs"], row["cores"], 1e3 * seconds, *rival, row["identical"]])
    return table(["jobs", "cores", "ms", "heap ms", "ratio", "identical"], rows)


if __name__ == "__main__":
    main()
