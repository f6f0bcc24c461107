"""Training jobs of the demo: their estimators, data and arrival times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dask_slaq.demo import ITERATIONS
from dask_slaq.demo.data import CLUSTERS

#: Mean time between arrivals, in seconds.
SPACING = 3.0
#: Mixes of jobs: estimators of dask-ml, or the nine algorithms of the paper's Table 1 (see
#: `dask_slaq.workloads.catalogue`).
MIXES = ("dask-ml", "nine")


@dataclass(frozen=True)
class Training:
    """Training job.

    Attributes
    ----------
    name : str
        Unique name.
    kind : str
        Jobs of one kind differ only in their arguments.
    data : str
        Name of the data set.
    arrival : float
        Seconds after the start of the run.
    estimator : callable
        Function without arguments that returns the unfitted estimator.
    """

    name: str
    kind: str
    data: str
    arrival: float
    estimator: Callable[[], Any]


def _logistic(**kwargs: Any) -> Any:
    from dask_ml.linear_model import LogisticRegression

    return LogisticRegression(tol=0, **kwargs)


def _linear(**kwargs: Any) -> Any:
    from dask_ml.linear_model import LinearRegression

    return LinearRegression(tol=0, **kwargs)


def _poisson(**kwargs: Any) -> Any:
    from dask_ml.linear_model import PoissonRegression

    return PoissonRegression(tol=0, **kwargs)


def _kmeans(**kwargs: Any) -> Any:
    from dask_ml.cluster import KMeans

    return KMeans(init="random", tol=0, **kwargs)


#: Name, data set, maker and arguments. With ``tol=0`` every job trains for all its iterations, as
#: people often do while they explore a model.
_KINDS: tuple[tuple[str, str, Callable[..., Any], dict[str, Any]], ...] = (
    ("logistic-lbfgs", "classes", _logistic, {"solver": "lbfgs"}),
    ("kmeans", "clusters", _kmeans, {"n_clusters": CLUSTERS}),
    ("poisson-lbfgs", "counts", _poisson, {"solver": "lbfgs"}),
    ("logistic-l1", "classes", _logistic, {"solver": "proximal_grad", "penalty": "l1"}),
    ("linear-lbfgs", "amounts", _linear, {"solver": "lbfgs"}),
    ("kmeans-half", "clusters", _kmeans, {"n_clusters": CLUSTERS // 2}),
    ("linear-gd", "amounts", _linear, {"solver": "gradient_descent"}),
    ("poisson-l1", "counts", _poisson, {"solver": "proximal_grad", "penalty": "l1"}),
)


def plan(
    n_jobs: int, seed: int, *, iterations: int = ITERATIONS, mix: str = "dask-ml"
) -> list[Training]:
    """Return the jobs of one run in order of arrival. The result depends only on the arguments.

    Parameters
    ----------
    n_jobs, seed : int
    iterations : int
        Iterations per job.
    mix : str
        One of `MIXES`.
    """
    rng = np.random.default_rng(seed)
    gaps = SPACING * rng.uniform(0.5, 1.5, n_jobs)
    arrivals = np.cumsum(gaps) - gaps[0]
    make = _training if mix == "dask-ml" else _of_the_nine
    return [make(number, float(at), iterations, rng) for number, at in enumerate(arrivals)]


def _of_the_nine(
    number: int, arrival: float, iterations: int, rng: np.random.Generator
) -> Training:
    from dask_slaq.workloads.catalogue import CATALOGUE

    workload = list(CATALOGUE.values())[number % len(CATALOGUE)]
    again = number // len(CATALOGUE)
    return Training(
        name=f"{workload.name}-{again + 1}" if again else workload.name,
        kind=workload.name,
        data=workload.name,
        arrival=arrival,
        estimator=partial(workload.estimator, iterations, int(rng.integers(2**31))),
    )


def _training(number: int, arrival: float, iterations: int, rng: np.random.Generator) -> Training:
    kind, data, make, arguments = _KINDS[number % len(_KINDS)]
    arguments = {**arguments, "max_iter": iterations}
    if "solver" in arguments:
        arguments["C"] = float(10.0 ** rng.uniform(-1, 1))
    else:
        arguments["random_state"] = int(rng.integers(2**31))
    again = number // len(_KINDS)
    return Training(
        name=f"{kind}-{again + 1}" if again else kind,
        kind=kind,
        data=data,
        arrival=arrival,
        estimator=partial(make, **arguments),
    )
