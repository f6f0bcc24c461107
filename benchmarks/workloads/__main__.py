"""Workload benchmark: training and reports of the whole catalogue on a real cluster.

Each workload trains as a job on one, two and four workers, and finally on a worker set that changes
with every report. The scheduler counts the reports.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

import click
import dask
import numpy as np
from distributed import Client, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import dask_slaq as slaq
from benchmarks.common.cluster import local_cluster, register
from benchmarks.common.results import Names, give, json_option
from benchmarks.workloads.catalogue import CATALOGUE, Workload
from benchmarks.workloads.references import Fit, compare, difference

__all__ = ["main", "measure"]

WORKERS = (1, 2, 4)
#: Number of rows of other data that cost as much as one document.
ROWS_OF_A_DOCUMENT = 50


class Places(SchedulerPlugin):
    """Record of the workers that finished tasks since the last call of `since`."""

    name = "benchmark-places"

    def __init__(self) -> None:
        self._workers: set[str] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self._workers.add(kwargs["worker"])

    def since(self) -> frozenset[str]:
        """Return the workers that finished tasks since the last call."""
        seen, self._workers = frozenset(self._workers), set()
        return seen


class Training:
    """One fit as a job: its model, its losses and their times, and the workers that computed.

    Each report switches to the next of the worker `sets` (addresses), in turn.
    """

    def __init__(
        self,
        client: Client,
        places: Places,
        workload: Workload,
        data: tuple[Any, ...],
        iterations: int,
        seed: int,
        sets: list[list[str]],
    ) -> None:
        self.losses: list[float] = []
        self.times: list[float] = []
        self.used: set[frozenset[str]] = set()
        self._places = places
        self._sets = itertools.cycle(sets)
        with slaq.job(workload.name, client=client) as self._job, ExitStack() as self._allowed:
            self._next_set()
            with slaq.instrument(self._record):
                self.model = workload.estimator(iterations, seed).fit(*data)
            self.reports = self._counted(client, workload.name)

    def _record(self, loss: float) -> None:
        self.times.append(time.perf_counter())
        self.losses.append(loss)
        self._job.report(loss)
        self.used.add(self._places.since())
        self._next_set()

    def _next_set(self) -> None:
        self._allowed.close()
        self._allowed.enter_context(dask.annotate(workers=next(self._sets)))

    def _counted(self, client: Client, name: str) -> int:
        """Wait up to 5 s for pending reports. Returns the number that the scheduler counted."""
        until = time.monotonic() + 5.0
        while True:
            count = int(slaq.status(client)["jobs"][name]["iteration"])
            if count >= self._job.iteration or time.monotonic() > until:
                return count
            time.sleep(0.02)

    @property
    def seconds(self) -> float:
        """Median seconds per iteration without the first, which compiles, imports and fetches."""
        return statistics.median(np.diff(self.times)[1:])


def measure(
    client: Client,
    places: Places,
    workload: Workload,
    *,
    rows: int,
    partitions: int,
    iterations: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Train one workload on every worker set, and compare it with its reference.

    The client is that of a cluster with at least four workers and `SlaqPlugin`. Returns one row of
    the result; the last lines of the table explain the keys.
    """
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def train(count: int, sets: list[list[str]]) -> Training:
        lazy = workload.data(rows, partitions, seed)
        with dask.annotate(workers=workers[:count]):
            data = client.persist(list(lazy))
        wait(data)
        return Training(client, places, workload, tuple(data), iterations, seed, sets)

    runs = {count: train(count, [workers[:count]]) for count in WORKERS}
    elastic = train(4, [workers[:1], workers[1:3], workers[3:], workers[:4], workers[:2]])
    fixed = runs[1]
    with dask.config.set(scheduler="sync"):
        X, *y = dask.compute(*workload.data(rows, partitions, seed))
        fit = Fit(fixed.model, X, y[0] if y else None, fixed.losses, partitions)
        agreement = compare(workload.name, fit)
    return {
        "algorithm": workload.algorithm,
        "rows": rows,
        "partitions": partitions,
        # dask-ml's linear models do not expose n_iter_. With tol=0 they run all iterations.
        "iterations": int(getattr(fixed.model, "n_iter_", iterations)),
        "reports": fixed.reports,
        "loss_first": fixed.losses[0],
        "loss_last": fixed.losses[-1],
        "agreement": agreement._asdict(),
        "seconds": {str(count): run.seconds for count, run in runs.items()},
        "elastic_difference": max(
            difference(fixed.model, run.model) for run in (*list(runs.values())[1:], elastic)
        ),
        "worker_sets": len(elastic.used - {frozenset()}),
    }


