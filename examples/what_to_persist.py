"""What is worth keeping in memory? A first run tells; plain Dask makes each input again.

Run it with ``python examples/what_to_persist.py``. Hashed text trains an SGD classifier over
several passes, and made features train a pipeline of scaling, truncated SVD and logistic
regression. Nothing is persisted at first, so each pass and each iteration makes its input again.
``persisting.watch`` says which result to persist, and second runs do that.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
from dask_ml.decomposition import TruncatedSVD
from dask_ml.feature_extraction.text import HashingVectorizer
from dask_ml.linear_model import LogisticRegression
from dask_ml.preprocessing import StandardScaler
from dask_ml.wrappers import Incremental
from distributed import Client, LocalCluster
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import dask_slaq as slaq
from dask_slaq.lab import persisting

PARTITIONS, DOCUMENTS, PASSES = 6, 1000, 4


def read(part: int) -> list[str]:
    """Return the documents of one partition: the words of class 1 are a little different."""
    rng = np.random.default_rng(part)
    classes = labels(part)
    words = rng.integers(0, 2000, (DOCUMENTS, 120)) + 200 * classes[:, None]
    return [" ".join(f"word{word}" for word in document) for document in words]


def labels(part: int) -> np.ndarray:
    """Return the classes of the documents of one partition."""
    return np.random.default_rng(-part % 997).integers(0, 2, DOCUMENTS)


def hashed_text(persist: bool) -> np.ndarray:
    """Train a classifier on text. Returns its coefficients."""
    text = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS).map(read).flatten()
    X = HashingVectorizer(n_features=2**12, alternate_sign=False).transform(text)
    y = da.from_array(np.concatenate([labels(part) for part in range(PARTITIONS)]), DOCUMENTS)
    if persist:
        X = X.persist()
    model: Any = Incremental(SGDClassifier(loss="log_loss", random_state=0), shuffle_blocks=False)
    for _ in range(PASSES):
        model.partial_fit(X, y, classes=[0, 1])
    return model.estimator_.coef_


def features(block: np.ndarray) -> np.ndarray:
    """Return features that take a while to make."""
    rng = np.random.default_rng(int(block[0, 0]))
    wide = rng.standard_normal((DOCUMENTS, 1000))
    return np.tanh(wide) @ rng.standard_normal((1000, 20))


def pipeline(persist: bool) -> np.ndarray:
    """Train a pipeline on features. Returns its coefficients."""
    parts = da.arange(PARTITIONS, chunks=1).reshape(-1, 1)
    # With an annotation of their own, Dask does not fuse them into the next step, where nobody sees
    # them.
    with dask.annotate(made="features"):
        X = parts.map_blocks(features, chunks=((DOCUMENTS,) * PARTITIONS, (20,)), dtype=float)
    y = da.from_array(np.concatenate([labels(part) for part in range(PARTITIONS)]), DOCUMENTS)
    train = LogisticRegression(solver="gradient_descent", max_iter=2)
    steps = [("scale", StandardScaler()), ("svd", TruncatedSVD(5, random_state=0))]
    if persist:  # the features, and what the decomposition made of them
        X = X.persist()
        steps.append(("keep", FunctionTransformer(lambda Z: Z.persist())))
    steps.append(("train", train))
    return Pipeline(steps).fit(X, y)[-1].coef_


def main() -> None:
    found = {}
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        for train in (hashed_text, pipeline):
            for way in ("as it is", "persisted"):
                begin = perf_counter()
                with persisting.watch(client, "1 GiB") as advice, slaq.job(train.__name__):
                    model = train(way == "persisted")
                found[train.__name__, way] = model, perf_counter() - begin
                print(f"{train.__name__} {way}:\n{advice}\n")
    for name in ("hashed_text", "pipeline"):
        (first, as_is), (second, persisted) = found[name, "as it is"], found[name, "persisted"]
        same = "equal" if np.allclose(first, second) else "different"
        print(f"{name}: {as_is:.1f} s, persisted: {persisted:.1f} s; the models are {same}")


if __name__ == "__main__":
    main()
