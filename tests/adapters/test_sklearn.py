"""scikit-learn's estimators with callbacks report each iteration of their fits."""

import sys

import numpy as np
import pytest
from adapters.libraries import reported
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

from dask_slaq.adapters.sklearn import SlaqReport

pytest.importorskip("sklearn.callback")


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 4))
    return x, np.array(["no", "yes"])[(x[:, 0] + random.normal(size=120) > 0).astype(int)]


def test_each_iteration_reports_the_log_loss(data, search):
    model = LogisticRegression().set_callbacks(SlaqReport()).fit(*data)
    assert len(search.only) == model.n_iter_[0] > 3
    assert search.only == sorted(search.only, reverse=True)
    assert search.only[-1] == pytest.approx(log_loss(data[1], model.predict_proba(data[0])))
    plain = LogisticRegression().fit(*data)
    np.testing.assert_array_equal(model.coef_, plain.coef_)


def test_weights_count(data, search):
    weights = np.linspace(0, 1, 120)
    model = LogisticRegression().set_callbacks(SlaqReport()).fit(*data, sample_weight=weights)
    expected = log_loss(data[1], model.predict_proba(data[0]), sample_weight=weights)
    assert search.only[-1] == pytest.approx(expected)


def test_of_many_rows_some_are_scored(search):
    random = np.random.default_rng(0)
    x = random.normal(size=(2_500, 3))
    y = (x[:, 0] + random.normal(size=2_500) > 0).astype(int)
    model = LogisticRegression().set_callbacks(SlaqReport()).fit(x, y)
    assert search.only[-1] == pytest.approx(log_loss(y[::3], model.predict_proba(x[::3])))


def test_a_score_that_fails_costs_one_warning(data, search):
    def fails(estimator, x, y):
        raise ValueError("no such rows")

    with pytest.warns(RuntimeWarning, match="was not computed: ValueError: no such rows") as said:
        LogisticRegression().set_callbacks(SlaqReport(fails)).fit(*data)
    assert len(said) == 1 and search.losses == {}


def test_a_score_of_ones_own(data, search):
    def held_out(estimator, x, y):
        return estimator.score(data[0][100:], data[1][100:])

    model = (
        LogisticRegression().set_callbacks(SlaqReport(held_out)).fit(data[0][:100], data[1][:100])
    )
    assert search.only[-1] == -model.score(data[0][100:], data[1][100:])
    search.losses.clear()
    LogisticRegression().set_callbacks(SlaqReport("accuracy")).fit(*data)
    assert -1 <= search.only[-1] < -0.5


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_an_end_keeps_the_model_so_far(data, search):
    search.ends_after = 2
    model = LogisticRegression().set_callbacks(SlaqReport()).fit(*data)
    assert len(search.only) == model.n_iter_[0] == 2
    assert model.score(*data) > 0.5


def test_the_end_of_one_fit_leaves_the_others(data, search):
    search.ends_after = 2
    model = LogisticRegression().set_callbacks(SlaqReport())
    with pytest.warns(UserWarning, match="lbfgs"):
        found = GridSearchCV(model, {"C": [0.01, 1]}, cv=3, error_score="raise").fit(*data)
    assert [len(losses) for losses in search.losses.values()] == [2] * 7
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_computes_nothing_where_nobody_listens(data, monkeypatch):
    monkeypatch.setattr("dask_slaq.worker.in_trial", lambda: False)

    def never(estimator, x, y):
        raise AssertionError

    LogisticRegression().set_callbacks(SlaqReport(never)).fit(*data)


def test_reports_go_to_an_open_block_first(data, search):
    with reported() as losses:
        LogisticRegression().set_callbacks(SlaqReport()).fit(*data)
    assert len(losses) > 3 and search.losses == {}


def test_says_what_older_releases_lack(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    with pytest.raises(
        ImportError, match=r"no callbacks before 1.9: .* slaq.report .* partial_fit"
    ):
        SlaqReport()
