"""``python -m benchmarks.moves``: models that leave their worker, against those that stay.

Each model is one task whose steps sleep. `plain` runs under plain Dask; in `search` the models
report each step and wait on their worker, and in `moves` they report a state, too. Cases disturb
the cluster half-way, or have models that need much of the memory of their workers.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
from distributed import Client, LocalCluster, as_completed

from benchmarks.common import curves as curve_files
from benchmarks.common import results
from benchmarks.common.cluster import QUIET, another_client, bytes_moved, register
from benchmarks.trials.spaces import Space, Synthetic, recorded

WAYS = ("plain", "search", "moves")
FIGURES = (
    *("best_s", "top5_s", "all_s", "steps_run", "killed", "peak_mb", "bytes_moved"),
    "results_equal",
)
#: Memory limit of the workers of models of many bytes.
LIMIT = 1_000_000_000
#: Seconds between two looks at the memory of the workers.
LOOK = 0.1


@dataclass(frozen=True)
class Case:
    """Cluster, what happens to it half-way, and the size of a model in megabytes."""

    workers: int
    threads: int
    event: str = ""
    megabytes: int = 0
    models: int = 0  # 0 for as many as are asked for
    limit: int = LIMIT  # memory limit of a worker of such models


CASES = {
    "4x1": Case(4, 1),
    "2x2": Case(2, 2),
    "2x1": Case(2, 1),
    "killed": Case(2, 2, "kill"),
    "retired": Case(3, 1, "retire"),
    "adaptive": Case(4, 1, "scale"),
    "30mb": Case(2, 1, megabytes=30, models=16, limit=400_000_000),
    "50mb": Case(2, 1, megabytes=50, models=16),
    "300mb": Case(2, 1, megabytes=300, models=16),
    "300mb-64": Case(2, 1, megabytes=300, models=64),
}
USUAL = tuple(name for name in CASES if name != "300mb-64")
#: Cases of a `--quick` run.
FEW = ("4x1", "killed", "retired")


def train(
    model: dict[str, Any], space: Space, step_s: float, way: str, log: str, megabytes: int
) -> list[float]:
    """Train one model: sleep and note each step. Returns the loss after each step."""
    state = None
    if way != "plain":
        import dask_slaq as slaq

        state = slaq.resume() if way == "moves" else None
    made, weights = state or ([], np.ones(megabytes * 125_000))
    for loss in space.losses(model)[len(made) :]:
        time.sleep(step_s)
        weights += 1
        made.append(loss)
        with Path(log).open("a") as file:
            file.write(f"{model}\n")
        if way == "search":
            slaq.report(loss)
        elif way == "moves":
            slaq.report(loss, state=lambda weights=weights: (list(made), weights))
    assert (weights == len(made) + 1).all()
    return made


def run(
    way: str, case: Case, space: Space, models: list[dict[str, Any]], step_s: float
) -> dict[str, Any]:
    """Run all models in one way on a fresh cluster. Returns `FIGURES`."""
    steps = len(space.losses(models[0]))
    half = len(models) * steps * step_s / (case.workers * case.threads) / 2
    with tempfile.TemporaryDirectory() as folder, _cluster(case) as (cluster, client):
        if way != "plain":
            register(client, "max-total")
        client.run(_warm_up, way)
        pids = client.run(os.getpid)
        log, found = f"{folder}/steps", _Watch(cluster)
        begin = time.perf_counter()
        block: Any = nullcontext()
        if way != "plain":
            import dask_slaq as slaq

            block = slaq.search(way, steps=steps, client=client)
        timer = threading.Timer(half, _disturb, (case.event, cluster, client, pids))
        with client.as_current(), block, found:
            futures = client.map(
                train, models, space=space, step_s=step_s, way=way, log=log,
                megabytes=case.megabytes, pure=False, retries=3,
            )  # fmt: skip
            timer.start()
            seconds = {}
            for future in as_completed(futures, timeout=20 * half + 120):
                seconds[future.key] = time.perf_counter() - begin
            done = [f for f in futures if f.status == "finished"]
            returned = client.gather(done)
        timer.cancel()
        timer.join()
        moved = bytes_moved(client)
        lines = Counter(Path(log).read_text().splitlines())
    values = sorted((r[-1], seconds[f.key]) for r, f in zip(returned, done, strict=True))
    return {
        "best_s": values[0][1] if values else None,
        "top5_s": max(s for _, s in values[:5]) if values else None,
        "all_s": max(seconds.values()),
        "steps_run": sum(lines.values()),
        "killed": found.killed,
        "peak_mb": found.peak / 1e6,
        "bytes_moved": moved,
        "results_equal": returned == [space.losses(model) for model in models],
    }


@contextmanager
def _cluster(case: Case) -> Iterator[tuple[LocalCluster, Client]]:
    with (
        dask.config.set({**QUIET, "distributed.admin.system-monitor.interval": "500ms"}),
        LocalCluster(
            n_workers=case.workers,
            threads_per_worker=case.threads,
            processes=True,
            dashboard_address=":0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=case.limit if case.megabytes else 0,
        ) as cluster,
        another_client(cluster) as client,
    ):
        client.wait_for_workers(case.workers, timeout=60)
        yield cluster, client


class _Watch(threading.Thread):
    """Thread that looks for the largest memory of a worker; counts restarts for memory."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self._cluster, self._ended = cluster, threading.Event()
        self.peak, self.killed = 0, 0

    def run(self) -> None:
        while not self._ended.wait(LOOK):
            workers = list(self._cluster.scheduler.workers.values())
            self.peak = max([self.peak, *(ws.memory.process for ws in workers)])

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self.join()
        events = self._cluster.scheduler.get_events("worker-restart-memory")
        self.killed = len(events)


