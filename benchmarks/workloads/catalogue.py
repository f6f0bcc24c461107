"""Catalogue of the algorithms in the paper's Table 1, each with an estimator and suitable data.

Each estimator trains with one task per partition and step, so its worker set may change at any
time. It reports its loss at the start and after every iteration. Where dask-ml implements an
algorithm, its estimator is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import dask.array as da

from benchmarks.workloads import synthetic
from benchmarks.workloads.elastic import check_integer

__all__ = ["CATALOGUE", "Workload"]

#: Rows in the sample that determines the bins of boosted trees; the same as in scikit-learn.
BINNED = 200_000


@dataclass(frozen=True)
class Workload:
    """An algorithm of the catalogue, with its estimator and its data.

    Attributes
    ----------
    name : str
        Key in `CATALOGUE`.
    algorithm : str
        Name of the algorithm, in the paper's words.
    loss : str
        Description of the reported loss.
    kind : str
        Kind of data, see `benchmarks.workloads.synthetic.make`.
    source : str
        Estimator as ``"module:class"``. The module is imported when an estimator is created.
    settings : dict
        Parameters of the estimator, except `max_iter` and `random_state`. They suit the data and
        let training run all `max_iter` iterations.
    size : float
        Relative number of rows at which the iterations of all workloads take very roughly the same
        time, for training several workloads alongside each other.
    """

    name: str
    algorithm: str
    loss: str
    kind: str
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    size: float = 1.0

    def estimator(self, max_iter: int, random_state: int | None = 0) -> Any:
        """Create an unfitted estimator.

        Parameters
        ----------
        max_iter : int
            Number of iterations, >= 1.
        random_state : int, optional
            Seed. It is ignored if the estimator has no `random_state`.

        Raises
        ------
        ValueError
            If `max_iter` is not a positive integer.
        ImportError
            If the library that provides the estimator is not installed.
        """
        check_integer("max_iter", max_iter)
        module, _, name = self.source.partition(":")
        model = getattr(import_module(module), name)(max_iter=max_iter, **self.settings)
        if "random_state" in model.get_params():
            model.set_params(random_state=random_state)
        return model

    def data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """Return the data for ``fit(*data)``. Persist the arrays before fitting.

        Parameters
        ----------
        rows, partitions, seed : int
            See `benchmarks.workloads.synthetic.make`.

        Returns
        -------
        tuple of dask.array.Array
            X, and for supervised learning y.
        """
        return synthetic.make(self.kind, rows, partitions, seed)

    def sized_data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """Return data scaled by `size`, with equal partitions. See `data`.

        Parameters
        ----------
        rows : int
            Rows per partition before scaling. Each partition has at least one row.
        partitions, seed : int
            See `benchmarks.workloads.synthetic.make`.
        """
        return self.data(max(1, round(self.size * rows)) * partitions, partitions, seed)


_ROWS = (
    Workload(
        "k-means",
        "K-Means (Lloyd)",
        "sum of squared distances to the centers",
        "clusters",
        "dask_ml.cluster:KMeans",
        {"n_clusters": 24, "init": "random", "tol": 0.0},
    ),
    Workload(
        "logistic-regression",
        "logistic regression (gradient descent)",
        "negative log-likelihood, summed",
        "classes",
        "dask_ml.linear_model:LogisticRegression",
        {"solver": "gradient_descent", "tol": 0.0},
    ),
    Workload(
        "linear-svm",
        "linear SVM (gradient descent)",
        "mean hinge loss and penalty",
        "classes",
        "benchmarks.workloads.svm:LinearSVM",
        {"alpha": 1e-4, "step_size": 2.0, "tol": 0.0},
        size=4.0,
    ),
    Workload(
        "polynomial-svm",
        "SVM with polynomial kernel (gradient descent)",
        "mean hinge loss and penalty",
        "curved",
        "benchmarks.workloads.svm:PolynomialSVM",
        {"degree": 2, "n_components": 200, "alpha": 1e-5, "step_size": 4.0, "tol": 0.0},
        size=0.25,
    ),
    Workload(
        "boosting-classifier",
        "gradient-boosted trees, classification",
        "mean log loss",
        "curved",
        "benchmarks.workloads.boosting:GradientBoostingClassifier",
        {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED},
        size=0.5,
    ),
    Workload(
        "boosting-regressor",
        "gradient-boosted trees, regression",
        "mean squared error",
        "steps",
        "benchmarks.workloads.boosting:GradientBoostingRegressor",
        {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED},
        size=0.5,
    ),
    Workload(
        "perceptron",
        "multi-layer perceptron (L-BFGS)",
        "mean cross-entropy and penalty",
        "groups",
        "benchmarks.workloads.neural_network:MLPClassifier",
        {"hidden_layer_sizes": (16,), "alpha": 1.0, "tol": 0.0},
        size=0.5,
    ),
    Workload(
        "lda",
        "latent Dirichlet allocation (variational EM)",
        "minus the variational bound per word",
        "documents",
        "benchmarks.workloads.lda:LatentDirichletAllocation",
        {"n_components": 10, "learning_method": "batch"},
        size=0.01,
    ),
    Workload(
        "lda-online",
        "latent Dirichlet allocation (online variational)",
        "minus the variational bound per word, of the partitions of an iteration",
        "documents",
        "benchmarks.workloads.lda:LatentDirichletAllocation",
        {"n_components": 10, "learning_method": "online"},
        size=0.03,
    ),
    Workload(
        "linear-regression",
        "linear regression (L-BFGS)",
        "half the squared error, summed, and penalty",
        "amounts",
        "dask_ml.linear_model:LinearRegression",
        {"solver": "lbfgs", "C": 1e8, "tol": 0.0},
    ),
)
#: Workloads by name, in the paper's order.
CATALOGUE = {row.name: row for row in _ROWS}
