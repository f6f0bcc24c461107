"""Each dask-ml repair is needed, works, and is undone when switched off."""

import sys
from types import ModuleType

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import sklearn.feature_extraction.text
import sklearn.metrics
from dask_ml.cluster import KMeans
from dask_ml.cluster import k_means as k_means_module
from dask_ml.decomposition import PCA, IncrementalPCA
from dask_ml.feature_extraction.text import FeatureHasher, HashingVectorizer
from dask_ml.linear_model import LinearRegression
from dask_ml.model_selection import IncrementalSearchCV
from sklearn.linear_model import SGDClassifier

import dask_slaq as slaq
from dask_slaq.adapters import instrument, repairs
from dask_slaq.adapters.repairs import LAST_RELEASE, Repairs
from dask_slaq.core.errors import InvalidSetting

pytestmark = pytest.mark.usefixtures("in_this_thread")


@pytest.fixture
def in_a_block():
    """Each test runs in a block, in which dask-ml is repaired."""
    with instrument(lambda loss: None):
        yield


def search(rows):
    model = SGDClassifier(loss="log_loss", random_state=0, tol=1e-3)
    found = IncrementalSearchCV(model, {"alpha": [1e-4, 1e-2]}, max_iter=3, random_state=0)
    with dask.config.set(scheduler=None):  # a search needs the client's
        return found.fit(rows.chunked("x"), rows.chunked("logistic"), classes=[0.0, 1.0])


def k_means(rows):
    return KMeans(3, init="k-means++", random_state=0).fit(rows.chunked("x"))


def score(rows):
    x, y = rows.chunked("x"), rows.chunked("normal")
    return LinearRegression(solver="newton", max_iter=2).fit(x, y).score(x, y)


def pca(rows):
    x = rows.chunked("x")
    return PCA(2, svd_solver="randomized", random_state=0).fit(x).transform(x)


def hashing(rows):
    texts = dd.from_pandas(pd.Series(TEXTS), npartitions=2)
    return HashingVectorizer(n_features=64).transform(texts)


