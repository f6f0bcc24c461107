"""Boosted trees by xgboost, unmodified and elastic, alongside another job.

Run it with ``python examples/boosting.py``; it needs ``pip install dask-slaq[xgboost]``.
``xgboost.dask`` reports every round by itself inside the block, but keeps its workers for the whole
run. The elastic job trains a few rounds at a time, on the workers that it is granted by then.
"""

from __future__ import annotations

import threading

import dask.array as da
import xgboost.dask
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

ROWS, COLUMNS, CHUNKS, ROUNDS = 2_000, 6, 4, 12
SETTINGS = {"objective": "reg:squarederror", "max_depth": 3}


def unmodified(client: Client, X: da.Array, y: da.Array) -> None:
    """Nothing but the block around it is new."""
    with slaq.job("unmodified", client=client):
        matrix = xgboost.dask.DaskDMatrix(client, X, y)
        xgboost.dask.train(client, SETTINGS, matrix, num_boost_round=ROUNDS, verbose_eval=False)


def elastic(client: Client, X: da.Array, y: da.Array) -> None:
    """Three steps of four rounds."""
    with slaq.job("elastic", client=client):
        slaq.xgboost.train(SETTINGS, X, y, ROUNDS, rounds_per_step=ROUNDS // 3, client=client)


def main() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(policy="max-total", epoch="200ms"))
        rng = da.random.default_rng(0)
        X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
        y = (X[:, 0] + X[:, 1] ** 2).persist()
        wait([X, y])
        # One after the other: two runs of xgboost in one process get in each other's way.
        beside = threading.Event()
        other = threading.Thread(target=sums, args=(client, X, beside))
        other.start()
        unmodified(client, X, y)
        elastic(client, X, y)
        beside.set()
        other.join()
        seen = slaq.history(client).iteration
        for name in ("elastic", "unmodified"):
            print(f"{name}: seen with {int(seen.sel(job=name).max())} reports")


def sums(client: Client, X: da.Array, done: threading.Event) -> None:
    """A job beside them."""
    with slaq.job("sums", client=client) as job:
        for k in range(1000):
            client.compute((X**2).sum()).result()
            job.report(1 / (k + 1))
            if done.is_set():
                break


if __name__ == "__main__":
    main()
