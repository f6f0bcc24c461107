"""Law: a stopped job's fit ends within two iterations, with a model that predicts if promised."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from adapters.libraries import Lightgbm, Xgboost
from dask_ml.cluster import KMeans
from dask_ml.linear_model import LinearRegression, LogisticRegression
from dask_ml.model_selection import HyperbandSearchCV, IncrementalSearchCV
from dask_ml.wrappers import Incremental
from distributed import Event
from distributed.utils_test import poll_for
from driving import PATIENCE, asked_to_stop
from joblib import Parallel, delayed, parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV

import dask_slaq as slaq

AFTER = 3


@pytest.fixture(scope="module")
def cluster(client):
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))
    return client


@contextmanager
def stopped_after(client, reports=AFTER):
    """Yield the losses that a job reports, which is stopped by `slaq.stop` after a few."""
    losses = []
    in_loop = client.loop.asyncio_loop

    with slaq.job("a", client=client) as job:

        def stop():
            slaq.stop("a", client=client)

        def report(loss):
            losses.append(loss)
            if len(losses) == reports:
                thread = threading.Thread(target=stop)
                thread.start()
                if threading.get_ident() != in_loop._thread_id:
                    thread.join()
                    poll_for(lambda: asked_to_stop(job), PATIENCE)
            job.report(loss)

        with slaq.instrument(report):
            yield losses


@pytest.mark.parametrize("solver", ["gradient_descent", "proximal_grad", "lbfgs", "newton", "admm"])
def test_linear_models_keep_their_coefficients(cluster, rows, solver):
    more = {"solver_kwargs": {"abstol": 0.0, "reltol": 0.0}} if solver == "admm" else {"tol": 0.0}
    x, y = rows.chunked("x"), rows.chunked("logistic")
    with stopped_after(cluster) as losses:
        model = LogisticRegression(solver=solver, max_iter=30, **more).fit(x, y)
    assert len(losses) == AFTER
    assert model.predict(x).compute().shape == (400,)
    # The same coefficients as those of a fit of so many iterations; newton makes one more.
    iterations = {"newton": 1}.get(solver, 2)
    short = LogisticRegression(solver=solver, max_iter=iterations, **more).fit(x, y)
    np.testing.assert_allclose(model._coef, short._coef)


def test_k_means_keeps_its_centers(cluster, rows):
    x, start = rows.chunked("x"), rows.x[:5]
    with stopped_after(cluster) as losses:
        model = KMeans(5, init=start, max_iter=30, tol=0.0).fit(x)
    assert len(losses) == AFTER
    assert model.n_iter_ == AFTER - 1
    assert len(np.unique(model.predict(x).compute())) == 5
    np.testing.assert_array_equal(model.labels_.compute(), model.predict(x).compute())


def test_incremental_skips_the_blocks_that_are_left(cluster, rows):
    x, y = (a.rechunk({0: 4}) for a in (rows.chunked("x"), rows.chunked("logistic")))
    with stopped_after(cluster):
        model = Incremental(SGDClassifier(random_state=0), shuffle_blocks=False)
        model.fit(x, y, classes=[0.0, 1.0])
    assert AFTER * 4 <= model.estimator_.t_ - 1 < 400
    assert model.predict(x).compute().shape == (400,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [IncrementalSearchCV, HyperbandSearchCV])
def test_a_search_chooses_the_best_so_far(cluster, rows, kind):
    more = {"n_initial_parameters": 3} if kind is IncrementalSearchCV else {}
    search = kind(
        SGDClassifier(random_state=0), {"alpha": [1e-4, 1e-2, 1.0]}, max_iter=81, random_state=0,
        **more,
    )  # fmt: skip
    with stopped_after(cluster, 2) as losses:
        search.fit(rows.x, rows.logistic, classes=[0.0, 1.0])
    assert len(losses) < 20, losses
    # A bracket of Hyperband may train its few models to the end before it asks for the first time.
    calls = sum(of_model[-1]["partial_fit_calls"] for of_model in search.model_history_.values())
    assert calls < (search.metadata["partial_fit_calls"] if kind is HyperbandSearchCV else 3 * 81)
    assert search.predict(rows.x).shape == (400,)


def slow_round(*args):
    import time

    time.sleep(0.02)
    return False


def test_xgboost_ends_on_all_workers(cluster, rows):
    xgboost = pytest.importorskip("xgboost")
    import xgboost.dask as xgboost_dask

    class Slow(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            return slow_round()

    with stopped_after(cluster) as losses:
        x, y = cluster.persist([rows.chunked("x"), rows.chunked("normal")])
        matrix = xgboost_dask.DaskDMatrix(cluster, x, y)
        found = xgboost_dask.train(
            cluster, {"max_depth": 2}, matrix, num_boost_round=1000,
            evals=[(matrix, "train")], callbacks=[Slow()],
        )  # fmt: skip
        rounds = found["booster"].num_boosted_rounds()
        assert AFTER <= rounds < 50
        assert len(found["history"]["train"]["rmse"]) == rounds
        poll_for(lambda: len(losses) == rounds, PATIENCE)
    assert xgboost_dask.predict(cluster, found, x).compute().shape == (400,)


def test_lightgbm_ends_on_all_workers(cluster, rows):
    lightgbm = pytest.importorskip("lightgbm")
    data = rows.chunked("x"), rows.chunked("normal")
    with stopped_after(cluster) as losses:
        model = lightgbm.DaskLGBMRegressor(n_estimators=1000, num_leaves=4, verbose=-1)
        model.fit(*data, callbacks=[slow_round])
        trees = model.booster_.num_trees()
        assert AFTER <= trees < 50
        poll_for(lambda: len(losses) == trees, PATIENCE)
    assert model.predict(data[0]).compute().shape == (400,)


def test_user_code_that_stops_is_not_taken_for_the_job(cluster, rows):
    class Family:
        def __getattr__(self, name):
            raise slaq.StopTraining("mine")

    from dask_glm import algorithms

    with pytest.raises(slaq.StopTraining, match="mine"), slaq.instrument(print):
        algorithms.gradient_descent(rows.x, rows.logistic, family=Family(), normalize=False)


def test_without_a_model_so_far_the_fit_raises(cluster, rows, monkeypatch):
    from dask_slaq.adapters.dask_glm import LBFGS, LoopObserver

    monkeypatch.setattr(LBFGS, "so_far", LoopObserver.so_far)
    with stopped_after(cluster), pytest.raises(slaq.StopTraining, match="job 'a' was stopped"):
        LinearRegression(solver="lbfgs").fit(rows.chunked("x"), rows.chunked("normal"))


def stop_and_hear(client, job):
    slaq.stop(job.name, client=client)
    poll_for(lambda: asked_to_stop(job), PATIENCE)


class Held(ClassifierMixin, BaseEstimator):
    """Classifier whose fits begin, and wait for an event."""

    def __init__(self, number=0):
        self.number = number

    def fit(self, x, y):
        Event("begun").set()
        Event("go").wait(PATIENCE)
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return np.full(len(x), self.classes_[0])


def search_a_grid(rows):
    GridSearchCV(Held(), {"number": list(range(20))}, cv=2, refit=False).fit(rows.x, rows.logistic)


def call_joblib(rows):
    for _ in Parallel(return_as="generator_unordered")(
        delayed(Held(number).fit)(rows.x, rows.logistic) for number in range(20)
    ):
        pass


@pytest.mark.parametrize("call", [search_a_grid, call_joblib])
def test_a_call_of_joblib_raises_and_its_tasks_are_released(cluster, rows, call):
    begun, go = Event("begun", client=cluster), Event("go", client=cluster)
    begun.clear()
    go.clear()
    scheduler = cluster.cluster.scheduler
    mine = []

    def keys():
        return [key for key in list(scheduler.tasks) if str(key).startswith("batch_of")]

    def stop(job):
        begun.wait(PATIENCE)
        pools = scheduler.plugins["slaq"].pools
        mine.extend(key for key in keys() if scheduler.tasks[key] in pools.pools["a"].unfinished)
        try:
            stop_and_hear(cluster, job)
        finally:
            go.set()

    with slaq.job("a", client=cluster) as job, parallel_config(backend="dask"):
        stopper = threading.Thread(target=stop, args=[job])
        stopper.start()
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            call(rows)
        stopper.join()
        assert mine  # the tasks belong to the job
        poll_for(lambda: not keys(), PATIENCE)
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            call(rows)
    assert not keys()
    with slaq.job("a", client=cluster), parallel_config(backend="dask"):
        call(rows)  # a job of the same name is not stopped, nor is the library


class OfMyOwn(BaseEstimator):
    """Learns in steps, and nobody knows its loss."""

    def fit(self, x, y):
        return self

    def partial_fit(self, x, y, classes=None):
        return self

    def score(self, x, y):
        return 0.0


@pytest.mark.parametrize("model", [SGDClassifier(random_state=0), OfMyOwn()])
def test_no_partial_fit_begins_after_a_stop(cluster, rows, model):
    x, y = rows.chunked("x"), rows.chunked("logistic")
    model = Incremental(model)
    with slaq.job("a", client=cluster) as job:
        model.partial_fit(x, y, classes=[0.0, 1.0])
        stop_and_hear(cluster, job)
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            model.partial_fit(x, y)
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            model.fit(x, y, classes=[0.0, 1.0])
    model.partial_fit(x, y, classes=[0.0, 1.0])


def fit_again(rows, model):
    return LogisticRegression(max_iter=2).fit(rows.chunked("x"), rows.chunked("logistic"))


def add_rounds(library):
    def train(rows, model):
        made = library()
        return made.train((rows.x, rows.logistic), made.module.SlaqReport(), model=model)

    return train


@pytest.mark.parametrize("train", [fit_again, add_rounds(Xgboost), add_rounds(Lightgbm)])
def test_no_fit_begins_and_no_rounds_are_added_after_a_stop(cluster, rows, train):
    with slaq.job("a", client=cluster) as job:
        model = train(rows, None)
        stop_and_hear(cluster, job)
        with pytest.raises(slaq.StopTraining, match="'a' was stopped"):
            train(rows, model)
