"""Fits of the workloads say what they are, and a stop leaves the model so far."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

import dask_slaq as slaq
from benchmarks.workloads.boosting import GradientBoostingRegressor
from benchmarks.workloads.lda import LatentDirichletAllocation
from benchmarks.workloads.neural_network import MLPClassifier
from benchmarks.workloads.svm import LinearSVM
from dask_slaq.adapters import observe_fits

rng = np.random.default_rng(0)
X = da.from_array(rng.standard_normal((400, 4)), chunks=(200, 4))
COUNTS = da.from_array(rng.poisson(1.0, (80, 12)).astype(float), chunks=(20, 12))


@pytest.mark.parametrize(
    "model, data, predict",
    [
        (LinearSVM(max_iter=50, tol=0.0), (X, X[:, 0] > 0), "predict"),
        (MLPClassifier((4,), max_iter=50, tol=0.0, random_state=0), (X, X[:, 0] > 0), "predict"),
        (GradientBoostingRegressor(50), (X, X[:, 0]), "predict"),
        (LatentDirichletAllocation(3, max_iter=50, random_state=0), (COUNTS,), "transform"),
    ],
)
@pytest.mark.parametrize("reports", [1, 3])
def test_a_stop_leaves_the_model_so_far(model, data, predict, reports):
    losses = []

    def report(loss):
        losses.append(loss)
        if len(losses) >= reports:
            raise slaq.StopTraining("enough")

    with slaq.instrument(report), dask.config.set(scheduler="sync"):
        model.fit(*data)
        with pytest.raises(slaq.StopTraining):  # nothing begins after a stop
            clone(model).fit(*data)
    assert model.loss_curve_ == losses
    assert len(losses) == max(reports, 2)  # at least one iteration
    assert model.n_iter_ == len(losses) - 1
    assert len(getattr(model, predict)(data[0]).compute()) == len(data[0])


def test_a_fit_tells_its_kind():
    kinds = []
    with observe_fits(lambda loss: None, describe=kinds.append):
        LinearSVM(max_iter=2).fit(X, X[:, 0] > 0)
    (kind,) = kinds
    assert kind["name"].startswith("dask_slaq/LinearSVM")
    assert (kind["rows"], kind["chunks"]) == (400, 2)
