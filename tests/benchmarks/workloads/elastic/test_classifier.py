"""Elastic classifiers pass scikit-learn's checks, predict lazily, and refuse bad data."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.workloads.neural_network import MLPClassifier
from benchmarks.workloads.svm import LinearSVM, PolynomialSVM
from dask_slaq import instrument

rng = np.random.default_rng(0)
X = rng.standard_normal((600, 5))
y = np.where(X[:, 0] * X[:, 1] + X[:, 2] > 0, "yes", "no")
dX, dy = da.from_array(X, chunks=(150, 5)), da.from_array(y, chunks=150)

MODELS = [
    LinearSVM(max_iter=5),
    PolynomialSVM(n_components=10, max_iter=5, random_state=0),
    MLPClassifier(4, max_iter=5, random_state=0),
]
each = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


@parametrize_with_checks(
    [
        LinearSVM(max_iter=30),
        PolynomialSVM(n_components=20, max_iter=30),
        MLPClassifier(6, max_iter=30),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@each
def test_prediction_for_a_dask_array_is_lazy_and_the_same(model):
    model = clone(model).fit(dX, dy)
    columns = da.from_array(X, chunks=(100, 2))
    for method in ("predict", "predict_proba", "decision_function"):
        if not hasattr(model, method):
            continue
        now = getattr(model, method)(X)
        for lazy in (getattr(model, method)(dX), getattr(model, method)(columns)):
            assert isinstance(lazy, da.Array)
            assert lazy.shape == now.shape and lazy.dtype == now.dtype
            np.testing.assert_allclose(lazy.compute(), now) if now.dtype == float else (
                np.testing.assert_array_equal(lazy.compute(), now)
            )


@each
def test_a_later_fit_does_not_change_what_was_predicted(model):
    model = clone(model).fit(dX, dy)
    before, lazy = model.predict(X), model.predict(dX)
    model.fit(dX, dy[::-1].rechunk(150))
    np.testing.assert_array_equal(lazy.compute(), before)


@each
def test_empty_blocks_can_be_predicted(model):
    model = clone(model).fit(dX, dy)
    chosen = dX[dX[:, 0] > 2.3]
    expected = model.predict(X[X[:, 0] > 2.3])
    np.testing.assert_array_equal(model.predict(chosen).compute(), expected)


@each
def test_score_is_the_share_of_hits_wherever_the_rows_are(model):
    model = clone(model).fit(dX, dy)
    share = np.mean(model.predict(X) == y)
    weight = np.arange(600.0)
    weighted = np.average(model.predict(X) == y, weights=weight)
    for rows, labels in ((X, y), (dX, dy), (X, pd.Series(y))):
        assert model.score(rows, labels) == pytest.approx(share)
        assert model.score(rows, labels, weight) == pytest.approx(weighted)


@each
def test_the_start_and_every_iteration_are_reported(model):
    reports = []
    with instrument(reports.append):
        model = clone(model).fit(dX, dy)
    assert reports == model.loss_curve_ and reports[-1] == model.loss_
    assert len(reports) == model.n_iter_ + 1 == 6
    assert list(model.classes_) == ["no", "yes"] and model.n_features_in_ == 5


@each
def test_sparse_blocks_give_what_dense_ones_do(model):
    thin = np.where(abs(X) > 1, X, 0.0)
    blocks = da.from_array(thin, chunks=(150, 5))
    sparse = blocks.map_blocks(scipy.sparse.csr_matrix)
    one, other = clone(model).fit(blocks, dy), clone(model).fit(sparse, dy)
    np.testing.assert_allclose(other.loss_curve_, one.loss_curve_, rtol=1e-9)
    np.testing.assert_array_equal(other.predict(sparse).compute(), one.predict(thin))
    np.testing.assert_array_equal(other.predict(scipy.sparse.csr_array(thin)), one.predict(thin))


def with_value(value):
    bad = X.copy()
    bad[310, 2] = value
    return da.from_array(bad, chunks=(150, 5))


REFUSED = [
    (with_value(np.nan), dy, r"partition 2 of 4 .* not finite: array 1, row 10"),
    (da.from_array(X, chunks=((300, 0, 300), 5)), dy[:0].rechunk(1), "partitions"),
    (da.from_array(X, chunks=((300, 0, 300), 5)), da.from_array(y, chunks=((300, 0, 300),)),
     "partition 1 of 3 is empty"),
    (dX, da.full(600, "yes", chunks=150), "one class only"),
    (dX, dy[:450], "X has 4 partitions and array 2 has 3"),
    (dX, y, "X has 4 partitions and array 2 has 1"),
    (dX, None, "y must have 1 dimension, one class a row, not 0"),
    (dX, dy[:, None], "y must have 1 dimension, one class a row, not 2"),
    (dX[:, 0], dy, "X must have 2 dimensions, rows and columns, not 1"),
    (dX, dX[:, 0], "Unknown label type: continuous"),
    (dX.astype(object), dy, "partition 0 of 4 has X of dtype object; real numbers are allowed"),
]  # fmt: skip


@each
@pytest.mark.parametrize(("rows", "labels", "says"), REFUSED, ids=[says for *_, says in REFUSED])
def test_data_that_are_no_use_are_refused(model, rows, labels, says):
    with pytest.raises(ValueError, match=says):
        clone(model).fit(rows, labels)


@each
def test_other_columns_are_refused(model):
    model = clone(model).fit(dX, dy)
    for rows in (X[:, :4], dX[:, :4]):
        with pytest.raises(ValueError, match=r"X has 4 features, but \w+ is expecting 5 features"):
            model.predict(rows)


WRONG = [
    ("alpha", -1, "a finite number >= 0, not -1"),
    ("alpha", "1", "a finite number >= 0, not '1'"),
    ("tol", np.nan, "a finite number >= 0, not nan"),
    ("max_iter", 0, "an integer >= 1, not 0"),
    ("max_iter", 2.5, "an integer >= 1, not 2.5"),
    ("step_size", 0, "a finite number > 0, not 0"),
    ("step_size", True, "a finite number > 0, not True"),
    ("degree", 0, "an integer >= 1, not 0"),
    ("gamma", 0.0, "a finite number > 0, not 0.0"),
    ("coef0", -1.0, "a finite number >= 0, not -1.0"),
    ("n_components", 1.0, "an integer >= 1, not 1.0"),
    ("hidden_layer_sizes", (), r"one integer or more, not \(\)"),
    ("hidden_layer_sizes", "10", "one integer or more, not '10'"),
    ("hidden_layer_sizes", (4, 0), "an integer >= 1, not 0"),
]


@pytest.mark.parametrize(
    ("model", "name", "value", "says"),
    [(model, *wrong) for wrong in WRONG for model in MODELS if wrong[0] in model.get_params()],
)
def test_parameters_that_are_not_allowed_are_named(model, name, value, says):
    with pytest.raises(ValueError, match=f"{name} must be {says}"):
        clone(model).set_params(**{name: value}).fit(dX, dy)
