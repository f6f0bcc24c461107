"""Searches report their best score, and their models are jobs under the weight of the search."""

from __future__ import annotations

import logging

import dask
import numpy as np
import pytest
from dask_ml.model_selection import (
    HyperbandSearchCV,
    IncrementalSearchCV,
    InverseDecaySearchCV,
    SuccessiveHalvingSearchCV,
)
from driving import until
from sklearn.linear_model import SGDClassifier

import dask_slaq as slaq
from dask_slaq.adapters import instrument
from dask_slaq.adapters.blocks import opened
from dask_slaq.adapters.searches import Models, Search

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

    losses = []
    with instrument(losses.append):
        observed = search()
    rounds = {(h.get("bracket"), h["partial_fit_calls"]) for h in observed.history_}
    assert 0 < len(losses) <= len(rounds)
    assert np.all(np.diff(losses) <= 0)
    assert -losses[-1] == max(h["score"] for h in observed.history_)
    n = len(losses)
    search()
    assert len(losses) == n
    if kind is not HyperbandSearchCV:  # whose brackets race
        again = search()
        assert again.best_params_ == observed.best_params_


@pytest.fixture
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))
    return client.cluster.scheduler.plugins["slaq"]


@pytest.fixture
def seen(plugin):
    """The status of all jobs, whenever it was remembered."""
    return plugin.jobs.epochs


def search(rows, kind=IncrementalSearchCV, **settings):
    model = SGDClassifier(loss="log_loss", random_state=0, tol=1e-3)
    grid = {"alpha": np.logspace(-4, 3, 20)}
    settings = {"max_iter": 2 if kind is IncrementalSearchCV else 4, "random_state": 0, **settings}
    if kind is not HyperbandSearchCV:
        settings.setdefault("n_initial_parameters", 4)
    fitted = kind(model, grid, **settings)
    return fitted.fit(rows.chunked("x"), rows.chunked("logistic"), classes=[0.0, 1.0])


def scores(search):
    """The history of each model, without times."""
    kept = ("params", "partial_fit_calls", "score")
    return {
        model: [[meta[name] for name in kept] for meta in history]
        for model, history in search.model_history_.items()
    }


def trained_by(plugin):
    """The jobs whose tasks trained or scored models."""
    return {b.job for b in plugin.pools.bindings if "_fit" in str(b.key) or "_score" in str(b.key)}


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "dask_slaq.adapters.searches"]


@pytest.mark.parametrize("kind", [IncrementalSearchCV, HyperbandSearchCV])
def test_every_model_is_a_job_until_it_is_trained_no_more(client, plugin, seen, rows, kind):
    with slaq.job("other"), slaq.job("search", weight=2.0):
        found = search(rows, kind)
        client.sync(until, lambda: not plugin.jobs.divisions)
        assert set(slaq.status(client)["jobs"]) == {"other", "search"}
    models = {f"search/{model}" for model in found.model_history_}
    assert set().union(*(epoch["jobs"] for epoch in seen)) == {"other", "search", *models}
    for epoch in seen:
        parts = [job for name, job in epoch["jobs"].items() if name in models]
        for what in ("weight", "share") if parts else ():
            whole = epoch["jobs"]["search"][what]
            assert sum(part[what] for part in parts) == pytest.approx(whole)
            assert max(part[what] for part in parts) == min(part[what] for part in parts)
    assert trained_by(plugin) == models
    plain = search(rows, kind)
    assert plain.best_params_ == found.best_params_
    assert scores(plain) == scores(found)


def test_models_report_their_scores_until_they_end(client, seen, rows):
    with slaq.job("other"), slaq.job("search"):
        found = search(rows, SuccessiveHalvingSearchCV, n_initial_iter=1, aggressiveness=2)
        alive = [sum("/" in name for name in epoch["jobs"]) for epoch in seen]
    lasts = {}
    for epoch in seen:
        lasts.update({name: job for name, job in epoch["jobs"].items() if "/" in name})
    assert len(lasts) == 4
    for model, history in found.model_history_.items():
        assert lasts[f"search/{model}"]["iteration"] == len(history)
        assert lasts[f"search/{model}"]["loss"] == -history[-1]["score"]
    ends = [n for n in alive if n]
    assert sorted(set(ends), reverse=True) == [4, 2, 1]  # the best half each time
    assert ends == sorted(ends, reverse=True)


def test_a_divided_job_alone_is_not_held(plugin, rows):
    with slaq.job("search"):
        search(rows)
    assert {b.reason for b in plugin.pools.bindings if b.job.startswith("search")} == {"passed"}


def test_a_search_can_stay_one_job(plugin, seen, rows):
    with (
        dask.config.set({"slaq.search-models": False}),
        slaq.job("other"),
        slaq.job("search"),
    ):
        search(rows)
    assert trained_by(plugin) == {"search"}
    assert set().union(*(epoch["jobs"] for epoch in seen)) == {"other", "search"}


def test_in_doubt_a_search_is_one_job(plugin, rows, caplog):
    with slaq.job("search/2"), slaq.job("search") as job, caplog.at_level(logging.WARNING):
        search(rows)
        assert job.iteration > 0
        assert set(plugin.jobs.names()) == {"search/2", "search"}
    assert ["'search/2' is running" in text for text in warnings_of(caplog)] == [True]
    assert trained_by(plugin) == {"search"}


def test_what_goes_wrong_on_the_way_ends_the_jobs_of_the_models(
    client, plugin, rows, caplog, monkeypatch
):
    from dask_slaq.adapters.searches import Models

    monkeypatch.setattr(Models, "scored", lambda self, info: 1 / 0)
    with slaq.job("other"), slaq.job("search") as job, caplog.at_level(logging.WARNING):
        search(rows)
        assert job.iteration > 0
        client.sync(until, lambda: set(plugin.jobs.names()) == {"other", "search"})
    assert ["jobs no longer" in text for text in warnings_of(caplog)] == [True]
    assert "search" in trained_by(plugin)


def test_a_search_that_fails_leaves_no_jobs(client, plugin, seen, rows):
    with slaq.job("other"), slaq.job("search"):
        with pytest.raises(ValueError, match=r"n_classes|classes"):
            IncrementalSearchCV(SGDClassifier(), {"alpha": [1e-4, 1e-3]}).fit(
                rows.chunked("x"), rows.chunked("logistic"), classes=[5.0, 6.0]
            )
        client.sync(until, lambda: set(plugin.jobs.names()) == {"other", "search"})
    assert any("search/0" in epoch["jobs"] for epoch in seen)


def test_a_search_that_outlives_its_block_has_no_jobs_any_more():
    class Parts:
        names = ("search/0", "search/1")

        def __init__(self):
            self.told = []

        def report(self, name, loss):
            self.told.append((name, loss))

        def end(self, names):
            self.told.append(names)

    parts, info = Parts(), {0: [{"score": 0.5}], 1: [{"score": 0.25}]}
    with opened(lambda loss: None) as block:
        watch = Search({"dask": dask}, {"additional_calls": lambda info: {0: 1}}, block)
        watch.models = Models(parts)
        assert watch.additional_calls(info) == {0: 1}
    assert parts.told == [("search/0", -0.5), ("search/1", -0.25), ["search/1"]]
    info[0].append({"score": 0.75})
    assert watch.additional_calls(info) == {0: 1}
    assert len(parts.told) == 3
