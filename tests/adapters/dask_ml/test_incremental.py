"""`Incremental` reports the loss of every block from the workers."""

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from adapters.libraries import reported
from dask_ml.wrappers import Incremental
from driving import inside, until
from scipy.special import expit, huber
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor

import dask_slaq as slaq
from dask_slaq.adapters.dask_ml import LOSSES, loss_of_block

pytestmark = pytest.mark.usefixtures("client")

CLASSES = {"classes": [0.0, 1.0]}


# Fits of one model on the same data have the same keys, and Dask computes none that it still has.


def fit(model, rows, target="logistic", **settings):
    y = None if target is None else rows.chunked(target, 4)
    return Incremental(model, shuffle_blocks=False).fit(rows.chunked("x", 4), y, **settings)


def by_hand(model, rows, target="logistic", **settings):
    """The same blocks in the same order, without Dask; the loss after each."""
    losses = []
    for block in np.split(np.arange(len(rows.x)), 4):
        y = None if target is None else getattr(rows, target)[block]
        model.partial_fit(rows.x[block], y, **settings)
        losses.append(loss_of_block(model, rows.x[block], y))
    return losses


MODELS = [
    (MLPClassifier((5,), random_state=0), "logistic", CLASSES),
    (MLPRegressor(hidden_layer_sizes=(5,), random_state=0), "normal", {}),
    (MiniBatchKMeans(3, random_state=0, n_init=1), None, {}),
    (SGDClassifier(random_state=0), "logistic", CLASSES),
    (SGDRegressor(random_state=0), "normal", {}),
    (Perceptron(random_state=0), "logistic", CLASSES),
]


@pytest.mark.parametrize(
    ("model", "target", "settings"), MODELS, ids=[type(m).__name__ for m, *_ in MODELS]
)
def test_every_block_is_an_iteration(rows, model, target, settings):
    from sklearn.base import clone

    with reported() as losses:
        observed = fit(model, rows, target, **settings)
    with dask.config.set(scheduler="synchronous"):  # computed anew
        plain = fit(model, rows, target, **settings)
    assert losses == pytest.approx(by_hand(clone(model), rows, target, **settings))
    assert len(losses) == 4 and all(type(loss) is float for loss in losses)
    for name in ("coef_", "coefs_", "cluster_centers_"):
        if hasattr(plain, name):
            ours, theirs = getattr(observed, name), getattr(plain, name)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, pd.DataFrame])
def test_blocks_of_other_kinds(rows, kind):
    model = SGDClassifier(random_state=0).partial_fit(rows.x, rows.logistic, classes=[0.0, 1.0])
    expected = loss_of_block(model, rows.x, rows.logistic)
    y = pd.Series(rows.logistic)
    assert loss_of_block(model, kind(rows.x), y) == pytest.approx(expected)


def test_passes_over_the_data_go_on(rows):
    model = Incremental(SGDClassifier(loss="log_loss", random_state=0), shuffle_blocks=False)
    with reported() as losses:
        for _ in range(3):
            model.partial_fit(rows.chunked("x", 4), rows.chunked("logistic", 4), **CLASSES)
    assert len(losses) == 3 * 4
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_an_estimator_without_a_loss_is_not_observed(rows):
    with reported() as losses:
        fit(GaussianNB(), rows, **CLASSES)
    assert losses == []


def test_a_job_gets_the_reports_of_its_workers(client, rows):
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))
    plugin = client.cluster.scheduler.plugins["slaq"]
    with slaq.job("a") as job:
        fit(SGDRegressor(random_state=1), rows, "normal")
        assert job.iteration == 4
        client.sync(until, lambda: inside(plugin).job("a").iteration == 4)
    with dask.config.set({"slaq.instrument": False}), slaq.job("b") as job:
        fit(SGDRegressor(random_state=2), rows, "normal")
        assert job.iteration == 0


def reference(model, values, y):
    """Mean loss by scikit-learn's own scalar functions, or by its metrics where it has none."""
    function = model._get_loss_function(model.loss)
    if hasattr(function, "py_loss"):
        return np.mean([function.py_loss(*pair) for pair in zip(values, y, strict=True)])
    others = {
        "log_loss": lambda p, t: log_loss(t, expit(p)),
        "squared_error": lambda p, t: mean_squared_error(t, p) / 2,
        "huber": lambda p, t: huber(model.epsilon, t - p).mean(),
    }
    return others[model.loss](values, y)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_sgd_are_those_of_scikit_learn(rows, loss):
    x, settings = rows.x / 5, {"penalty": None, "random_state": 0, "epsilon": 0.3, "loss": loss}
    model = SGDClassifier(**settings).partial_fit(x, rows.logistic, classes=[0.0, 1.0])
    expected = reference(model, model.decision_function(x), 2 * rows.logistic - 1)
    assert loss_of_block(model, x, rows.logistic) == pytest.approx(expected)
    if loss in SGDRegressor.loss_functions:
        model = SGDRegressor(**settings).partial_fit(x, rows.normal)
        expected = reference(model, model.predict(x), rows.normal)
        assert loss_of_block(model, x, rows.normal) == pytest.approx(expected)


def test_penalty_and_several_classes(rows):
    y = np.digitize(rows.normal, [-1, 1])
    settings = {"loss": "hinge", "penalty": "elasticnet", "l1_ratio": 0.25, "alpha": 0.1}
    model = SGDClassifier(random_state=0, **settings).partial_fit(rows.x, y, classes=[0, 1, 2])
    margins = model.decision_function(rows.x) * np.where(y[:, None] == [0, 1, 2], 1, -1)
    penalty = 0.1 * (0.25 * np.abs(model.coef_).sum() + 0.375 * (model.coef_**2).sum())
    expected = np.maximum(0, 1 - margins).sum(axis=1).mean() + penalty
    assert loss_of_block(model, rows.x, y) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["loss_", "inertia_"])
def test_what_only_looks_like_a_loss_is_left_alone(rows, name):
    model = GaussianNB()
    setattr(model, name, "low")
    assert loss_of_block(model, rows.x, rows.logistic) is None
    assert loss_of_block(model, rows.x[:0], rows.logistic[:0]) is None
