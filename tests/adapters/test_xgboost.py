"""xgboost.dask reports every round from the worker, through an xgboost callback."""

import pickle
import sys

import cloudpickle
import numpy as np
import pytest
from adapters.libraries import reported

from dask_slaq.adapters.observing.worker_reports import Address
from dask_slaq.adapters.xgboost import callback

dask_xgboost = pytest.importorskip("xgboost.dask")
SETTINGS = {"objective": "binary:logistic", "max_depth": 2, "seed": 0}


@pytest.fixture
def matrix(client, rows):
    parts = client.persist([rows.chunked("x"), rows.chunked("logistic")])
    return dask_xgboost.DaskDMatrix(client, *parts)


def train(client, matrix, rounds=4, settings=SETTINGS, **more):
    return dask_xgboost.train(client, settings, matrix, num_boost_round=rounds, **more)


def observed(*args, **kwargs):
    with reported() as losses:
        return train(*args, **kwargs), losses


def raw(result):
    return bytes(result["booster"].save_raw())


def test_every_round_reports_the_training_loss_and_nothing_else_changes(client, matrix):
    result, losses = observed(client, matrix)
    plain = train(client, matrix)
    known = train(client, matrix, evals=[(matrix, "train")])

    assert losses == known["history"]["train"]["logloss"]
    assert len(losses) == 4 and all(type(loss) is float for loss in losses)
    assert np.all(np.diff(losses) < 0)
    assert raw(result) == raw(plain)
    assert result["history"] == plain["history"] == {}


def test_of_several_evaluations_the_training_data_is_reported(client, matrix, rows):
    other = dask_xgboost.DaskDMatrix(
        client, rows.chunked("x")[::2].persist(), rows.chunked("logistic")[::2].persist()
    )
    evals = [(other, "other"), (matrix, "train")]
    result, losses = observed(client, matrix, evals=evals)
    assert losses == result["history"]["train"]["logloss"]
    result, losses = observed(client, matrix, evals=evals[:1])
    assert losses == result["history"]["other"]["logloss"]
    assert list(result["history"]) == ["other"]


@pytest.mark.parametrize(
    "metrics, expected",
    [(["auc", "error"], lambda log: log["error"]), (["auc"], lambda log: 1 - np.array(log["auc"]))],
)
def test_less_is_better(client, matrix, metrics, expected):
    settings = {**SETTINGS, "eval_metric": metrics}
    result, losses = observed(client, matrix, settings=settings, evals=[(matrix, "train")])
    np.testing.assert_allclose(losses, expected(result["history"]["train"]))


def test_callbacks_of_the_user_see_what_they_saw_without_us(client, matrix):
    from xgboost.callback import EarlyStopping

    with pytest.raises(ValueError, match="at least 1 validation dataset"):
        observed(client, matrix, callbacks=[EarlyStopping(rounds=1)])
    _, losses = observed(client, matrix)  # and the cluster is none the worse
    assert len(losses) == 4


def test_a_metric_of_the_user_is_not_called_on_other_data(client, matrix):
    def never(predictions, data):
        raise AssertionError

    result, losses = observed(client, matrix, custom_metric=never)
    assert losses == []
    assert raw(result) == raw(train(client, matrix))


def test_a_worker_without_the_package_trains_unobserved(monkeypatch):
    sent = cloudpickle.dumps(callback(Address("inbox", "topic", b"secret"), None))
    assert type(pickle.loads(sent)).__name__ == "Report"
    monkeypatch.setitem(sys.modules, "dask_slaq.adapters.xgboost", None)
    left = pickle.loads(sent)
    assert left.after_iteration(None, 0, {}) is False
