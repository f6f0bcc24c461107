"""Faults of dask-ml 2025.1.0 with newer Dask, pandas and scikit-learn, and their repairs.

Two functions per fault: one checks the installed libraries for it, the other returns the
replacements. No repair changes a result: without it there is only an error. dask-ml 2025.1.0
is the newest release. It needs all five with dask 2026.8.0, scikit-learn 1.9 and pandas 3.1; with
dask 2025.1.0 and scikit-learn 1.7, `k-means++` and `text-hashing`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dask
import numpy as np

from dask_slaq.adapters.observing import Proxy, names_used

Changes = list[tuple[Any, str, Any]]


# Incremental searches. Their coroutine calls `dask.persist`, which raises in the event loop of a
# client since dask 2025.3.0 (dask-ml#1016).


def search_is_refused(module: ModuleType) -> bool:
    """Return whether the search calls `dask.persist` and the installed Dask rejects the call."""
    release = tuple(int(part) for part in dask.__version__.split(".")[:2])
    return release >= (2025, 3) and {"dask", "persist"} <= names_used(module._fit.__code__)


def persist_by_client(module: ModuleType) -> Changes:
    """Replace the module's `dask` by one that persists through an asynchronous client."""
    return [(module, "dask", Proxy(module.dask, persist=persist))]


def persist(*collections: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Do what `dask.persist` does, also in the event loop of the current client."""
    from dask.base import unpack_collections
    from distributed import default_client

    client = default_client()  # a search has asked for it before
    if not client.asynchronous:
        return dask.persist(*collections, **kwargs)
    found, repack = unpack_collections(*collections)
    return repack(client.persist(found, **kwargs)) if found else collections


# k-means++. It calls a private function of scikit-learn, which requires weights since 1.3, without.


def start_lacks_weights(module: ModuleType) -> bool:
    """Return whether dask-ml passes no weights.

    CPython keeps the keywords of a call as a tuple among the constants of the code.
    """
    constants = module.init_pp.__code__.co_consts
    return not any("sample_weight" in each for each in constants if isinstance(each, tuple))


def start_with_equal_weights(module: ModuleType) -> Changes:
    """Pass a weight of one for every row."""
    original = module._kmeans_plusplus

    def _kmeans_plusplus(X: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("sample_weight", np.ones(X.shape[0], dtype=X.dtype))
        return original(X, *args, **kwargs)

    return [(module, "_kmeans_plusplus", _kmeans_plusplus)]


# r2_score. It assigns to a slice of an array whose length is unknown until it is computed, which
# Dask rejects since 2025.2.0. The release of dask-ml that has its #1013 ends this.


def score_fails(module: ModuleType) -> bool:
    """Return whether building the graph of a score of two small arrays raises."""
    import dask.array as da

    y = da.ones(2, chunks=2)
    try:
        module.r2_score(y, y, compute=False)
    except ValueError:
        return True
    return False


def score_by_where(module: ModuleType) -> Changes:
    """Replace the code of the function in place, since other modules import it by name."""
    return [(module.r2_score, "__code__", _r2_score.__code__)]


def _r2_score(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    multioutput: Any = "uniform_average",
    compute: bool = True,
) -> Any:
    # This code runs with the globals of dask-ml's module, so it imports what it needs. Each output
    # scores 1 - u / v, the residual over the total sum of squares; 1 if both are 0, 0 if only v is.
    import dask.array as da
    from dask_ml.metrics.regression import _check_reg_targets, _check_sample_weight

    # Make both two-dimensional here, because dask-ml's reshape needs the length.
    y_true, y_pred = (y[:, None] if y.ndim == 1 else y for y in (y_true, y_pred))
    _check_sample_weight(sample_weight)
    _, y_true, y_pred, _ = _check_reg_targets(y_true, y_pred, multioutput)
    residual = ((y_true - y_pred) ** 2).sum(axis=0, dtype="f8")
    total = ((y_true - y_true.mean(axis=0)) ** 2).sum(axis=0, dtype="f8")
    scores = 1 - residual / da.where(total == 0, 1, total)
    scores = da.where(total == 0, da.where(residual == 0, 1.0, 0.0), scores)
    result = scores.mean(axis=0)
    return result.compute() if compute and hasattr(result, "compute") else result


# PCA. It lacks `power_iteration_normalizer`, which scikit-learn reads since 1.8 (dask-ml#1023).


def normalizer_is_missing(module: ModuleType) -> bool:
    """Return whether scikit-learn's class reads an attribute that dask-ml's class lacks."""
    tags = getattr(module.sklearn.decomposition.PCA, "__sklearn_tags__", None)
    name = "power_iteration_normalizer"
    return tags is not None and name in names_used(tags.__code__) and not hasattr(module.PCA, name)


def normalizer(module: ModuleType) -> Changes:
    """Add scikit-learn's default to the class, and thereby to IncrementalPCA."""
    return [(module.PCA, "power_iteration_normalizer", "auto")]


# Hashed text. Dask infers the result from a made-up series. A series of strings contains missing
# values, and with pandas 3 a series of objects no longer contains text.


def hashing_fails(module: ModuleType) -> bool:
    """Return whether building the graph that hashes a series of strings or objects raises."""
    import pandas as pd

    for dtype in (None, object):
        texts = module.dd.from_pandas(pd.Series(["text"], dtype=dtype), npartitions=1)
        try:
            module.HashingVectorizer().transform(texts)
        except ValueError:
            return True
    return False


def hash_without_inference(module: ModuleType) -> Changes:
    """Pass the result type to Dask in both ``HashingVectorizer`` and ``FeatureHasher``."""
    original = module._BaseHasher.transform

    def transform(self: Any, raw_X: Any) -> Any:
        if not isinstance(raw_X, module.dd.Series):
            return original(self, raw_X)
        sparse = module.scipy.sparse
        empty = sparse.csr_matrix((0, self.n_features), dtype=self.dtype)
        result = raw_X.map_partitions(self._transformer, meta=empty)
        result._meta = sparse.eye(0, format="csr")  # as the library does
        return result

    return [(module._BaseHasher, "transform", transform)]