def _disturb(event: str, cluster: LocalCluster, client: Client, pids: dict[str, int]) -> None:
    addresses = sorted(cluster.scheduler.workers)
    if event == "kill":
        os.kill(pids[addresses[0]], signal.SIGKILL)
    elif event == "retire":
        client.retire_workers(addresses[:1])
    elif event == "scale":
        count = len(addresses)
        cluster.scale(count // 2)
        time.sleep(2)
        cluster.scale(count)


def _warm_up(way: str) -> None:
    if way != "plain":
        import dask_slaq

        assert dask_slaq.report


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of the figures of some runs; most killed and highest peak."""
    found: dict[str, Any] = {}
    for name in FIGURES:
        values = [run[name] for run in runs]
        if name == "results_equal":
            found[name] = all(values)
        else:
            found[name] = max(values) if name in ("killed", "peak_mb") else results.mean(values)
    return {**found, "seeds": runs}


@click.command()
@click.option("--ways", type=results.Names("way", WAYS), default=",".join(WAYS), show_default=True)
@click.option(
    "--cases", type=results.Names("case", CASES), default=",".join(USUAL), show_default=True
)
@click.option("--models", default=40, show_default=True, type=click.IntRange(5))
@click.option("--steps", default=40, show_default=True, type=click.IntRange(2), help="Per model.")
@click.option("--step-seconds", default=0.05, show_default=True, type=click.FloatRange(0))
@results.seeds_options
@results.curves_option
@click.option("--quick", is_flag=True, help="One seed, few and short models, three cases.")
@results.json_option
def main(
    ways: list[str], cases: list[str], models: int, steps: int, step_seconds: float, seeds: int,
    seed: int, files: tuple[str, ...], quick: bool, output: str | None,
) -> None:  # fmt: skip
    """Train models that may leave their worker, disturb them, and compare when they are ready."""
    if quick:
        seeds, models, steps, cases = 1, 10, 10, [case for case in cases if case in FEW]
    result: dict[str, Any] = {}
    for name in cases:
        case = CASES[name]
        count = case.models or models
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for number in range(seed, seed + seeds):
            rng = np.random.default_rng([number, 2])
            space: Any = Synthetic(steps)
            if files:
                space = recorded(curve_files.read(files), count, steps, rng)
            some, turn = space.draw(rng, count), number % len(ways)
            for way in ways[turn:] + ways[:turn]:
                found = run(way, case, space, some, step_seconds)
                runs[way].append({"seed": number, **found})
                results.say(name, way, number, *map(results.cell, _cells(found)))
        result[name] = {way: _summary(some) for way, some in runs.items()}
    tables = (
        results.table([name, *FIGURES], [[way, *_cells(of)] for way, of in found.items()])
        for name, found in result.items()
    )
    results.give(result, output, *tables)


def _cells(found: dict[str, Any]) -> list[Any]:
    return [found[name] for name in FIGURES]


if __name__ == "__main__":
    main()
