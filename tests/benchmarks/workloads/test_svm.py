"""The SVMs agree with a NumPy loop, and with scikit-learn's optimum and kernels."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.svm import SVC

from benchmarks.workloads.elastic.partitions import Partitions
from benchmarks.workloads.svm import LinearSVM, PolynomialSVM

rng = np.random.default_rng(1)
X = rng.standard_normal((900, 6)) * np.geomspace(1, 0.2, 6)
signal = X @ rng.standard_normal(6) + 0.3 * rng.standard_normal(900)
y = np.where(signal > 0.2, 7, 3)
curved = np.where(X[:, 0] ** 2 + X[:, 0] * X[:, 1] > 0.7, 1, 0)


def split(labels, chunk=200):
    return da.from_array(X, chunks=(chunk, 6)), da.from_array(labels, chunks=chunk)


def objective(rows, sign, w, b, alpha):
    return np.maximum(0, 1 - sign * (rows @ w + b)).mean() + 0.5 * alpha * w @ w


def descend(rows, sign, alpha, step, iterations, intercept=True):
    """MLlib's loop, written down once more."""
    w, b, losses = np.zeros(rows.shape[1]), 0.0, []
    for t in range(1, iterations + 2):
        losses.append(objective(rows, sign, w, b, alpha))
        inside = sign * (rows @ w + b) < 1
        slope = -(rows[inside] * sign[inside, None]).sum(axis=0) / len(rows) + alpha * w
        if t <= iterations:
            b += step / np.sqrt(t) * sign[inside].sum() / len(rows) * intercept
            w = w - step / np.sqrt(t) * slope
    return w, b, losses


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("chunk", [900, 200, 37])
def test_the_loop_is_that_of_one_machine(chunk, intercept):
    model = LinearSVM(alpha=0.01, step_size=0.7, max_iter=30, tol=0, fit_intercept=intercept)
    model.fit(*split(y, chunk))
    w, b, losses = descend(X, np.where(y == 7, 1.0, -1.0), 0.01, 0.7, 30, intercept)
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-11)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-11)
    np.testing.assert_allclose(model.loss_curve_, losses, rtol=1e-12)


def test_it_ends_near_the_optimum_that_scikit_learn_finds():
    alpha, sign = 0.01, np.where(y == 7, 1.0, -1.0)
    model = LinearSVM(alpha=alpha, step_size=2.0, max_iter=400, tol=0).fit(X, y)
    sgd = SGDClassifier(alpha=alpha, max_iter=300, tol=None, average=True, random_state=0)
    sgd.fit(X, y)
    best = objective(X, sign, sgd.coef_[0], sgd.intercept_[0], alpha)
    assert model.loss_ == pytest.approx(best, rel=0.01)
    assert np.mean(model.predict(X) == sgd.predict(X)) > 0.98
    assert model.score(X, y) > 0.9


def test_it_stops_when_it_hardly_moves():
    model = LinearSVM(alpha=0.1, tol=0.02, max_iter=500).fit(*split(y))
    assert 1 < model.n_iter_ < 500 and len(model.loss_curve_) == model.n_iter_ + 1


def test_a_step_that_is_far_too_large_is_named():
    wild = LinearSVM(alpha=1.0, step_size=1e160, max_iter=50, tol=0)
    says = "after iteration 1: scale the features, or take smaller"
    with pytest.raises(ValueError, match=says), np.errstate(all="ignore"):
        wild.fit(X, y)


def test_more_classes_are_refused():
    with pytest.raises(ValueError, match=r"LinearSVM takes two classes; y has 3: \[0, 1, 2\]"):
        LinearSVM().fit(X, np.arange(900) % 3)


# Polynomial kernel


def test_the_same_on_one_machine():
    model = PolynomialSVM(
        degree=2, n_components=40, alpha=1e-3, max_iter=20, tol=0, random_state=3
    ).fit(*split(curved))
    features = model.feature_map_.transform(X)
    w, b, losses = descend(features, np.where(curved, 1.0, -1.0), 1e-3, 1.0, 20)
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-9)
    np.testing.assert_allclose(model.loss_curve_, losses, rtol=1e-10)
    whole = clone(model).fit(X, curved)
    np.testing.assert_allclose(whole.decision_function(X), features @ w + b, rtol=1e-6, atol=1e-9)


def test_its_features_are_those_of_the_kernel():
    """A quadratic kernel of six features has 28 dimensions, so that 60 rows span them."""
    model = PolynomialSVM(degree=2, gamma=0.5, coef0=2.0, n_components=60, max_iter=1)
    features = model.fit(X, curved).feature_map_.transform(X)
    kernel = polynomial_kernel(X, degree=2, gamma=0.5, coef0=2.0)
    np.testing.assert_allclose(features @ features.T, kernel, atol=1e-4)


def test_it_learns_what_a_plane_cannot_and_agrees_with_libsvm():
    data = split(curved)
    plane = LinearSVM(max_iter=100, tol=0).fit(*data)
    curve = PolynomialSVM(degree=2, max_iter=300, step_size=20.0, tol=0, random_state=0).fit(*data)
    exact = SVC(kernel="poly", degree=2, gamma=1 / 6, coef0=1.0, C=1 / (1e-4 * 900))
    exact.fit(X, curved)
    assert plane.score(X, curved) < 0.85
    assert curve.score(X, curved) > 0.95
    assert np.mean(curve.predict(X) == exact.predict(X)) > 0.95


def test_a_kernel_that_overflows_is_named():
    says = "the kernel is too large, scale the features"
    with pytest.raises(ValueError, match=says), np.errstate(all="ignore"):
        PolynomialSVM().fit(X * 1e200, y)


def test_the_sample_depends_on_the_seed_and_not_on_how_rows_are_split():
    def basis(chunk, seed):
        model = PolynomialSVM(n_components=25, max_iter=1, random_state=seed)
        return model.fit(*split(curved, chunk)).feature_map_.components_

    np.testing.assert_array_equal(basis(200, 0), basis(37, 0))
    assert not np.array_equal(basis(200, 0), basis(200, 1))


def test_a_sample_has_no_row_twice_and_at_most_all():
    parts = Partitions(split(y, 100)[0])
    for size in (1, 40, 900, 2000):
        taken = parts.sample([100] * 9, size, np.random.RandomState(0))
        assert len(np.unique(taken, axis=0)) == min(size, 900)
        assert {tuple(row) for row in taken} <= {tuple(row) for row in X}


def test_partitions_are_transformed_once():
    seen.clear()
    with dask.config.set(scheduler="sync"):
        parts = Partitions(da.from_array(X, chunks=(300, 6))).transform(_note)
        for _ in range(3):
            parts.sum(_total)
    assert len(seen) == 3


seen = []


def _note(x):
    seen.append(len(x))
    return x


def _total(x):
    return (x.sum(),)
