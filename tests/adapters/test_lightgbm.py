"""LightGBM's Dask estimators report every round from the worker, through a LightGBM callback."""

import pickle
import sys

import cloudpickle
import dask
import numpy as np
import pytest
from adapters.libraries import reported

from dask_slaq.adapters.lightgbm import Report
from dask_slaq.adapters.observing.worker_reports import Address

lightgbm = pytest.importorskip("lightgbm")
SETTINGS = {"n_estimators": 4, "num_leaves": 4, "verbose": -1, "deterministic": True}


@pytest.fixture
def data(client, rows):
    """Not persisted: LightGBM 4.7 cannot take that with dask 2025.1.0."""
    return [rows.chunked("x"), rows.chunked("normal")]


def fit(data, *, settings=SETTINGS, **more):
    return lightgbm.DaskLGBMRegressor(**settings).fit(*data, **more)


def observed(data, **more):
    with reported() as losses:
        return fit(data, **more), losses


def trees(model):
    return model.booster_.dump_model()["tree_info"]


@pytest.fixture
def one_worker(client):
    """LightGBM's result depends on which rows are where, and that on chance."""
    with dask.annotate(workers=[next(iter(client.scheduler_info()["workers"]))]):
        yield


def test_every_round_reports_the_training_loss_and_nothing_else_changes(one_worker, data, rows):
    model, losses = observed(data)
    plain = fit(data)
    known = fit(data, eval_set=[data])

    assert losses == pytest.approx(known.evals_result_["valid_0"]["l2"])
    assert len(losses) == 4 and all(type(loss) is float for loss in losses)
    error = rows.normal - model.predict(data[0]).compute()
    assert losses[-1] == pytest.approx((error**2).mean())
    assert trees(model) == trees(plain)
    assert model.evals_result_ == plain.evals_result_ == {}


def test_of_two_workers_one_reports(data):
    original = lightgbm.dask._train
    _, losses = observed(data)
    assert len(losses) == 4
    assert np.all(np.diff(losses) < 0)
    assert lightgbm.dask._train is original


def test_evaluations_of_the_user_are_what_is_reported(one_worker, client, data, rows):
    other = [rows.chunked("x")[::2], rows.chunked("normal")[::2]]
    model, losses = observed(data, eval_set=[other])
    assert losses == list(model.evals_result_["valid_0"]["l2"])


def test_callbacks_of_the_user_run_too(data):
    with_early_stopping = {"eval_set": [data], "callbacks": [lightgbm.early_stopping(50)]}
    model, losses = observed(data, **with_early_stopping)
    assert len(losses) == 4
    assert model.best_iteration_ == 4


def test_without_a_metric_nothing_is_reported(data):
    model, losses = observed(data, settings={**SETTINGS, "metric": "None"})
    assert losses == []
    assert len(trees(model)) == 4


def test_a_worker_without_the_package_trains_unobserved(monkeypatch):
    sent = cloudpickle.dumps(Report(Address("inbox", "topic", b"secret")))
    assert pickle.loads(sent).route == Address("inbox", "topic", b"secret")
    monkeypatch.setitem(sys.modules, "dask_slaq.adapters.lightgbm", None)
    assert pickle.loads(sent)(None) is None
