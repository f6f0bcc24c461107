"""The workloads are the same bit for bit on any workers, near their references, and stop early."""

import importlib.util
from contextlib import nullcontext

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, Worker

import dask_slaq as slaq
from benchmarks.workloads.catalogue import CATALOGUE
from benchmarks.workloads.references import REFERENCES, Fit, compare, difference
from benchmarks.workloads.svm import LinearSVM
from dask_slaq.adapters import observe_fits

HERE = [
    name for name, row in CATALOGUE.items() if importlib.util.find_spec(row.source.split(".")[0])
]
OURS = [name for name in HERE if CATALOGUE[name].source.startswith("benchmarks.")]
#: Largest disagreement with the reference after three iterations. Descent is far from its optimum,
#: and online LDA takes the documents in another order.
NEAR = {
    "k-means": 1e-9,
    "logistic-regression": 0.6,
    "linear-svm": 1e-9,
    "polynomial-svm": 1e-8,
    "boosting-classifier": 0.05,
    "boosting-regressor": 0.05,
    "perceptron": 1e-6,
    "lda": 0.05,
    "lda-online": 0.2,
    "linear-regression": 0.2,
}


def made(name, rows=600):
    row = CATALOGUE[name]
    return dask.persist(*row.data(rows // 5 if row.kind == "documents" else rows, 3, seed=0))


@pytest.mark.parametrize("name", HERE)
def test_a_fit_reports_every_iteration_and_is_near_its_reference(name):
    data, losses = made(name, rows=1600), []
    with slaq.instrument(losses.append), dask.config.set(scheduler="sync"):
        model = CATALOGUE[name].estimator(3).fit(*data)
        X, *y = dask.compute(*data)
        found = compare(name, Fit(model, X, y[0] if y else None, losses, 3))
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert found <= NEAR[name], found


def test_the_catalogue_is_the_papers():
    """Latent Dirichlet allocation counts twice: EM and online."""
    assert len(CATALOGUE) == 10
    assert set(REFERENCES) == set(CATALOGUE) == set(NEAR)


def test_a_difference_is_seen_in_any_number():
    X = da.from_array(np.random.default_rng(0).standard_normal((60, 3)))
    one, other = (LinearSVM(max_iter=3).fit(X, X[:, 0] > 0) for _ in range(2))
    assert difference(one, other) == 0.0
    other.coef_ = np.nextafter(other.coef_, 1.0)
    assert 0 < difference(one, other) < 1e-15
    other.coef_ = other.coef_[:, :2]
    assert difference(one, other) == np.inf


# The estimators


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("reports", [1, 3])
def test_a_stop_leaves_the_model_so_far(name, reports):
    losses, kinds = [], []

    def report(loss):
        losses.append(loss)
        if len(losses) >= reports:
            raise slaq.StopTraining("enough")

    model = CATALOGUE[name].estimator(50)
    with observe_fits(report, describe=kinds.append), dask.config.set(scheduler="sync"):
        model.fit(*made(name))
    assert model.loss_curve_ == losses
    assert len(losses) == max(reports, 2)  # at least one iteration
    assert model.n_iter_ == len(losses) - 1
    (kind,) = kinds
    assert kind["name"].startswith(f"dask_slaq/{type(model).__name__}")
    assert kind["chunks"] == 3


# Worker sets


class WorkerSet:
    """Workers of a cluster in this process that come, retire and die at a word."""

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address
        self.workers: list[Worker] = []
        self.lost = 0

    def come(self) -> None:
        async def start() -> Worker:
            return await Worker(self.address, nthreads=1)

        self.workers.append(self.client.sync(start))

    def retire(self) -> None:
        self.client.retire_workers([self.workers.pop(0).address])

    def die(self) -> None:
        """Without a word, so that what it holds is lost."""
        worker = self.workers.pop(0)
        self.lost += len(worker.data)
        self.client.sync(worker.close, nanny=False, executor_wait=False)

    def die_soon(self) -> None:
        """While the training goes on."""
        worker = self.workers.pop(0)
        self.client.loop.add_callback(worker.close, nanny=False, executor_wait=False)


@pytest.fixture
def worker_set(loop):
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None, loop=loop) as cluster,
        Client(cluster, loop=loop) as client,
    ):
        workers = WorkerSet(client, cluster.scheduler_address)
        workers.come()
        yield workers
        for worker in workers.workers:
            client.sync(worker.close, nanny=False)


def train(name, after=None):
    """Train on persisted data, and call `after` with the number of each report."""
    count = iter(range(100))
    with slaq.instrument(lambda loss: after(next(count))) if after else nullcontext():
        return CATALOGUE[name].estimator(4).fit(*made(name))


@pytest.mark.parametrize("name", OURS)
def test_workers_come_retire_and_die(name, worker_set):
    """Between iterations and within them: the model is the same."""
    fixed = train(name)

    def change(iteration):
        worker_set.come()
        (worker_set.retire, worker_set.die, worker_set.die_soon)[iteration % 3]()

    assert difference(train(name, change), fixed) == 0
    assert worker_set.lost
