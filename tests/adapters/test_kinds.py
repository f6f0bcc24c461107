"""Fits tell their kind: one name for like curves, and numbers for what shapes them."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from dask_slaq.adapters import observe_fits
from dask_slaq.adapters.observing import kind_of, kind_of_estimator, sizes_of
from dask_slaq.core.run_history import read_kind

pytestmark = pytest.mark.filterwarnings("ignore")


def kinds_of(fit):
    """What fits tell, each before its first loss."""
    told = []
    with observe_fits(lambda loss: told.append(loss), describe=told.append):
        fit()
    kinds = [kind for kind in told if isinstance(kind, dict)]
    assert kinds and told[0] is kinds[0], told
    return kinds


def plain(kind):
    """The name and the numbers in orders of magnitude, as a scheduler reads them."""
    read = read_kind(kind)
    return read.name, {name: round(value, 2) for name, value in read.features}


SIZES = {"rows": 2.6, "chunks": 0.3}


@pytest.mark.parametrize(
    ("solver", "family"),
    [
        ("admm", "Logistic"),
        ("lbfgs", "Normal"),
        ("newton", "Logistic"),
        ("gradient_descent", "Normal"),
        ("proximal_grad", "Logistic"),
    ],
)
def test_linear_models(in_this_thread, rows, solver, family):
    from dask_ml.linear_model import LinearRegression, LogisticRegression

    model, target = {
        "Logistic": (LogisticRegression, "logistic"),
        "Normal": (LinearRegression, "normal"),
    }[family]

    def fit(C=0.1):
        fitted = model(solver=solver, C=C, max_iter=2, tol=1e-3)
        fitted.fit(rows.chunked("x"), rows.chunked(target))

    (kind,), (other,) = kinds_of(fit), kinds_of(lambda: fit(C=10.0))
    name, numbers = plain(kind)
    choices = name.split("/")
    assert choices[:2] == [f"dask_glm.{solver}", family]
    assert numbers.items() >= {**SIZES, "columns": 0.7}.items()
    if solver in ("newton", "gradient_descent"):
        assert plain(other) == plain(kind)  # they have no regularizer
    else:
        assert choices[2] == "l2"
        assert other["lamduh"] != kind["lamduh"] and other["name"] == kind["name"]


def test_kmeans(in_this_thread, rows):
    from dask_ml.cluster import KMeans

    (kind,) = kinds_of(lambda: KMeans(3, random_state=0, max_iter=2).fit(rows.chunked("x")))
    expected = {**SIZES, "columns": 0.6, "n_clusters": 0.48}
    assert plain(kind) == ("dask_ml.KMeans/k-means||", expected)


def test_incremental_and_searches(client, rows):
    from dask_ml.model_selection import IncrementalSearchCV
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    x, y = rows.chunked("x"), rows.chunked("logistic")
    model = SGDClassifier(loss="log_loss", alpha=0.01, random_state=0)
    (kind,) = kinds_of(lambda: Incremental(model).fit(x, y, classes=[0.0, 1.0]))
    name, numbers = plain(kind)
    assert name == "dask_ml.Incremental/SGDClassifier/log_loss/l2/optimal"
    assert numbers.items() >= {**SIZES, "alpha": -2.0}.items()

    search = IncrementalSearchCV(model, {"alpha": [0.01, 0.1]}, n_initial_parameters=2, max_iter=2)
    (kind,) = kinds_of(lambda: search.fit(x, y, classes=[0.0, 1.0]))
    name, numbers = plain(kind)
    assert name == "dask_ml.search/SGDClassifier" and numbers["candidates"] == 0.3


def test_xgboost(client, rows):
    xgboost = pytest.importorskip("xgboost.dask")

    def fit(**settings):
        model = xgboost.DaskXGBClassifier(n_estimators=2, **settings)
        model.client = client
        model.fit(*client.persist([rows.chunked("x"), rows.chunked("logistic")]))

    (kind,) = kinds_of(fit)
    name, numbers = plain(kind)
    assert name == "xgboost.dask/binary:logistic/gbtree"
    assert numbers.items() >= {"learning_rate": -0.52, "columns": 0.6, "chunks": 0.3}.items()
    (kind,) = kinds_of(lambda: fit(learning_rate=0.01))
    assert plain(kind)[1]["learning_rate"] == -2.0


def test_lightgbm(client, rows):
    lightgbm = pytest.importorskip("lightgbm")

    def fit():
        model = lightgbm.DaskLGBMClassifier(n_estimators=2, client=client, verbose=-1)
        model.fit(rows.chunked("x"), rows.chunked("logistic"))

    (kind,) = kinds_of(fit)
    name, numbers = plain(kind)
    assert name.startswith("lightgbm.dask/")
    assert numbers.items() >= {**SIZES, "learning_rate": -1.0, "num_leaves": 1.49}.items()


class Odd(BaseEstimator):
    """An estimator with parameters of every kind."""

    def __init__(self, alpha=-1.0, C=float("nan"), lr="x", penalty=None, loss=1, solver="s" * 99):
        self.alpha, self.C, self.lr, self.penalty = alpha, C, lr, penalty
        self.loss, self.solver = loss, solver


def test_only_what_a_scheduler_takes_is_told():
    kind = kind_of_estimator("mine", Odd(), data=object())
    assert kind == {"name": "mine/Odd/" + "s" * 40}
    assert kind_of_estimator("mine", object()) == {"name": "mine/object"}
    assert sizes_of(np.zeros((3, 2))) == {"rows": 3, "columns": 2}
    assert sizes_of(None) == {}
    assert read_kind(kind_of("x" * 1000, ["y"] * 100, {"a": np.int64(0)})).features == (
        ("a", -12.0),
    )
