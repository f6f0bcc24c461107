"""Two people share a cluster: one fits an unmodified dask-ml model, one runs a loop of her own.

Run it with ``python examples/two_people.py``. Each job's losses reach the scheduler, and the
history shows which job held how many threads over time.
"""

from __future__ import annotations

import threading

import dask.array as da
import numpy as np
from dask_ml.linear_model import LogisticRegression
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

ROWS, COLUMNS, CHUNKS = 20_000, 20, 4


def unmodified(client: Client, X: da.Array, y: da.Array) -> None:
    """Nothing but the block around it is new: the fit reports by itself."""
    with slaq.job("unmodified", client=client):
        LogisticRegression(solver="gradient_descent", max_iter=7, tol=0.0).fit(X, y)


def own_loop(client: Client, X: da.Array, y: da.Array) -> None:
    """Least squares by gradient descent, one Dask computation and one report an iteration."""
    beta = np.zeros(COLUMNS)
    with slaq.job("own-loop", weight=2.0, client=client) as job:
        for _ in range(7):
            error = X @ beta - y
            loss, gradient = client.gather(client.compute([(error**2).mean(), X.T @ error / ROWS]))
            job.report(loss)
            beta -= 0.5 * gradient


def main() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(policy="max-total", epoch="200ms"))
        rng = da.random.default_rng(0)
        X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
        y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int).persist()
        wait([X, y])
        people = [
            threading.Thread(target=train, args=(client, X, y)) for train in (unmodified, own_loop)
        ]
        for person in people:
            person.start()
        for person in people:
            person.join()
        reports = slaq.history(client).iteration.max("epoch")
        for name in sorted(reports.job.values):
            print(f"{name}: seen with {int(reports.sel(job=name))} reports")


if __name__ == "__main__":
    main()
