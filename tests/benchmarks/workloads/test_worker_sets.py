"""The model is the same bit for bit, whatever happens to workers during training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, Worker

import dask_slaq as slaq
from benchmarks.workloads.boosting import GradientBoostingClassifier, GradientBoostingRegressor
from benchmarks.workloads.lda import LatentDirichletAllocation

rng = np.random.default_rng(0)
X = rng.standard_normal((800, 4))
y = X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(800)
COUNTS = rng.poisson(0.4, (120, 30))

ROWS = da.from_array(X, chunks=(200, 4)), da.from_array(y, chunks=200)
CLASSES = ROWS[0], ROWS[1] > 0
DOCUMENTS = (da.from_array(COUNTS, chunks=(20, 30)),)
MODELS = {
    "regressor": (GradientBoostingRegressor(max_iter=4, min_samples_leaf=5), ROWS),
    "classifier": (GradientBoostingClassifier(max_iter=4, max_depth=2), CLASSES),
    "lda": (LatentDirichletAllocation(3, max_iter=4, random_state=0), DOCUMENTS),
    "lda-online": (
        LatentDirichletAllocation(3, max_iter=4, learning_method="online", random_state=0),
        DOCUMENTS,
    ),
}


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
    model, data = MODELS[name]
    count = iter(range(100))
    data = [array.persist() for array in data]
    with slaq.instrument(lambda loss: after(next(count))) if after else nullcontext():
        model.fit(*data)
    result = model.components_ if name.startswith("lda") else model.trees_
    return model.loss_curve_, result.tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_workers_come_retire_and_die_between_iterations(name, worker_set):
    fixed = train(name)

    def change(iteration):
        worker_set.come()
        (worker_set.retire, worker_set.die)[iteration % 2]()

    assert train(name, change) == fixed
    assert worker_set.lost


@pytest.mark.parametrize("name", ["regressor", "lda"])
def test_a_worker_dies_within_an_iteration(name, worker_set):
    fixed = train(name)

    def change(iteration):
        worker_set.come()
        if iteration % 2:
            worker_set.die_soon()

    assert train(name, change) == fixed


def test_scores_that_are_lost_are_few_steps_from_the_bins(worker_set, monkeypatch):
    """All scores die with the only worker; one step after each start, for four partitions."""
    monkeypatch.setattr("benchmarks.workloads.hist_boosting.rounds.FRESH", 2)
    fixed = train("regressor")
    known = []

    def change(iteration):
        known.append(worker_set.client.run_on_scheduler(count_of_advances))
        worker_set.come()
        worker_set.die()

    assert train("regressor", change) == fixed
    assert max(known) == 4
    assert worker_set.lost


def test_jobs_that_compete_for_workers_train_what_each_alone_would(worker_set):
    alone = [train(name) for name in ("regressor", "lda")]
    worker_set.come()
    worker_set.client.register_plugin(slaq.SlaqPlugin(epoch="50ms"))

    def compete(name):
        with slaq.job(name, client=worker_set.client) as job:
            result = train(name)
            assert job.iteration == 4 + 1
            return result

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(compete, ("regressor", "lda"))) == alone


def count_of_advances(dask_scheduler):
    return sum(str(key).startswith("_advance-") for key in dask_scheduler.tasks)
