"""Fixtures: a small cluster in this process, and data generated from a seed."""

from __future__ import annotations

from collections.abc import Iterator

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


class Rows:
    """Rows for every estimator: not centred, of unequal scale, in two chunks.

    Arrays are not persisted: dask 2025.1.0 cannot fit KMeans on an array that is persisted as is.
    """

    def __init__(self, n: int = 400, p: int = 4, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.x = random.normal(size=(n, p)) * np.arange(1, p + 1) / p + 1
        z = (self.x - 1) @ np.linspace(1, -1, p)
        self.logistic = (random.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(float)
        self.normal = z + random.normal(size=n)
        self.poisson = random.poisson(np.exp(z / 2)).astype(float)

    def chunked(self, name: str, chunks: int = 2) -> da.Array:
        array = getattr(self, name)
        return da.from_array(array, chunks=(len(array) // chunks, *array.shape[1:]))


@pytest.fixture
def rows() -> Rows:
    return Rows()
