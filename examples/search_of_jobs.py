"""Models that are Dask computations: the best is ready sooner in a search than under plain Dask.

Run it with ``python examples/search_of_jobs.py``. Each model is a logistic regression whose every
step is a graph over all chunks, and reports its loss on rows that are held out, so that models can
be compared. Jobs in the block of a search share what it gets: those with few reports come first,
then those with the lowest predicted final loss. The policy ``none`` leaves everything to Dask.
"""

from __future__ import annotations

from concurrent.futures import as_completed
from time import sleep, time

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import dask_slaq as slaq

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
ROWS, COLUMNS, CHUNKS, HELD_OUT, STEPS = 8_000, 8, 4, 2_000, 12
GRID = [{"rate": rate, "decay": decay} for decay in (0.1, 0.0) for rate in (0.1, 1.0, 4.0)]


def read(block: np.ndarray) -> np.ndarray:
    sleep(0.03)  # as from a disk
    return block


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
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.standard_normal(ROWS) > 0).astype(int)
    X, y = (
        da.from_array(X, (ROWS // CHUNKS, COLUMNS)).map_blocks(read),
        da.from_array(y, ROWS // CHUNKS),
    )
    for policy, way in (("none", "plain Dask"), ("first-to-target", "search")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="200ms"))
            begin = time()
            with slaq.search("grid", steps=STEPS) as search:
                futures = [
                    slaq.submit(fit, params, X, y, name=f"grid-{k}")
                    for k, params in enumerate(GRID)
                ]
                ends = {future: time() - begin for future in as_completed(futures)}
            params, loss, best = search.best()
            print(f"{way}: {params} (loss {loss:.3f}) after {ends[best]:.1f} s, ", end="")
            print(f"all {len(ends)} after {max(ends.values()):.1f} s")


if __name__ == "__main__":
    main()
