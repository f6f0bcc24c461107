"""Models that are Dask computations themselves, as jobs in the block of a search.

Each model is a loop whose every step is a graph of several tasks and a sum. `plain` runs all loops
at once under plain Dask, `jobs` each as a job, and `search` each as a job in the block of one
search, on the virtual clock. Figures are means of the ratios to plain; `other` is a training of
somebody else at the same time, with `--other`.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from contextlib import nullcontext
from typing import Any

import click
import numpy as np
from distributed import Client

import dask_slaq as slaq
from benchmarks import virtual
from benchmarks.common.results import give, json_option, table
from benchmarks.trials.spaces import Synthetic

WAYS = ("plain", "jobs", "search")
THREADS = (2,) * 4
#: Tasks of a step, and seconds of each.
WIDTH, SECONDS = 8, 0.25
KEYS = ("best", "near", "top5", "all", "other")
#: A model is near the best if its loss is at most this many times as high.
NEAR = 1.05


async def train(client: Client, way: str, number: int, losses: list[float]) -> float:
    """Train a model with these losses, step by step. Returns the time at which it is ready."""
    block: Any = nullcontext()
    if way != "plain":
        block = slaq.job(f"model-{number}", max_iter=len(losses), client=client)
    async with block as job:
        for step, loss in enumerate(losses):
            keys = [f"model-{number}-{step}-{part}" for part in range(WIDTH)]
            parts = [client.submit(virtual.work, seconds=SECONDS, key=key) for key in keys]
            await client.submit(virtual.work, *parts, key=f"model-{number}-{step}-sum")
            if job is not None:
                job.report(loss)
    return virtual.now()


async def run(way: str, curves: list[list[float]], other: bool) -> list[float]:
    """Return the seconds after which each model is ready; the last one is of somebody else."""
    async with virtual.Cluster(THREADS) as cluster, cluster.client() as client:
        block: Any = nullcontext()
        if way != "plain":
            await client.register_plugin(slaq.SlaqPlugin())
        if way == "search":
            block = slaq.search("grid", steps=len(curves[0]), client=client)
        begin, last = virtual.now(), len(curves) - 1 if other else len(curves)
        trainings = [
            asyncio.create_task(train(client, way, k, losses))
            for k, losses in enumerate(curves)
            if k >= last
        ]
        async with block:
            models = [train(client, way, k, losses) for k, losses in enumerate(curves[:last])]
            ends = await asyncio.gather(*models)
        return [end - begin for end in [*ends, *await asyncio.gather(*trainings)]]


def figures(ready: list[float], final: list[float], other: bool) -> dict[str, float]:
    """Return when the best model, one near it, the best five, all, and the other were ready."""
    alone = ready[-1] if other else math.nan
    if other:
        ready, final = ready[:-1], final[:-1]
    ranked = [ready[k] for k in np.argsort(final)]
    near = min(at for at, loss in zip(ready, final, strict=True) if loss <= NEAR * min(final))
    return {
        "best": ranked[0],
        "near": near,
        "top5": max(ranked[:5]),
        "all": max(ready),
        "other": alone,
    }


def measure(
    count: int, steps: int, seeds: int, first: int, other: bool
) -> dict[str, dict[str, float]]:
    """Return for each way the mean ratios of its times to those of plain Dask."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    space = Synthetic(steps)
    for seed in range(first, first + seeds):
        drawn = space.draw(np.random.default_rng(seed), count + other)
        curves = [space.losses(params) for params in drawn]
        final = [losses[-1] for losses in curves]
        for way in WAYS:
            ready = virtual.run(run, way, curves, other, seed=seed)
            found[way].append(figures(ready, final, other))
    return {
        way: {
            key: statistics.mean(row[key] / plain[key] for row, plain in pairs)
            for key in KEYS
            for pairs in [list(zip(rows, found["plain"], strict=True))]
        }
        for way, rows in found.items()
    }


@click.command(help=__doc__)
@click.option("--count", default=12, show_default=True, type=click.IntRange(5), help="Models.")
@click.option("--steps", default=20, show_default=True, type=click.IntRange(2), help="Of each.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("--other", is_flag=True, help="A training of somebody else at the same time.")
@click.option("--quick", is_flag=True, help="Six models of ten steps, one seed.")
@virtual.latency_option
@json_option
def main(
    count: int, steps: int, seeds: int, seed: int, other: bool, quick: bool, output: str | None
) -> None:
    """Run the benchmark."""
    count, steps, seeds = (6, 10, 1) if quick else (count, steps, seeds)
    found = measure(count, steps, seeds, seed, other)
    give(found, output, table(["", *KEYS], [[way, *row.values()] for way, row in found.items()]))


if __name__ == "__main__":
    main()
