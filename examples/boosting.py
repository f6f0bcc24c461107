"""Boosted trees by xgboost: how long other work waits under plain Dask, and with elastic steps.

Run it with ``python examples/boosting.py``; it needs ``pip install dask-slaq[xgboost]``.
``xgboost.dask`` reports every round by itself inside the block, but keeps its workers for the whole
run. The elastic job trains a few rounds at a time, each step on the workers that it is granted by
then, where its rows move. A step costs a fraction of a second more than its rounds.
"""

from __future__ import annotations

import threading
import uuid
from time import time

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, futures_of, wait

import dask_slaq as slaq

try:
    import xgboost.dask
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: pip install 'dask-slaq[xgboost]'") from None

SMALL = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
ROWS, COLUMNS, CHUNKS, ROUNDS, STEP = 150_000, 20, 4, 60, 10
SETTINGS = {"objective": "reg:squarederror", "max_depth": 3}


def unmodified(client: Client, X: da.Array, y: da.Array) -> None:
    """Nothing but the block around it is new."""
    with slaq.job("unmodified", client=client):
        matrix = xgboost.dask.DaskDMatrix(client, X, y)
        xgboost.dask.train(client, SETTINGS, matrix, num_boost_round=ROUNDS, verbose_eval=False)


def elastic(client: Client, X: da.Array, y: da.Array) -> None:
    """Steps of a few rounds. Columns are binned in each step, by the rows of each worker."""
    model = None
    with slaq.job("elastic", client=client):
        for done in range(0, ROUNDS, STEP):
            workers = granted(client, "elastic")
            x, targets = moved(client, X, workers), moved(client, y, workers)
            # If one of the workers has left in the meantime, its rows go to another one.
            with dask.annotate(workers=workers, allow_other_workers=True):
                matrix = xgboost.dask.DaskDMatrix(client, x, targets)
            model = xgboost.dask.train(
                client, SETTINGS, matrix, num_boost_round=STEP, xgb_model=model, verbose_eval=False
            )["booster"]
            if model.num_boosted_rounds() < done + STEP:
                break  # the job was stopped


def granted(client: Client, job: str) -> list[str]:
    """Return the workers of a job: all while no other one competes."""
    now = slaq.status(client)
    mine = now["jobs"][job]["workers"] if now["holding"] else ()
    return sorted(mine or client.nthreads())


def moved(client: Client, array: da.Array, workers: list[str]) -> da.Array:
    """Spread the blocks of a persisted array over workers."""
    name = f"moved-{uuid.uuid4().hex}"
    graph = {}
    for i, future in enumerate(futures_of(array)):
        key, at = (name, *future.key[1:]), [workers[i % len(workers)]]
        graph[key] = client.submit(itself, future, key=key, workers=at, allow_other_workers=True)
    return da.Array(graph, name, array.chunks, meta=array._meta)


def itself(block: np.ndarray) -> np.ndarray:
    return block


def sums(client: Client, X: da.Array, done: threading.Event, waits: list[float]) -> None:
    """A job alongside: many short computations."""
    with slaq.job("sums", client=client) as job:
        while not done.is_set():
            begin = time()
            client.compute((X**2).sum()).result()
            waits.append(time() - begin)
            job.report(1 / len(waits))


def main() -> None:
    # One after the other: two runs of xgboost in one process get in each other's way.
    for policy, fit in (("none", unmodified), ("max-total", elastic)):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="200ms"))
            rng = da.random.default_rng(0)
            X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
            y = (X[:, 0] + X[:, 1] ** 2).persist()
            wait([X, y])
            done, waits = threading.Event(), []
            other = threading.Thread(target=sums, args=(client, X, done, waits))
            other.start()
            begin = time()
            fit(client, X, y)
            took = time() - begin
            done.set()
            other.join()
            seen = int(slaq.history(client).iteration.sel(job=fit.__name__).max())
        way = "plain Dask" if fit is unmodified else "elastic job"
        print(f"{way}: {took:.1f} s, {seen} reports; a sum took up to {max(waits):.1f} s")


if __name__ == "__main__":
    main()
