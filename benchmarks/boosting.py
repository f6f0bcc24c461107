"""Concurrent boosting runs: how many end, hang or fail, under plain Dask or with the plugin.

xgboost and LightGBM train in one task per worker, and the tasks of a run wait for each other.
Runs that start half on one worker and half on another block each other for ever. Each run trains a
few trees on its own small arrays, from a thread of its own, and all runs start at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
from distributed import Client

from benchmarks.common.cluster import another_client, job_block, local_cluster, register
from benchmarks.common.results import give, json_option

ROWS, CHUNKS, COLUMNS, TREES = 2_000, 4, 5, 5


def train_lightgbm(client: Client, x: Any, y: Any, seed: int) -> None:
    """Train with lightgbm.dask."""
    import lightgbm

    settings = {"n_estimators": TREES, "num_leaves": 4, "verbose": -1, "random_state": seed}
    lightgbm.DaskLGBMRegressor(client=client, **settings).fit(x, y)


def train_xgboost(client: Client, x: Any, y: Any, seed: int) -> None:
    """Train with xgboost.dask."""
    from xgboost import dask as xgboost

    data = xgboost.DaskDMatrix(client, x, y)
    xgboost.train(client, {"max_depth": 2, "seed": seed}, data, TREES)


LIBRARIES: dict[str, Callable[..., None]] = {"lightgbm": train_lightgbm, "xgboost": train_xgboost}


def measure(
    library: str,
    runs: int,
    source: str,
    way: str,
    *,
    workers: int = 2,
    threads: int = 2,
    processes: bool = True,
    patience: float = 60.0,
) -> dict[str, Any]:
    """Start all runs at once, and wait until they have ended or hang.

    The runs share one client (source "threads"), or each has its own ("clients"). The way "plugin"
    makes each a job. After `patience` seconds without the end of any run, the remaining runs hang.
    """
    policy = "none" if way == "plain" else "fair"
    with local_cluster(workers, threads=threads, processes=processes) as (cluster, client):
        with client.as_current():
            LIBRARIES[library](client, *_data(runs), runs)  # imports the library everywhere
        register(client, policy, epoch="100ms")
        clients = [client if source == "threads" else another_client(cluster) for _ in range(runs)]
        ends: list[float] = []
        errors: list[str] = []
        go = threading.Event()

        def run(seed: int) -> None:
            go.wait()
            try:
                with clients[seed].as_current(), job_block(policy, f"{seed}", clients[seed]):
                    LIBRARIES[library](clients[seed], *_data(seed), seed)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:200])
            else:
                ends.append(time.perf_counter())

        drivers = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(runs)]
        for driver in drivers:
            driver.start()
        begin = time.perf_counter()
        go.set()
        hung = _wait(drivers, patience)
        return {
            "ended": len(ends),
            "hung": hung,
            "failed": len(errors),
            "seconds": round(max(ends, default=begin) - begin, 2),
            "errors": sorted(set(errors)),
        }


def _data(seed: int) -> tuple[Any, Any]:
    """Make lazy arrays, one chunk of rows per task."""
    import dask.array as da

    x = da.random.default_rng(seed).random((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS))
    return x, x[:, 0] + x[:, 1] ** 2


def _wait(drivers: Sequence[Any], patience: float) -> int:
    """Wait until all drivers have ended, or none has for `patience` seconds. Count the rest."""
    alive, until = len(drivers), time.monotonic() + patience
    while alive and time.monotonic() < until:
        time.sleep(0.05)
        now = sum(driver.is_alive() for driver in drivers)
        if now < alive:
            alive, until = now, time.monotonic() + patience
    return alive


@click.command()
@click.option("--library", required=True, type=click.Choice(list(LIBRARIES)))
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1))
@click.option(
    "--from",
    "source",
    default="threads",
    show_default=True,
    type=click.Choice(["threads", "clients"]),
    help="Whether the runs share one client, or have one each.",
)
@click.option("--way", default="plugin", show_default=True, type=click.Choice(["plain", "plugin"]))
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=2, show_default=True, help="Threads of each worker.")
@click.option("--in-process", is_flag=True, help="Run the workers in this process.")
@click.option(
    "--patience", default=60.0, show_default=True, help="Seconds until the rest counts as hung."
)
@json_option
def main(
    library: str, runs: int, source: str, way: str, workers: int, threads: int,
    in_process: bool, patience: float, output: str | None,
) -> None:  # fmt: skip
    """Start concurrent boosting runs, and count those that end, hang and fail."""
    found = measure(
        library, runs, source, way,
        workers=workers, threads=threads, processes=not in_process, patience=patience,
    )  # fmt: skip
    line = ", ".join(f"{found[key]} {key}" for key in ("ended", "hung", "failed"))
    title = f"{library}, {runs} runs from {source}, {way}"
    give(found, output, f"{title}: {line}; {found['seconds']} s", *found["errors"])


if __name__ == "__main__":
    main()
