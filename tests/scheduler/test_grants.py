"""Every task of two concurrent jobs runs in a slot that its job then holds or is lent."""

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import Client
from driving import Recorder, assert_nothing_left, inside, small_cluster, until

import dask_slaq as slaq
from dask_slaq.client import bindings


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with small_cluster(4) as client:
        yield client


def arrays(client: Client, seed: int) -> Any:
    x = da.random.default_rng(seed).random((60, 40), chunks=(10, 20))
    total, kept = (x @ x.T).sum(axis=0), x.persist()
    return [*total.compute(), float((kept**2).mean().compute())]


#: Up to Python 3.11 a ``cached_property`` takes a lock. Two threads that look at DataFrames can
#: wait for each other for good, and the scheduler's is one as it expands them.
ONE_AT_A_TIME = threading.Lock()


def frames(client: Client, seed: int) -> Any:
    import dask.dataframe as dd
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.integers(0, 5, 80), "y": rng.random(80)})
    tasks = client.cluster.scheduler.tasks
    with ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DataFrames claim to ignore annotations
        left, right = (dd.from_pandas(frame, npartitions=n).shuffle("x") for n in (3, 2))
        merged = left.merge(right, on="x")
        sums = client.compute([left.y.sum(), merged.y_x.sum()])
        client.sync(until, lambda: all(each.key in tasks for each in sums))
    return client.gather(sums)


def delays(client: Client, seed: int) -> Any:
    parts = [delayed(pow)(i + seed, 2, pure=False) for i in range(12)]
    return dask.compute(delayed(sum)(parts), delayed(max)(parts))


def futures(client: Client, seed: int) -> Any:
    parts = client.map(pow, range(seed, seed + 12), [2] * 12, pure=False)
    return client.submit(sum, parts, pure=False).result()


WORK = [(work, "fair") for work in (arrays, frames, delays, futures)]


def both(client: Client, work: Callable[[Client, int], Any]) -> dict[int, Any]:
    """Run two jobs at once; their results, by seed."""
    results: dict[int, Any] = {}
    together = threading.Barrier(2)

    def drive(seed: int) -> None:
        with slaq.job(f"job-{seed}", client=client) as job:
            together.wait()
            results[seed] = work(client, seed)
            job.report(1.0 / seed)
            together.wait()

    threads = [threading.Thread(target=drive, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def quiet(client: Client, plugin: slaq.SlaqPlugin) -> None:
    client.sync(until, lambda: not inside(plugin).pools)
    assert plugin.failed is None
    assert_nothing_left(client.cluster.scheduler, plugin)
    client.unregister_scheduler_plugin("slaq")
    client.unregister_scheduler_plugin("recorder")


def compared(client, work, **settings):
    """Run two jobs at once, with the results that they have one after the other without us."""
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        expected = {seed: work(client, seed) for seed in (1, 2)}
        client.register_plugin(slaq.SlaqPlugin(epoch="50ms", **settings))
        scheduler = client.cluster.scheduler
        plugin = scheduler.plugins["slaq"]
        recorder = Recorder(scheduler, plugin)
        results = both(client, work)
    for seed in (1, 2):
        np.testing.assert_allclose(results[seed], expected[seed])
    return plugin, recorder


@pytest.mark.parametrize(("work", "policy"), [*WORK, (futures, "max-total")])
def test_each_task_runs_on_a_worker_held_or_lent(client, work, policy):
    plugin, recorder = compared(client, work, policy=policy)
    recorder.check()
    assert {run.job for run in recorder.held()} >= {"job-1", "job-2"}
    sent = {(str(run.key), run.sent_to) for run in recorder.ended}
    assert sent <= {(b["key"], b["worker"]) for b in bindings(client)}
    quiet(client, plugin)


@pytest.mark.parametrize("work", [frames, futures])
def test_without_lending_each_held_task_runs_in_its_jobs_set(client, work):
    plugin, recorder = compared(client, work, policy="fair", lend=False)
    recorder.check(lend=False)
    passed = {str(run.key) for run in recorder.ended if run.reason == "passed" and run.jobs > 1}
    assert all("shuffle" in key or "p2p" in key for key in passed)
    quiet(client, plugin)


def test_the_policy_none_holds_and_restricts_nothing(client):
    plugin, recorder = compared(client, futures, policy="none")
    assert recorder.ended
    assert not recorder.held()
    quiet(client, plugin)


@pytest.mark.slow
@pytest.mark.parametrize("lend", [True, False])
def test_dask_ml_fits_run_on_workers_held_or_lent(client, lend):
    from dask_ml.cluster import KMeans
    from dask_ml.linear_model import LogisticRegression

    rng = da.random.default_rng(0)
    X = rng.random((200, 3), chunks=(50, 3))  # KMeans of dask 2025.1.0 fails on persisted data
    Y = (X.sum(axis=1) + rng.normal(size=200, chunks=50) > 1.5).astype(int).persist()

    def fit(client: Client, seed: int) -> Any:
        if seed == 1:
            model = LogisticRegression(solver="gradient_descent", max_iter=3)
            return model.fit(X, Y).coef_
        model = KMeans(n_clusters=2, init="random", max_iter=2, random_state=0)
        return model.fit(X).cluster_centers_

    plugin, recorder = compared(client, fit, policy="max-total", lend=lend)
    recorder.check(lend=lend)
    assert {run.job for run in recorder.held()} >= {"job-1", "job-2"}
    quiet(client, plugin)
