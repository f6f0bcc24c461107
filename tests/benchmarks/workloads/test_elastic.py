"""The model is the same bit for bit, whatever worker set a job has in each iteration."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import inc
from driving import PATIENCE, assert_nothing_left, until
from sklearn.base import clone

import dask_slaq as slaq
from benchmarks.workloads.neural_network import MLPClassifier
from benchmarks.workloads.svm import LinearSVM, PolynomialSVM

MODELS = {
    "linear": LinearSVM(max_iter=8, tol=0),
    "polynomial": PolynomialSVM(n_components=12, max_iter=8, tol=0, random_state=0),
    "perceptron": MLPClassifier((5, 4), max_iter=8, tol=0, random_state=0),
}
each = pytest.mark.parametrize("name", MODELS)


class Where(SchedulerPlugin):
    """Which workers ended tasks since it was last asked."""

    name = "where"

    def __init__(self) -> None:
        self.workers: set[str] = set()

    def transition(self, key, start, finish, *args, **kwargs) -> None:
        if start == "processing" and finish == "memory":
            self.workers.add(kwargs["worker"])

    def since(self) -> set[str]:
        seen, self.workers = self.workers, set()
        return seen


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scheduler.add_plugin(Where())
        yield client


@pytest.fixture(scope="module")
def data(client: Client) -> tuple[da.Array, da.Array]:
    """Blocks are views into a table: contiguous only where they were sent to."""
    random = np.random.default_rng(0)
    table = da.from_array(random.standard_normal((990, 14)), chunks=(90, 14)).persist()
    X = table.map_blocks(lambda block: block[:, ::2], chunks=(table.chunks[0], (7,))).persist()
    y = (X[:, 0] * X[:, 1] + table[:, 1] > 0).astype(int).persist()
    wait([X, y])
    return X, y


def numbers(model) -> list[np.ndarray]:
    """All that was learnt, and every loss on the way."""
    learnt = [model.coefs_, model.intercepts_] if hasattr(model, "coefs_") else [[model.coef_]]
    return [*itertools.chain(*learnt), np.array(model.loss_curve_)]


def assert_same(model, other) -> None:
    for mine, theirs in zip(numbers(model), numbers(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def fixed(client, data):
    """Each model trained on one worker."""
    workers = list(client.scheduler_info()["workers"])
    where = client.cluster.scheduler.plugins["where"]
    where.since()
    with dask.annotate(workers=workers[:1]):
        found = {name: clone(model).fit(*data) for name, model in MODELS.items()}
    assert where.since() == set(workers[:1])
    return found


@each
def test_the_worker_set_changes_at_every_iteration(client, data, fixed, name):
    workers = list(client.scheduler_info()["workers"])
    where = client.cluster.scheduler.plugins["where"]
    sets = itertools.cycle([workers[:1], workers[1:], workers[2:], workers])
    used = []
    with contextlib.ExitStack() as allowed:

        def move(loss: float) -> None:
            used.append(frozenset(where.since()))
            allowed.close()
            allowed.enter_context(dask.annotate(workers=next(sets)))

        with slaq.instrument(move):
            model = clone(MODELS[name]).fit(*data)
    assert_same(model, fixed[name])
    assert len(set(used)) >= 3 and frozenset(workers[2:]) in used


@each
def test_workers_come_and_go_during_the_fit(client, data, fixed, name):
    reports = itertools.count()

    def change(loss: float) -> None:
        k = next(reports)
        if k == 2:
            client.cluster.scale(len(client.cluster.worker_spec) + 1)
            client.wait_for_workers(4, timeout=PATIENCE)
        elif k == 5:
            client.retire_workers(list(client.scheduler_info()["workers"])[:1])

    with slaq.instrument(change):
        model = clone(MODELS[name]).fit(*data)
    assert_same(model, fixed[name])
    assert len(client.scheduler_info()["workers"]) == 3


@pytest.fixture
def plugin(client: Client) -> Iterator[slaq.SlaqPlugin]:
    client.register_plugin(slaq.SlaqPlugin(policy="max-total", epoch="50ms"))
    plugin = client.cluster.scheduler.plugins["slaq"]
    yield plugin
    assert plugin.failed is None
    client.sync(until, lambda: not plugin.pools.pools)
    assert_nothing_left(client.cluster.scheduler, plugin)
    client.unregister_scheduler_plugin("slaq")


def train(name: str, model, data, client: Client, done: dict) -> None:
    """One driver: what came of it, and the reports that the scheduler counted."""
    scheduler = client.cluster.scheduler
    with slaq.job(name, client=client) as job:
        try:
            fitted = clone(model).fit(*data)
        except ValueError as error:
            done[name] = error
            return
        job_here = scheduler.plugins["slaq"].engine.jobs[name]
        client.sync(until, lambda: job_here.iteration == job.iteration)
        done[name] = fitted, job_here.iteration


def test_jobs_that_compete_get_what_each_gets_alone(client, data, fixed, plugin):
    X, y = data
    done: dict = {}
    broken = X.map_blocks(lambda x: np.where(x > 3, np.nan, x))
    work = {name: (model, data) for name, model in MODELS.items()}
    work["broken"] = (LinearSVM(), (broken, y))
    drivers = [
        threading.Thread(target=train, args=(name, *each, client, done))
        for name, each in work.items()
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(60)
    assert isinstance(done["broken"], ValueError) and "not finite" in str(done["broken"])
    for name, model in fixed.items():
        fitted, reports = done[name]
        assert_same(fitted, model)
        assert reports == fitted.n_iter_ + 1 == 9
    assert {binding.job for binding in plugin.pools.bindings} == set(work)
    assert client.submit(inc, 1).result() == 2


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda X, y: (X, y[:-90]), "X has 11 partitions and array 2 has 10"),
        (lambda X, y: (X, y * 0), "one class only"),
        (lambda X, y: (X[:, :0], y), "X has no columns"),
        (lambda X, y: (X[X[:, 0] > 2.9], y[X[:, 0] > 2.9]), "is empty"),
    ],
)
def test_bad_data_end_the_job_and_no_other(client, data, plugin, spoil, says):
    with slaq.job("other", client=client) as other:
        with pytest.raises(ValueError, match=says), slaq.job("bad", client=client):
            LinearSVM(max_iter=1).fit(*spoil(*data))
        assert set(slaq.status(client)["jobs"]) == {"other"}
        other.report(1.0)
        assert LinearSVM(max_iter=1).fit(*data).n_iter_ == 1
