"""Late tasks: one slow worker of eight, with spare copies and without, on the virtual clock.

A training has iterations of eight tasks and a sum; a map has sixteen tasks, and the next one begins
at its end. Core-seconds are those of all runs, also of those whose result was not used.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import click
import dask
import numpy as np
from distributed import get_worker, utils

import dask_slaq as slaq
from benchmarks import virtual
from benchmarks.common.results import give, json_option, table

WORKERS, SECONDS, FACTOR = 8, 0.2, 10
#: Tasks of an iteration, by kind of work.
TASKS = {"training": WORKERS, "maps": 2 * WORKERS}


def work(number: int) -> int:
    """Compute for `SECONDS`, or `FACTOR` times as long on the slow worker."""
    worker = get_worker()
    seconds = SECONDS * (FACTOR if worker.name == f"worker-{WORKERS}" else 1)
    worker.spent = getattr(worker, "spent", 0.0) + seconds
    utils.sync(worker.loop, asyncio.sleep, seconds)
    return number


async def iterate(kind: str, spare: bool, count: int) -> tuple[list[float], float]:
    """Return the virtual seconds of each of `count` iterations, and the core-seconds of all."""
    cluster = virtual.Cluster([1] * WORKERS)
    async with cluster, cluster.client() as client:
        await client.register_plugin(slaq.SlaqPlugin())
        block: Any = nullcontext()
        if kind == "training":
            block = slaq.job(kind, spare=spare, client=client)
        took = []
        async with block as job:
            for k in range(count):
                begin, numbers = virtual.now(), range(TASKS[kind])
                with dask.annotate(slaq_spare=True) if spare and job is None else nullcontext():
                    parts = client.map(work, numbers, pure=False)
                assert await client.submit(sum, parts) == sum(numbers)
                took.append(virtual.now() - begin)
                if job is not None:
                    job.report(1 / (k + 1))
        # What still computes on the slow worker ends here, too.
        await asyncio.sleep(2 * FACTOR * SECONDS)
        return took, sum(worker.spent for worker in cluster.workers)


def measure(count: int, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """Return percentiles of the seconds of an iteration, and core-seconds, by kind and way."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in TASKS:
        for way, spare in (("without", False), ("spare", True)):
            took, spent = virtual.run(iterate, kind, spare, count, seed=seed)
            p50, p99 = np.quantile(took, [0.5, 0.99])
            found.setdefault(kind, {})[way] = {
                "p50_s": float(p50),
                "p99_s": float(p99),
                "core_seconds": spent,
            }
    return found


@click.command(help=__doc__)
@click.option("--iterations", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--quick", is_flag=True, help="30 iterations.")
@virtual.latency_option
@json_option
def main(iterations: int, seed: int, quick: bool, output: str | None) -> None:
    """Run the benchmark."""
    found = measure(30 if quick else iterations, seed)
    rows = [[f"{k}, {way}", *row.values()] for k, by in found.items() for way, row in by.items()]
    give(found, output, table(["", "p50/s", "p99/s", "core-seconds"], rows))


if __name__ == "__main__":
    main()