@click.command()
@click.option(
    "--workloads",
    type=Names("workload", CATALOGUE),
    default=",".join(CATALOGUE),
    help="Workloads, comma-separated; all by default.",
)
@click.option("--rows", default=50_000, show_default=True, type=click.IntRange(100))
@click.option("--partitions", default=8, show_default=True, type=click.IntRange(1))
@click.option("--iterations", default=10, show_default=True, type=click.IntRange(3))
@click.option("--seed", default=0, show_default=True, help="Seed of data and starts.")
@click.option("--quick", is_flag=True, help="Few rows, in-process workers; takes under a minute.")
@json_option
def main(
    workloads: list[str], rows: int, partitions: int, iterations: int, seed: int, quick: bool,
    output: str | None,
) -> None:  # fmt: skip
    """Train the algorithms of the paper's Table 1 as elastic jobs, and check the models."""
    if quick:
        rows, partitions, iterations = min(rows, 2000), min(partitions, 4), min(iterations, 4)
    found = {}
    with local_cluster(max(WORKERS), processes=not quick) as (cluster, client), client.as_current():
        register(client, "max-total")
        places = Places()
        cluster.scheduler.add_plugin(places, name=places.name)
        for name in workloads:
            print(name, file=sys.stderr, flush=True)
            documents = CATALOGUE[name].kind == "documents"
            found[name] = measure(
                client, places, CATALOGUE[name], partitions=partitions, iterations=iterations,
                rows=max(partitions, rows // ROWS_OF_A_DOCUMENT) if documents else rows, seed=seed,
            )  # fmt: skip
    result = {"cores": os.cpu_count(), "processes": not quick, "seed": seed, "workloads": found}
    give(result, output, _table(result))


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{'workload':<20}{'rows':>8}{'parts':>6}{'iter.':>6}{'reports':>8}{'loss first':>12}"
        f"{'last':>12}{'1':>8}{'2':>8}{'4 w, ms':>8}{'elastic':>9}{'sets':>5}"
        f"{'agreement':>11}{'left':>8}"
    ]
    for name, row in result["workloads"].items():
        left = row["agreement"]["left"]
        seconds = "".join(f"{1e3 * s:>8.0f}" for s in row["seconds"].values())
        lines.append(
            f"{name:<20}{row['rows']:>8}{row['partitions']:>6}{row['iterations']:>6}"
            f"{row['reports']:>8}{row['loss_first']:>12.5g}{row['loss_last']:>12.5g}{seconds}"
            f"{row['elastic_difference']:>9.2g}{row['worker_sets']:>5}"
            f"{row['agreement']['value']:>11.2g}{'-' if left is None else f'{left:.1%}':>8}"
        )
    lines.append("reports: counted by the scheduler, one for the start and one an iteration")
    lines.append(f"ms: of an iteration on 1, 2, 4 workers, of {result['cores']} cores in all")
    lines.append("elastic: largest difference between the model of one worker and those of two, of")
    lines.append("four, and of a worker set that changed with every report (sets: how many it had)")
    lines.append("left: loss above the optimum, over the whole fall to it, for convex losses")
    for name, row in result["workloads"].items():
        agreement = row["agreement"]
        lines.append(f"agreement, {name}: {agreement['measure']} ({agreement['reference']})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
