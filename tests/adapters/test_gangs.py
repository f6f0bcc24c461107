"""Jobs whose library pins one long task to each worker run alongside an elastic job."""

import threading

import dask.array as da
import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import poll_for
from driving import PATIENCE

import dask_slaq as slaq
from dask_slaq.client.queries import bindings

xgboost_dask = pytest.importorskip("xgboost.dask")
lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(policy="max-total", epoch="100ms"))


@pytest.fixture
def elastic(client):
    """A job with more tasks than threads in every iteration, for as long as a test runs."""
    stop = threading.Event()
    iterations = []

    def run():
        with slaq.job("elastic", client=client) as job:
            while not stop.is_set():
                client.gather(client.map(spin, range(6), pure=False))
                iterations.append(1 / (1 + len(iterations)))
                job.report(iterations[-1])

    thread = threading.Thread(target=run)
    thread.start()
    yield iterations
    stop.set()
    thread.join()


def spin(i: int) -> float:
    return float(np.linalg.norm(np.linalg.qr(np.random.default_rng(i).random((150, 150)))[0]))


def boost_by_xgboost(client, x, y):
    matrix = xgboost_dask.DaskDMatrix(client, x, y)
    xgboost_dask.train(client, {"max_depth": 3}, matrix, num_boost_round=5)


def boost_by_lightgbm(client, x, y):
    lightgbm.DaskLGBMRegressor(n_estimators=5, num_leaves=4, verbose=-1).fit(x, y)


def state_of(client, name):
    return slaq.status(client)["jobs"][name]


def all_reports_come(client, name, count):
    """Wait for them: when training ends the last ones may be on their way."""
    poll_for(lambda: state_of(client, name)["iteration"] == count, PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("train, tasks", [(boost_by_xgboost, "fn"), (boost_by_lightgbm, "_train")])
def test_a_gang_beside_an_elastic_job(client, elastic, train, tasks):
    random = np.random.default_rng(0)
    x = random.normal(size=(800, 4))
    data = [da.from_array(a, chunks=(100, *a.shape[1:])) for a in (x, x[:, 0] + x[:, 1] ** 2)]
    if train is boost_by_xgboost:  # LightGBM 4.7 cannot take persisted data with dask 2025.1.0
        data = client.persist(data)
        wait(data)
    for run in range(2):
        name = f"{train.__name__}-{run}"
        with slaq.job(name, client=client):
            train(client, *data)
            all_reports_come(client, name, 5)
            assert state_of(client, name)["attained"] > 0  # its pinned tasks are charged to it
        reasons = {
            b["reason"] for b in bindings(client) if b["job"] == name and b["key"].startswith(tasks)
        }
        assert reasons and "passed" not in reasons  # its tasks are sent together
    assert len(elastic) > 1
    assert slaq.status(client)["failed"] is None
