"""Hyperparameter searches report their best score."""

import numpy as np
import pytest
from adapters.libraries import reported
from dask_ml.model_selection import (
    HyperbandSearchCV,
    IncrementalSearchCV,
    InverseDecaySearchCV,
    SuccessiveHalvingSearchCV,
)
from driving import inside
from sklearn.linear_model import SGDClassifier

import dask_slaq as slaq
from dask_slaq.adapters import repairs
from dask_slaq.adapters.dask_ml import SearchObserver
from dask_slaq.adapters.observing.session import opened

pytestmark = [pytest.mark.usefixtures("client"), pytest.mark.filterwarnings("ignore")]

SEARCHES = [
    (IncrementalSearchCV, {"n_initial_parameters": 4}),
    (InverseDecaySearchCV, {"n_initial_parameters": 4}),
    (SuccessiveHalvingSearchCV, {"n_initial_parameters": 4, "n_initial_iter": 1}),
    (HyperbandSearchCV, {}),
]


@pytest.mark.parametrize(
    ("kind", "settings"), SEARCHES, ids=[kind.__name__ for kind, _ in SEARCHES]
)
def test_a_search_reports_its_best_score_a_round(rows, kind, settings):
    def search():
        model = SGDClassifier(loss="log_loss", random_state=0, tol=1e-3)
        found = kind(
            model, {"alpha": np.logspace(-4, 3, 20)}, max_iter=6, random_state=0, **settings
        )
        return found.fit(rows.chunked("x"), rows.chunked("logistic"), classes=[0.0, 1.0])

    with reported() as losses:
        observed = search()
    rounds = {(h.get("bracket"), h["partial_fit_calls"]) for h in observed.history_}
    assert 0 < len(losses) <= len(rounds)
    assert np.all(np.diff(losses) <= 0)
    assert -losses[-1] == max(h["score"] for h in observed.history_)
    n = len(losses)
    with repairs.while_open():
        plain = search()
    assert len(losses) == n
    if kind is not HyperbandSearchCV:  # whose brackets race
        assert plain.best_params_ == observed.best_params_


def test_a_search_is_one_job(client, rows):
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))
    plugin = client.cluster.scheduler.plugins["slaq"]
    model = SGDClassifier(loss="log_loss", random_state=0, tol=1e-3)
    grid = {"alpha": np.logspace(-4, 3, 20)}
    with slaq.job("other"), slaq.job("search") as job:
        HyperbandSearchCV(model, grid, max_iter=4, random_state=0).fit(
            rows.chunked("x"), rows.chunked("logistic"), classes=[0.0, 1.0]
        )
        assert set(slaq.status(client)["jobs"]) == {"other", "search"}
        assert job.iteration > 0
    trained = {b.job for b in inside(plugin).bindings if "_fit" in str(b.key)}
    assert trained == {"search"}


def test_a_search_may_outlive_its_block():
    info = {0: [{"score": 0.5}], 1: [{"score": float("nan")}]}
    losses = []
    with opened(losses.append) as block:
        watch = SearchObserver({"dask": None}, {"additional_calls": lambda info: {0: 1}}, block)
        assert watch.additional_calls(info) == {0: 1}
    assert losses == [-0.5]
    info[0].append({"score": 0.75})
    assert watch.additional_calls(info) == {0: 1}
