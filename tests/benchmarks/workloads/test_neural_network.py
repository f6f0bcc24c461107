"""The perceptron's gradient is correct, and it trains as scikit-learn's does on one machine."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn import neural_network

from benchmarks.workloads.elastic.partitions import Partitions
from benchmarks.workloads.neural_network import MLPClassifier, _Objective, _start

rng = np.random.default_rng(2)
X = rng.standard_normal((400, 4))
y = np.digitize(X[:, 0] * X[:, 1] + 0.5 * X[:, 2], [-0.4, 0.4]) * 10
data = da.from_array(X, chunks=(90, 4)), da.from_array(y, chunks=90)


@pytest.mark.parametrize("hidden", [(3,), (4, 3)])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_gradient_is_that_of_the_loss(hidden, alpha):
    sizes = (4, *hidden, 3)
    objective = _Objective(Partitions(*data), 400, sizes, np.array([0, 10, 20]), alpha)
    theta = _start(sizes, np.random.RandomState(0)) + 0.3
    error = check_grad(lambda at: objective(at)[0], lambda at: objective(at)[1], theta)
    assert error < 1e-6 * max(1.0, np.linalg.norm(objective(theta)[1]))


def reference(**settings):
    model = neural_network.MLPClassifier(solver="lbfgs", activation="logistic", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped before it converged
        return model.fit(X, y)


@pytest.mark.parametrize("hidden", [(5,), (6, 4)])
def test_it_trains_as_scikit_learn_does(hidden):
    settings = {"alpha": 0.1, "max_iter": 25, "random_state": 0}
    model = MLPClassifier(hidden, tol=0, **settings).fit(*data)
    other = reference(hidden_layer_sizes=hidden, tol=0, **settings)
    assert model.loss_ == pytest.approx(other.loss_, rel=1e-6)
    for mine, theirs in zip(model.coefs_, other.coefs_, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)


def test_it_reaches_the_same_minimum():
    settings = {"alpha": 40.0, "max_iter": 300, "tol": 1e-5, "random_state": 0}
    model = MLPClassifier((8,), **settings).fit(*data)
    assert model.n_iter_ < 300
    assert model.loss_ == pytest.approx(reference(hidden_layer_sizes=(8,), **settings).loss_, 1e-5)


def test_accepted_iterations_are_counted_not_evaluations():
    model = MLPClassifier(6, alpha=0.01, max_iter=40, tol=0, random_state=1).fit(*data)
    assert model.n_iter_ == 40 and len(model.loss_curve_) == 41
    assert (np.diff(model.loss_curve_) < 0).all()
    assert model.score(*data) > 0.8


def test_probabilities_sum_to_one():
    model = MLPClassifier(3, max_iter=3).fit(X, y)
    chances = model.predict_proba(data[0]).compute()
    assert chances.shape == (400, 3) and (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_two_classes_have_two_outputs():
    model = MLPClassifier((5,), max_iter=60, random_state=0).fit(X, X[:, 0] * X[:, 1] > 0)
    assert model.coefs_[-1].shape == (5, 2)
    assert model.score(X, X[:, 0] * X[:, 1] > 0) > 0.9
