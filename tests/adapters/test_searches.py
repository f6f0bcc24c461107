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
def weights(plugin):
    """What all jobs weigh, whenever that changed."""
    seen, weigh = [], plugin.jobs._weigh

    def look(job):
        weigh(job)
        seen.append({name: job.weight for name, job in plugin.engine.jobs.items()})

    plugin.jobs._weigh = look
    return seen


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
def test_every_model_is_a_job_until_it_is_trained_no_more(client, plugin, weights, rows, kind):
    with slaq.job("other"), slaq.job("search", weight=2.0):
        found = search(rows, kind)
        assert set(slaq.status(client)["jobs"]) == {"other", "search"}
        client.sync(until, lambda: plugin.engine.jobs["search"].weight == 2.0)
    models = {f"search/{model}" for model in found.model_history_}
    assert set().union(*weights) == {"other", "search", *models}
    for now in weights:
        assert sum(now.values()) == pytest.approx(3.0)
        of_models = [weight for name, weight in now.items() if name in models]
        assert max(of_models, default=0) == min(of_models, default=0)
    assert trained_by(plugin) == models
    assert not plugin.jobs.divisions.parts("search")
    plain = search(rows, kind)
    assert plain.best_params_ == found.best_params_
    assert scores(plain) == scores(found)


def test_models_report_their_scores_and_weigh_what_the_search_does(client, plugin, weights, rows):
    with slaq.job("other"), slaq.job("search"):
        found = search(rows, SuccessiveHalvingSearchCV, n_initial_iter=1, aggressiveness=2)
    lasts = {}
    for epoch in plugin.jobs.epochs:
        lasts.update({name: job for name, job in epoch["jobs"].items() if "/" in name})
    assert len(lasts) == 4
    for model, history in found.model_history_.items():
        assert lasts[f"search/{model}"]["iteration"] == len(history)
        assert lasts[f"search/{model}"]["loss"] == -history[-1]["score"]
    assert [len(now) for now in weights] == [6, 6, 4, 3, 2]  # the best half each time
    # Nearly all of the weight is the search's own before its models work, and theirs then.
    assert weights[0]["search"] == pytest.approx(0.99)
    assert [now["search"] for now in weights[1:-1]] == pytest.approx([0.01] * 3)


def test_a_divided_job_alone_is_not_held(plugin, rows):
    with slaq.job("search"):
        search(rows)
    assert {b.reason for b in plugin.pools.bindings if b.job.startswith("search")} == {"passed"}


@pytest.mark.parametrize("why", ["switched off", "a cap", "a floor"])
def test_a_search_can_stay_one_job(plugin, weights, rows, why):
    limits = {"a cap": {"max_share": 1}, "a floor": {"min_share": 1}}.get(why, {})
    with (
        dask.config.set({"slaq.search-models": why != "switched off"}),
        slaq.job("other"),
        slaq.job("search", **limits),
    ):
        search(rows)
    assert trained_by(plugin) == {"search"}
    assert not weights


def test_in_doubt_a_search_is_one_job(plugin, weights, rows, caplog):
    with slaq.job("search/2"), slaq.job("search") as job, caplog.at_level(logging.WARNING):
        search(rows)
        assert job.iteration > 0
        assert set(plugin.engine.jobs) == {"search/2", "search"}
    assert ["'search/2' is running" in text for text in warnings_of(caplog)] == [True]
    assert trained_by(plugin) == {"search"}
    assert not weights


def test_what_goes_wrong_on_the_way_ends_the_jobs_of_the_models(plugin, rows, caplog, monkeypatch):
    from dask_slaq.adapters.searches import Models

    monkeypatch.setattr(Models, "scored", lambda self, info: 1 / 0)
    with slaq.job("other"), slaq.job("search") as job, caplog.at_level(logging.WARNING):
        search(rows)
        assert job.iteration > 0
        assert set(plugin.engine.jobs) == {"other", "search"}
    assert ["jobs no longer" in text for text in warnings_of(caplog)] == [True]
    assert "search" in trained_by(plugin)


def test_a_search_that_fails_leaves_no_jobs(client, plugin, weights, rows):
    with slaq.job("other"), slaq.job("search"):
        with pytest.raises(ValueError, match=r"n_classes|classes"):
            IncrementalSearchCV(SGDClassifier(), {"alpha": [1e-4, 1e-3]}).fit(
                rows.chunked("x"), rows.chunked("logistic"), classes=[5.0, 6.0]
            )
        client.sync(until, lambda: set(plugin.engine.jobs) == {"other", "search"})
    assert any("search/0" in now for now in weights)


def test_a_search_that_outlives_its_block_has_no_jobs_any_more():
    class Parts:
        names = ("search/0", "search/1")

        def __init__(self):
            self.told = []

        def report(self, name, loss):
            self.told.append((name, loss))

        def work(self, end=()):
            self.told.append(end)

    parts, info = Parts(), {0: [{"score": 0.5}], 1: [{"score": 0.25}]}
    with opened(lambda loss: None) as block:
        watch = Search({"dask": dask}, {"additional_calls": lambda info: {0: 1}}, block)
        watch.models = Models(parts)
        assert watch.additional_calls(info) == {0: 1}
    assert parts.told == [("search/0", -0.5), ("search/1", -0.25), ["search/1"]]
    info[0].append({"score": 0.75})
    assert watch.additional_calls(info) == {0: 1}
    assert len(parts.told) == 3
