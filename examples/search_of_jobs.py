"""A search over models that are Dask computations themselves: a job for each, the best ones first.

Run it with ``python examples/search_of_jobs.py``. Each model is a logistic regression on chunked
data, whose every step is a graph over all chunks. The jobs in the block of the search share what it
gets: those with few reports come first, then those with the lowest predicted final loss. They
report their loss on rows that are held out, so that they can be compared.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

ROWS, COLUMNS, CHUNKS, HELD_OUT, STEPS = 8_000, 8, 4, 2_000, 12
GRID = [{"rate": rate, "decay": decay} for rate in (0.1, 1.0, 4.0) for decay in (0.0, 0.1)]


def fit(params: dict[str, float], X: da.Array, y: da.Array) -> np.ndarray:
    """Train one model: each step is computed on the cluster, in the chunks of the data."""
    weights = np.zeros(COLUMNS)
    for _ in range(STEPS):
        likely = 1 / (1 + da.exp(-(X @ weights)))
        seen, held_out = slice(HELD_OUT, None), slice(HELD_OUT)
        gradient = X[seen].T @ (likely - y)[seen] / (ROWS - HELD_OUT)
        losses = -da.log(da.where(y == 1, likely, 1 - likely))[held_out]
        gradient, loss = dask.compute(gradient, losses.mean())
        slaq.report(float(loss))
        weights = weights - params["rate"] * (gradient + params["decay"] * weights)
    return weights


def main() -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(epoch="200ms"))
        rng = da.random.default_rng(0)
        X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
        noise = rng.standard_normal(ROWS, chunks=ROWS // CHUNKS)
        y = (X[:, 0] + 0.5 * X[:, 1] + 0.5 * noise > 0).astype(int).persist()
        wait([X, y])
        with slaq.search("grid", steps=STEPS) as search:
            futures = [
                slaq.submit(fit, params, X, y, name=f"grid-{k}") for k, params in enumerate(GRID)
            ]
            for future in futures:
                future.result()
        for row in search.results().itertuples():
            model = f"rate {row.params_rate}, decay {row.params_decay}"
            print(f"{model}: loss {row.loss:.3f} after {row.iteration} steps")
        params, _, future = search.best()
        print(f"best: {params}, weights {future.result().round(1).tolist()}")


if __name__ == "__main__":
    main()
