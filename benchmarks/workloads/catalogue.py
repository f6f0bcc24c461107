"""Catalogue of the algorithms in the paper's Table 1, each with an estimator and suitable data.

Each estimator trains with one task per partition and step, so its worker set may change at any
time. It reports its loss at the start and after every iteration. Where dask-ml implements an
algorithm, its estimator is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import dask.array as da

from benchmarks.workloads import synthetic

#: Rows in the sample that determines the bins of boosted trees; the same as in scikit-learn.
BINNED = 200_000


@dataclass(frozen=True)
class Workload:
    """An algorithm of the paper, with an estimator, ``"module:class"``, and data.

    `settings` are the estimator's parameters but `max_iter` and `random_state`. They suit the data,
    a kind of `benchmarks.workloads.synthetic`, and let training run all `max_iter` iterations.
    `size` is the relative number of rows at which the iterations of all workloads take very roughly
    the same time.
    """

    name: str
    kind: str
    source: str
    settings: dict[str, Any]
    size: float = 1.0

    def estimator(self, max_iter: int, random_state: int | None = 0) -> Any:
        """Create an unfitted estimator. The seed is ignored where nothing is random.

        Raises ImportError if the library that provides the estimator is not installed.
        """
        module, _, name = self.source.partition(":")
        model = getattr(import_module(module), name)(max_iter=max_iter, **self.settings)
        if "random_state" in model.get_params():
            model.set_params(random_state=random_state)
        return model

    def data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """Return X, and y for supervised learning. Persist the arrays before ``fit(*data)``."""
        return synthetic.make(self.kind, rows, partitions, seed)

    def sized_data(self, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
        """Return data of about ``size * rows`` rows in each partition, at least one."""
        return self.data(max(1, round(self.size * rows)) * partitions, partitions, seed)


_OURS = "benchmarks.workloads"
_ROWS = (
    Workload("k-means", "clusters", "dask_ml.cluster:KMeans",
             {"n_clusters": 24, "init": "random", "tol": 0.0}),
    Workload("logistic-regression", "classes", "dask_ml.linear_model:LogisticRegression",
             {"solver": "gradient_descent", "tol": 0.0}),
    Workload("linear-svm", "classes", f"{_OURS}.svm:LinearSVM",
             {"alpha": 1e-4, "step_size": 2.0}, size=4.0),
    Workload("polynomial-svm", "curved", f"{_OURS}.svm:PolynomialSVM",
             {"degree": 2, "n_components": 200, "alpha": 1e-5, "step_size": 4.0}, size=0.25),
    Workload("boosting-classifier", "curved", f"{_OURS}.boosting:GradientBoostingClassifier",
             {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED}, size=0.5),
    Workload("boosting-regressor", "steps", f"{_OURS}.boosting:GradientBoostingRegressor",
             {"learning_rate": 0.2, "max_depth": 3, "subsample": BINNED}, size=0.5),
    Workload("perceptron", "groups", f"{_OURS}.neural_network:MLPClassifier",
             {"hidden_layer_sizes": (16,), "alpha": 1.0}, size=0.5),
    Workload("lda", "documents", f"{_OURS}.lda:LatentDirichletAllocation",
             {"n_components": 10, "learning_method": "batch"}, size=0.01),
    Workload("lda-online", "documents", f"{_OURS}.lda:LatentDirichletAllocation",
             {"n_components": 10, "learning_method": "online"}, size=0.03),
    Workload("linear-regression", "amounts", "dask_ml.linear_model:LinearRegression",
             {"solver": "lbfgs", "C": 1e8, "tol": 0.0}),
)  # fmt: skip
#: Workloads by name, in the paper's order.
CATALOGUE = {row.name: row for row in _ROWS}
