"""Boosting gives scikit-learn's trees from any partitions, and bad data and settings are named."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

import dask_slaq as slaq
from benchmarks.workloads.boosting import GradientBoostingClassifier, GradientBoostingRegressor
from benchmarks.workloads.hist_boosting import rounds
from benchmarks.workloads.hist_boosting.histograms import bins_of, thresholds_of

rng = np.random.default_rng(0)
# Few distinct values, as scikit-learn's releases differ in how they take quantiles.
X = rng.standard_normal((2000, 5)).round(1)
SIGNAL = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.standard_normal(2000)
TARGETS = {
    "number": SIGNAL,
    "two": np.where(SIGNAL > 0, "yes", "no"),
    "three": np.digitize(SIGNAL, [-0.5, 0.5]),
}
SETTINGS = {"max_iter": 8, "max_depth": 3, "random_state": 0}
SPLIT = da.from_array(X, chunks=(450, 5))


def estimator(kind):
    return GradientBoostingRegressor if kind == "number" else GradientBoostingClassifier


def fitted(kind, X=SPLIT, chunk=450, **settings):
    y = da.from_array(TARGETS[kind], chunks=chunk)
    return estimator(kind)(**{**SETTINGS, **settings}).fit(X, y)


def reference(kind, **settings):
    number = kind == "number"
    model = HistGradientBoostingRegressor if number else HistGradientBoostingClassifier
    plain = {"max_leaf_nodes": None, "early_stopping": False}
    # One thread: its own wait for each other, and long, where cores are busy.
    with threadpool_limits(1, user_api="openmp"):
        return model(**{**SETTINGS, **plain, **settings}).fit(X, TARGETS[kind])


def raw(model):
    return getattr(model, "decision_function", model.predict)(X)


@pytest.mark.parametrize("kind", ["number", "two"])
@pytest.mark.parametrize(
    "settings", [{}, {"max_depth": 5, "l2_regularization": 3.0, "min_samples_leaf": 40}]
)
def test_the_trees_are_scikit_learns(kind, settings):
    """Its gradients are of single precision; beyond that there is no difference."""
    ours, theirs = fitted(kind, **settings), reference(kind, **settings)
    np.testing.assert_allclose(raw(ours), raw(theirs), atol=1e-5)
    assert ours.score(SPLIT, TARGETS[kind]) == pytest.approx(theirs.score(X, TARGETS[kind]))


def test_three_classes_lose_what_scikit_learn_loses():
    """With more trees a tie may fall differently in single precision, so the loss is compared."""
    ours, theirs = fitted("three"), reference("three")
    p = theirs.predict_proba(X)[np.arange(len(X)), TARGETS["three"]]
    assert ours.loss_curve_[-1] == pytest.approx(-np.log(p).mean(), rel=1e-3)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99


def test_quantiles_make_bins_of_equal_size():
    column = rng.standard_normal((5000, 1))
    thresholds = thresholds_of(column, 10)
    assert thresholds.shape == (1, 9)
    assert set(np.bincount(bins_of(column, thresholds)[:, 0])) == {500}


def test_a_sample_of_rows_suffices_for_bins():
    sampled, whole = fitted("number", subsample=500, max_bins=20), fitted("number", max_bins=20)
    assert not np.array_equal(sampled.trees_["threshold"], whole.trees_["threshold"])
    assert sampled.loss_curve_[-1] == pytest.approx(whole.loss_curve_[-1], rel=0.1)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("subsample", [20_000, 300])
def test_partitions_do_not_matter(kind, subsample):
    many = fitted(kind, SPLIT.rechunk((90, 5)), 90, subsample=subsample)
    one = fitted(kind, X, -1, subsample=subsample)
    for field in ("feature", "bin", "threshold"):
        assert np.array_equal(many.trees_[field], one.trees_[field]), field
    np.testing.assert_allclose(many.trees_["value"], one.trees_["value"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", TARGETS)
def test_one_report_for_the_start_and_for_each_iteration(kind):
    reports = []
    with slaq.instrument(reports.append):
        model = fitted(kind)
    assert reports == model.loss_curve_ and len(reports) == 8 + 1
    assert all(np.diff(reports) < 0)
    y = TARGETS[kind]
    if kind == "number":
        first, last = y.var(), ((y - model.predict(X)) ** 2).mean()
    else:
        codes = np.searchsorted(model.classes_, y)
        shares = np.bincount(codes) / len(y)
        first = -(shares * np.log(shares)).sum()
        last = -np.log(model.predict_proba(X)[np.arange(len(X)), codes]).mean()
    assert reports[0] == pytest.approx(first) and reports[-1] == pytest.approx(last)


def test_scores_from_the_start_are_the_scores_step_by_step(monkeypatch):
    monkeypatch.setattr(rounds, "FRESH", 3)
    often = fitted("two")
    monkeypatch.setattr(rounds, "FRESH", 1000)
    never = fitted("two")
    assert often.loss_curve_ == never.loss_curve_ and np.array_equal(often.trees_, never.trees_)


@pytest.mark.parametrize("kind", TARGETS)
def test_prediction_is_lazy(kind):
    model = fitted(kind)
    lazy = model.predict(SPLIT.rechunk((450, 2)))
    assert dask.is_dask_collection(lazy) and lazy.chunks == ((450,) * 4 + (200,),)
    assert lazy.dtype == np.asarray(model.predict(X)).dtype
    assert np.array_equal(lazy.compute(), model.predict(X))
    if kind != "number":
        p = model.predict_proba(SPLIT).compute()
        assert p.shape == (2000, len(model.classes_))
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_sparse_blocks_are_as_dense():
    sparse = SPLIT.map_blocks(sp.csr_matrix)
    model, dense = fitted("number", sparse), fitted("number")
    assert np.array_equal(model.trees_, dense.trees_)
    assert np.array_equal(model.predict(sparse).compute(), dense.predict(X))
    whole = GradientBoostingRegressor(**SETTINGS).fit(sp.csr_matrix(X), SIGNAL)
    assert np.array_equal(whole.trees_["feature"], dense.trees_["feature"])


@pytest.mark.parametrize("kind", ["number", "two"])
def test_it_is_an_estimator_of_scikit_learn(kind):
    model = fitted(kind, max_bins=30)
    copy = clone(model)
    assert copy.get_params() == model.get_params() and not hasattr(copy, "trees_")


def test_a_feature_that_says_nothing_is_left_alone():
    constant = np.column_stack([np.ones(500), X[:500, 0]])
    model = GradientBoostingRegressor(max_iter=2).fit(constant, X[:500, 0])
    assert set(np.unique(model.trees_["feature"])) == {-1, 1}
    nothing = GradientBoostingRegressor(max_iter=2).fit(constant[:, :1], X[:500, 0])
    assert nothing.loss_curve_ == [nothing.loss_curve_[0]] * 3


def spoiled():
    bad = X.copy()
    bad[900, 1] = np.nan
    return da.from_array(bad, chunks=(450, 5))


@pytest.mark.parametrize(
    ("data", "target", "words"),
    [
        (spoiled(), SIGNAL, "partition 2 of 5 has a value that is not finite: array 1, row 0"),
        (SPLIT, np.where(SIGNAL > 2, np.inf, SIGNAL), "not finite: array 2"),
        (SPLIT, SIGNAL[:, None], "y must have 1 dimension, not 2"),
        (X[:, 0], SIGNAL, "X must have 2 dimensions, not 1"),
        (SPLIT, SIGNAL[:1800], "they must be split alike"),
        (SPLIT[:1999], SIGNAL, "arrays of different lengths"),
    ],
)
def test_bad_data_is_named(data, target, words):
    if isinstance(data, da.Array):
        target = da.from_array(target, chunks=450)
    with pytest.raises(ValueError, match=words):
        GradientBoostingRegressor(**SETTINGS).fit(data, target)


def test_labels_must_be_labels():
    with pytest.raises(ValueError, match="one class only"):
        GradientBoostingClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="continuous"):
        GradientBoostingClassifier().fit(X, SIGNAL)


def test_an_empty_partition_is_named():
    rows = ((1000, 0, 1000),)
    y = da.from_array(SIGNAL, chunks=rows)
    with pytest.raises(ValueError, match="partition 1 of 3 is empty"):
        GradientBoostingRegressor().fit(da.from_array(X, chunks=(*rows, 5)), y)


def test_prediction_refuses_other_data():
    model = fitted("number")
    with pytest.raises(ValueError, match="4 columns, the model was fitted with 5"):
        model.predict(SPLIT[:, 1:])
    with pytest.raises(ValueError, match="not finite"):
        model.predict(spoiled()).compute()


@pytest.mark.parametrize(
    "setting",
    [
        {"max_iter": 0},
        {"max_depth": 13},
        {"max_bins": 256},
        {"min_samples_leaf": 0.5},
        {"learning_rate": 0},
        {"l2_regularization": -1},
        {"subsample": 0},
    ],
)
def test_a_bad_setting_is_named(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        GradientBoostingRegressor(**setting).fit(X, SIGNAL)
