"""Steps of scikit-learn's pipelines are stages of the job in which they are fitted."""

import dask.array as da
import numpy as np
import pytest

import dask_slaq as slaq

pytest.importorskip("dask_ml.linear_model")
from dask_ml.linear_model import LogisticRegression
from dask_ml.preprocessing import MinMaxScaler, StandardScaler
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline


class Failing(BaseEstimator):
    def fit(self, X, y=None):
        X.sum().compute()
        raise ZeroDivisionError


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))


@pytest.fixture(scope="module")
def data(client):
    X = np.random.default_rng(0).normal(size=(400, 4))
    y = (X[:, 0] > 0).astype(int)
    return da.from_array(X, chunks=(100, 4)), da.from_array(y, chunks=100)


def stages_of(client, name):
    return client.cluster.scheduler.plugins["slaq"].pools.pools[name].stages


def train():
    return LogisticRegression(solver="gradient_descent", max_iter=3)


def test_steps_are_stages_and_report(client, data):
    plain = Pipeline([("scale", StandardScaler()), ("range", MinMaxScaler()), ("train", train())])
    with slaq.job("pipe", client=client) as job:
        fitted = plain.fit(*data)
        entered = {name: stage.entered for name, stage in stages_of(client, "pipe").named.items()}
        assert entered == {"": 1, "scale": 1, "range": 1, "train": 1}
        assert stages_of(client, "pipe").current.name == "train"
        assert job.iteration > 1
        assert fitted.predict(data[0]).compute().shape == (400,)
        assert stages_of(client, "pipe").named["train"].ended > 0
    assert np.isfinite(fitted[-1].coef_).all()


def test_nested_pipelines_and_passed_steps(client, data):
    inner = Pipeline([("scale", StandardScaler()), ("range", MinMaxScaler())])
    outer = Pipeline([("prepare", inner), ("nothing", "passthrough"), ("train", train())])
    with slaq.job("pipe", client=client):
        outer.fit(*data)
        assert set(stages_of(client, "pipe").named) == {"", "scale", "range", "train"}


def test_a_step_that_fails_leaves_its_stage(client, data):
    with slaq.job("pipe", client=client):
        with pytest.raises(ZeroDivisionError):
            Pipeline([("scale", StandardScaler()), ("fails", Failing())]).fit(*data)
        assert stages_of(client, "pipe").current.name == "fails"
        data[0].sum().compute()
        assert stages_of(client, "pipe").current.name == ""


def test_outside_of_jobs_nothing_changes(client, data):
    from sklearn import pipeline

    before = pipeline._print_elapsed_time, Pipeline._log_message
    with slaq.job("pipe", client=client):
        assert pipeline._print_elapsed_time is not before[0]
    assert (pipeline._print_elapsed_time, Pipeline._log_message) == before
    with slaq.instrument(lambda loss: None):
        Pipeline([("scale", StandardScaler())]).fit(*data)
