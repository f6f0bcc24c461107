"""Fixtures: a small cluster in this process, and data generated from a seed."""

import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_slaq.adapters.observing import session
from dask_slaq.core.errors import StopTraining


@pytest.fixture
def in_this_thread() -> Iterator[None]:
    """Compute here: the numbers are those of a cluster, which takes many times as long."""
    with dask.config.set(scheduler="synchronous"):
        yield


class Search:
    """Stands in for the search of the running task: keeps what trials report, and ends them."""

    def __init__(self) -> None:
        self.losses: dict[Hashable, list[float]] = {}
        self.steps: dict[Hashable, list[int | None]] = {}
        self.params: dict[Hashable, dict[str, Any]] = {}
        self.ends_after: float = math.inf
        self.end: type[StopTraining] = StopTraining

    def report_trial(
        self,
        loss: float,
        *,
        step: int | None = None,
        trial: Hashable = None,
        params: Callable[[], dict[str, Any]] | None = None,
    ) -> bool:
        losses = self.losses.setdefault(trial, [])
        if params is not None:
            self.params[trial] = params()
        losses.append(loss)
        self.steps.setdefault(trial, []).append(step)
        if len(losses) >= self.ends_after:
            raise self.end("end")
        return True

    @property
    def only(self) -> list[float]:
        """Losses of the only trial."""
        (losses,) = self.losses.values()
        return losses


@pytest.fixture
def search(monkeypatch) -> Search:
    search = Search()
    monkeypatch.setattr("dask_slaq.worker.in_trial", lambda: True)
    monkeypatch.setattr("dask_slaq.worker.report_trial", search.report_trial)
    monkeypatch.setattr(session, "_warned", set())
    return search


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


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes for what trains in one task."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 4))
    return x, (x[:, 0] + random.normal(size=200) > 0).astype(int)


@pytest.fixture
def optuna() -> Iterator[Any]:
    """The library, without its log."""
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield optuna
    optuna.logging.set_verbosity(before)
