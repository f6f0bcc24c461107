"""Jobs whose library pins one long task to each worker: what they annotate, and how they run."""

import threading
from collections import defaultdict

import dask.array as da
import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import poll_for
from driving import PATIENCE, hook

import dask_slaq as slaq
from dask_slaq.adapters import instrument
from dask_slaq.client.queries import bindings

xgboost_dask = pytest.importorskip("xgboost.dask")
lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture
def pinned(client):
    """The annotations of all tasks pinned to a worker, by prefix."""
    seen = defaultdict(dict)

    def look(scheduler, *, tasks, **kwargs):
        for ts in map(scheduler.tasks.get, tasks):
            if ts.worker_restrictions:
                seen[ts.prefix.name][ts.key] = dict(ts.annotations)

    hook(client.cluster.scheduler, "update_graph", look)
    yield seen
    client.cluster.scheduler.remove_plugin("update_graph")


def train_xgboost(client, x, y, rounds=2, **params):
    matrix = xgboost_dask.DaskDMatrix(client, x, y)
    xgboost_dask.train(client, {"max_depth": 2, **params}, matrix, num_boost_round=rounds)


def train_lightgbm(client, x, y, rounds=2):
    settings = {"n_estimators": rounds, "num_leaves": 4, "verbose": -1, "client": client}
    lightgbm.DaskLGBMRegressor(**settings).fit(x, y)


@pytest.fixture
def data(rows):
    return rows.chunked("x"), rows.chunked("normal")


def gangs(notes):
    """Number of tasks of each gang, which is what each of its tasks says it is."""
    found = defaultdict(list)
    for note in notes.values():
        found[note["slaq_gang"]].append(note["slaq_gang_size"])
    for sizes in found.values():
        assert sizes == [len(sizes)] * len(sizes)
    return sorted(len(sizes) for sizes in found.values())


@pytest.mark.parametrize("train, prefix", [(train_xgboost, "fn"), (train_lightgbm, "train_part")])
def test_runs_of_several_threads_are_different_gangs(client, data, pinned, train, prefix):
    def run():
        with instrument(lambda loss: None):
            train(client, *data)

    for _ in range(2):  # LightGBM's runs hang if they start at once, in any order
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(pinned[prefix]) == sum(gangs(pinned[prefix]))
    assert len(gangs(pinned[prefix])) == 2
    others = [note for name in pinned if name != prefix for note in pinned[name].values()]
    assert not any("slaq_gang" in note for note in others)


def test_threads_are_told_if_the_user_chose_them(client, data, pinned):
    with instrument(lambda loss: None):
        train_xgboost(client, *data, nthread=1)
        train_xgboost(client, *data)
    threads = [note.get("slaq_threads") for note in pinned["fn"].values()]
    assert set(threads) == {1, None}


def test_without_a_block_nothing_is_annotated(client, data, pinned):
    train_lightgbm(client, *data)
    assert pinned["train_part"]
    assert not any("slaq_gang" in note for note in pinned["train_part"].values())


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


def state_of(client, name):
    return slaq.status(client)["jobs"][name]


def all_reports_come(client, name, count):
    """Wait for them: when training ends the last ones may be on their way."""
    poll_for(lambda: state_of(client, name)["iteration"] == count, PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("train, tasks", [(train_xgboost, "fn"), (train_lightgbm, "_train")])
def test_a_gang_beside_an_elastic_job(client, elastic, train, tasks):
    random = np.random.default_rng(0)
    x = random.normal(size=(800, 4))
    data = [da.from_array(a, chunks=(100, *a.shape[1:])) for a in (x, x[:, 0] + x[:, 1] ** 2)]
    if train is train_xgboost:  # LightGBM 4.7 cannot take persisted data with dask 2025.1.0
        data = client.persist(data)
        wait(data)
    for run in range(2):
        name = f"{train.__name__}-{run}"
        with slaq.job(name, client=client):
            train(client, *data, rounds=5)
            all_reports_come(client, name, 5)
            assert state_of(client, name)["attained"] > 0  # its pinned tasks are charged to it
        reasons = {
            b["reason"] for b in bindings(client) if b["job"] == name and b["key"].startswith(tasks)
        }
        assert reasons and "passed" not in reasons  # its tasks are sent together
    assert len(elastic) > 1
    assert slaq.status(client)["failed"] is None