TEXTS = ["a list", "of words", "for hashing", "and words"]
FAULTS = {
    "incremental-search": search,
    "k-means++": k_means,
    "r2-score": score,
    "pca": pca,
    "text-hashing": hashing,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_there_without_its_repair_and_gone_with_it(client, rows, name):
    """Where a newer Dask or scikit-learn brought the fault, it is there with the newest ones."""
    dask_release = tuple(int(part) for part in dask.__version__.split(".")[:2])
    if dask_release > (2026, 0):
        with pytest.raises((RuntimeError, TypeError, ValueError, AttributeError)):
            FAULTS[name](rows)
    with instrument(lambda loss: None):
        FAULTS[name](rows)


def test_a_newer_release_of_dask_ml_ends_the_repairs(monkeypatch):
    monkeypatch.setattr(repairs, "version", lambda name: f"{LAST_RELEASE[0] + 1}.3")
    with instrument(lambda loss: None):
        assert k_means_module._kmeans_plusplus.__module__.startswith("sklearn")


def test_k_means_plus_plus_starts_as_scikit_learn_does(in_a_block, rows):
    from dask_ml.cluster.k_means import init_pp
    from sklearn.cluster import kmeans_plusplus

    centers = init_pp(rows.chunked("x"), 3, np.random.RandomState(0))
    expected, _ = kmeans_plusplus(rows.x, 3, random_state=np.random.RandomState(0))
    np.testing.assert_array_equal(centers, expected)


@pytest.mark.parametrize(
    ("true", "predicted"),
    [([1.0, 2, 3, 4], [1.0, 2, 2, 5]), ([2.0] * 4, [2.0] * 4), ([2.0] * 4, [1.0, 2, 3, 4])],
)
def test_scores_are_those_of_scikit_learn(in_a_block, true, predicted):
    from dask_ml.metrics import r2_score

    expected = sklearn.metrics.r2_score(true, predicted)
    true, predicted = np.array(true), np.array(predicted)
    lazy = [da.from_array(a, chunks=2) for a in (true, predicted)]
    assert r2_score(*lazy) == pytest.approx(expected)
    assert r2_score(*lazy, compute=False).compute() == pytest.approx(expected)
    assert r2_score(true, predicted) == pytest.approx(expected)
    unknown = [a[da.ones(4, chunks=2) > 0] for a in lazy]
    assert r2_score(*unknown) == pytest.approx(expected)
    with pytest.raises(ValueError, match="sample_weight"):
        r2_score(*lazy, sample_weight=true)


def test_incremental_pca_is_mended_with_pca(in_a_block, rows):
    x = rows.chunked("x")
    model = IncrementalPCA(2, svd_solver="randomized", batch_size=100, random_state=0)
    assert model.fit(x).transform(x).compute().shape == (len(rows.x), 2)


@pytest.mark.parametrize("dtype", ["str", object])
@pytest.mark.parametrize("convert", [True, False])
def test_text_is_hashed_as_by_scikit_learn(in_a_block, dtype, convert):
    with dask.config.set({"dataframe.convert-string": convert}):
        texts = dd.from_pandas(pd.Series(TEXTS, dtype=dtype), npartitions=2)
    hashed = HashingVectorizer(n_features=64).transform(texts)
    assert hashed.shape[1] == 64
    expected = sklearn.feature_extraction.text.HashingVectorizer(n_features=64).transform(TEXTS)
    assert (hashed.compute() != expected).nnz == 0
    bag = HashingVectorizer(n_features=64).transform(texts.to_bag())
    assert (bag.compute() != expected).nnz == 0


def test_features_are_hashed_as_by_scikit_learn(in_a_block):
    features = [{"a": 1}, {"b": 2}] * 2
    with dask.config.set({"dataframe.convert-string": False}):
        series = dd.from_pandas(pd.Series(features), npartitions=2)
    hashed = FeatureHasher(n_features=8).transform(series)
    expected = sklearn.feature_extraction.FeatureHasher(n_features=8).transform(features)
    assert (hashed.compute() != expected).nnz == 0


def test_nothing_is_left_outside_of_a_block():
    from dask_ml import metrics
    from dask_ml.cluster import k_means
    from dask_ml.feature_extraction import text
    from dask_ml.linear_model import glm
    from dask_ml.model_selection import _incremental

    with instrument(lambda loss: None), instrument(lambda loss: None):
        assert _incremental.dask is not dask
    assert _incremental.dask is dask
    assert k_means._kmeans_plusplus.__module__.startswith("sklearn")
    for scores in (metrics.r2_score, glm.r2_score, metrics.scorer.SCORERS["r2"][0]):
        assert scores.__module__ == "dask_ml.metrics.regression"
    assert "power_iteration_normalizer" not in vars(PCA)
    assert text._BaseHasher.transform.__module__ == text.__name__
    assert not any(finder is repairs._repairs._finder for finder in sys.meta_path)


def test_blocks_and_jobs_follow_the_setting(rows):
    with dask.config.set({"slaq.repairs": False}), instrument(lambda loss: None):
        assert k_means_module._kmeans_plusplus.__module__.startswith("sklearn")
    with instrument(lambda loss: None):
        assert k_means_module._kmeans_plusplus.__module__.startswith("dask_slaq")


def test_a_wrong_setting_is_refused_before_the_job_opens(client):
    client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    with dask.config.set({"slaq.repairs": "r2"}):
        for block in (slaq.job("a"), slaq.instrument(print)):
            with pytest.raises(InvalidSetting, match=r"slaq\.repairs must be true or false"):
                block.__enter__()
    assert slaq.status(client)["jobs"] == {}


def test_a_job_repairs_though_it_does_not_instrument(client, rows):
    client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    with dask.config.set({"slaq.instrument": False}), slaq.job("a") as job:
        score(rows)
    assert job.iteration == 0


@pytest.fixture
def toy(monkeypatch):
    module = ModuleType("slaq_toy_repair")
    module.broken, module.Class = "broken", type("Class", (), {})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_repair_that_fails_costs_one_warning_and_leaves_the_library(toy):
    def changes(module):
        return [(module, "broken", "mended"), (module, "gone", 1)]

    broken = Repairs({toy.__name__: changes})
    with pytest.warns(RuntimeWarning, match="slaq_toy_repair was not repaired") as warned, broken:
        pass
    assert len(warned) == 1
    assert toy.broken == "broken"
