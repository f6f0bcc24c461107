"""A grid of hyper-parameters, each point a job: the promising ones get the threads first.

Run it with ``python examples/grid.py``. Each job fits an unmodified dask-ml model with another
penalty; a thread for each is all that it takes. What the scheduler saw is printed at the end.
"""

from __future__ import annotations

import threading

import dask.array as da
from dask_ml.linear_model import LogisticRegression
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

PENALTIES = (0.1, 1.0, 10.0, 100.0)
ROWS, COLUMNS, CHUNKS = 4_000, 8, 4


def fit(client: Client, C: float, X: da.Array, y: da.Array, scores: dict[float, float]) -> None:
    """One point of the grid."""
    with slaq.job(f"C={C}", client=client):
        model = LogisticRegression(C=C, solver="lbfgs", max_iter=6, tol=0.0).fit(X, y)
        scores[C] = float((model.predict(X) == y).mean())


def main() -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(policy="max-total", epoch="200ms"))
        rng = da.random.default_rng(0)
        X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
        noise = rng.standard_normal(ROWS, chunks=ROWS // CHUNKS)
        y = (X[:, 0] + 0.5 * X[:, 1] + 0.5 * noise > 0).astype(int).persist()
        wait([X, y])
        scores: dict[float, float] = {}
        points = [threading.Thread(target=fit, args=(client, C, X, y, scores)) for C in PENALTIES]
        for point in points:
            point.start()
        for point in points:
            point.join()
        reports = slaq.history(client).iteration.max("epoch")
        for C in PENALTIES:
            seen = int(reports.sel(job=f"C={C}"))
            print(f"C={C}: accuracy {scores[C]:.2f}, seen with {seen} reports")


if __name__ == "__main__":
    main()
