"""The algorithms of the paper's Table 1: an unfitted estimator of each, and data of its shape.

Each trains with one task a partition and step, so that its worker set may change at any time, and
reports the loss of its start and of every iteration. dask-ml's own are used where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import dask.array as da

from dask_slaq.workloads import synthetic
from dask_slaq.workloads.elastic import check_integer

__all__ = ["CATALOGUE", "Workload"]

#: Rows whose quantiles end the bins of boosted trees: as many as scikit-learn takes.
BINNED = 200_000


@dataclass(frozen=True)
class Workload:
    """One row.

    Attributes
    ----------
    name : str
    algorithm : str
        In words, as the paper has it.
    loss : str
        What is reported.
    kind : str
        Of its data, see `dask_slaq.workloads.synthetic.make`.
    source : str
        Module and class of the estimator, imported when one is wanted.
    settings : dict
        Its parameters but for `max_iter` and `random_state`, so chosen for this data that it
        runs as many iterations as it is asked for.
    size : float
        Rows with which an iteration takes very roughly as long as those of the others, in relation
        to theirs: for whoever trains several beside each other.
    """

    name: str
    algorithm: str
    loss: str
    kind: str
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    size: float = 1.0

    def estimator(self, max_iter: int, random_state: int | None = 0) -> Any:
        """An unfitted estimator.

        Parameters
        ----------
        max_iter : int
            Iterations.
        random_state : int, optional
            Passed on if the algorithm draws anything.

        Raises
        ------
        ValueError
        ImportError
            The library that has the estimator is not installed.
        """
        check_integer("max_iter", max_iter)
        module, _, name = self.source.partition(":")
        model = getattr(import_module(module), name)(max_iter=max_iter, **self.settings)
        if "random_state" in model.get_params():
            model.set_params(random_state=random_state)
        return model

    def data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """X, and y if it is supervised: lazy arrays, for ``fit(*data)``; persist them first.

        Parameters
        ----------
        rows, partitions, seed : int
            See `dask_slaq.workloads.synthetic.make`.
        """
        return synthetic.make(self.kind, rows, partitions, seed)

    def sized_data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """The same with `size` times as many `rows`, here of one partition, at least 1."""
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
        "dask_slaq.workloads.svm:LinearSVM",
        {"alpha": 1e-4, "step_size": 2.0, "tol": 0.0},
        size=4.0,
    ),
    Workload(
        "polynomial-svm",
        "SVM with polynomial kernel (gradient descent)",
        "mean hinge loss and penalty",
        "curved",
        "dask_slaq.workloads.svm:PolynomialSVM",
        {"degree": 2, "n_components": 200, "alpha": 1e-5, "step_size": 4.0, "tol": 0.0},
        size=0.25,
    ),
    Workload(
        "boosting-classifier",
        "gradient-boosted trees, classification",
        "mean log loss",
        "curved",
        "dask_slaq.workloads.boosting:GradientBoostingClassifier",
        {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED},
        size=0.5,
    ),
    Workload(
        "boosting-regressor",
        "gradient-boosted trees, regression",
        "mean squared error",
        "steps",
        "dask_slaq.workloads.boosting:GradientBoostingRegressor",
        {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED},
        size=0.5,
    ),
    Workload(
        "perceptron",
        "multi-layer perceptron (L-BFGS)",
        "mean cross-entropy and penalty",
        "groups",
        "dask_slaq.workloads.neural_network:MLPClassifier",
        {"hidden_layer_sizes": (16,), "alpha": 1.0, "tol": 0.0},
        size=0.5,
    ),
    Workload(
        "lda",
        "latent Dirichlet allocation (variational EM)",
        "minus the variational bound per word",
        "documents",
        "dask_slaq.workloads.lda:LatentDirichletAllocation",
        {"n_components": 10, "learning_method": "batch"},
        size=0.01,
    ),
    Workload(
        "lda-online",
        "latent Dirichlet allocation (online variational)",
        "minus the variational bound per word, of the partitions of an iteration",
        "documents",
        "dask_slaq.workloads.lda:LatentDirichletAllocation",
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
#: The workloads by name, in the paper's order.
CATALOGUE = {row.name: row for row in _ROWS}
