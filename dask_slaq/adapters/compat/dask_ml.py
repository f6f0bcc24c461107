"""What is broken in dask-ml 2025.1.0 by newer Dask, pandas and scikit-learn, and how it is mended.

For each fault a function says whether it is there, by the signature or behaviour of what is
installed, and another gives the replacements. Nothing here changes a result: without the repair
there is none.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import dask
import numpy as np

from dask_slaq.adapters.observing import Proxy, names_used

Changes = list[tuple[Any, str, Any]]


# Incremental searches: their coroutine calls `dask.persist`, which since dask 2025.3.0 refuses to
# run in the event loop of a client (dask-ml#1016).


def search_is_refused(module: ModuleType) -> bool:
    """Whether the search calls `dask.persist`, and this Dask refuses that."""
    release = tuple(int(part) for part in dask.__version__.split(".")[:2])
    return release >= (2025, 3) and {"dask", "persist"} <= names_used(module._fit.__code__)


def persist_by_client(module: ModuleType) -> Changes:
    """The module's `dask` persists through the client where that is asynchronous."""
    return [(module, "dask", Proxy(module.dask, persist=persist))]


def persist(*collections: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`dask.persist`, which may also be called in the event loop of the current client."""
    from dask.base import unpack_collections
    from distributed import default_client

    try:
        client = default_client()
    except ValueError:
        return dask.persist(*collections, **kwargs)
    if not client.asynchronous:
        return dask.persist(*collections, **kwargs)
    found, repack = unpack_collections(*collections)
    return repack(client.persist(found, **kwargs)) if found else collections


# k-means++ calls a private function of scikit-learn, which since 1.3 must be given weights.


def start_lacks_weights(module: ModuleType) -> bool:
    """Whether scikit-learn's function needs weights and the library gives none."""
    weight = inspect.signature(module._kmeans_plusplus).parameters.get("sample_weight")
    needed = weight is not None and weight.default is inspect.Parameter.empty
    return needed and "sample_weight" not in _keywords(module.init_pp)


def _keywords(function: Any) -> set[str]:
    """Keywords that a function calls others with: they are tuples among its constants."""
    tuples = [c for c in function.__code__.co_consts if isinstance(c, tuple)]
    return {name for names in tuples for name in names if isinstance(name, str)}


def start_with_equal_weights(module: ModuleType) -> Changes:
    """Every row weighs one."""
    original = module._kmeans_plusplus

    def _kmeans_plusplus(X: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("sample_weight", np.ones(X.shape[0], dtype=X.dtype))
        return original(X, *args, **kwargs)

    return [(module, "_kmeans_plusplus", _kmeans_plusplus)]


# r2_score assigns to a part of an array whose length is not known before it is computed, which
# Dask refuses since 2025.2.0 (dask-ml#1012; mended there by #1013, unreleased).


def score_fails(module: ModuleType) -> bool:
    """Whether the score of two small arrays cannot even be set up."""
    import dask.array as da

    y = da.ones(2, chunks=2)
    try:
        module.r2_score(y, y, compute=False)
    except ValueError:
        return True
    return False


def score_by_where(module: ModuleType) -> Changes:
    """The code of the function itself: it is known by many names."""
    return [(module.r2_score, "__code__", _r2_score.__code__)]


def _r2_score(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    multioutput: Any = "uniform_average",
    compute: bool = True,
) -> Any:
    # Runs among the globals of dask-ml's module.
    from dask_slaq.adapters.compat.dask_ml import r2_score

    return r2_score(y_true, y_pred, sample_weight, multioutput, compute)


def r2_score(y_true: Any, y_pred: Any, sample_weight: Any, multioutput: Any, compute: bool) -> Any:
    """1 - u / v, with u the residual and v the total sum of squares; 1 if both are 0, 0 if v is.

    ``sklearn.metrics.r2_score``, for what dask-ml's function of this name allows: no weights, and
    the mean over outputs.
    """
    import dask.array as da
    from dask_ml.metrics import regression

    # Not reshaped there: that needs the length.
    y_true, y_pred = (y[:, None] if y.ndim == 1 else y for y in (y_true, y_pred))
    regression._check_sample_weight(sample_weight)
    _, y_true, y_pred, _ = regression._check_reg_targets(y_true, y_pred, multioutput)
    residual = ((y_true - y_pred) ** 2).sum(axis=0, dtype="f8")
    total = ((y_true - y_true.mean(axis=0)) ** 2).sum(axis=0, dtype="f8")
    scores = 1 - residual / da.where(total == 0, 1, total)
    scores = da.where(total == 0, da.where(residual == 0, 1.0, 0.0), scores)
    result = scores.mean(axis=0)
    return result.compute() if compute and hasattr(result, "compute") else result


# PCA has no `power_iteration_normalizer`, which scikit-learn reads since 1.8 (dask-ml#1023).


def normalizer_is_missing(module: ModuleType) -> bool:
    """Whether scikit-learn's class reads an attribute that the library's lacks."""
    tags = getattr(module.sklearn.decomposition.PCA, "__sklearn_tags__", None)
    name = "power_iteration_normalizer"
    return tags is not None and name in names_used(tags.__code__) and not hasattr(module.PCA, name)


def normalizer(module: ModuleType) -> Changes:
    """The default, for the class and so for IncrementalPCA."""
    return [(module.PCA, "power_iteration_normalizer", "auto")]


# Hashed text: Dask infers the result from a made-up series. Of strings some are missing in it, and
# for objects it has no texts any more, with pandas 3.


def hashing_fails(module: ModuleType) -> bool:
    """Whether hashing a series of texts cannot even be set up, be they strings or objects."""
    import pandas as pd

    for dtype in (None, object):
        texts = module.dd.from_pandas(pd.Series(["text"], dtype=dtype), npartitions=1)
        try:
            module.HashingVectorizer().transform(texts)
        except ValueError:
            return True
    return False


def hash_without_inference(module: ModuleType) -> Changes:
    """Dask is told what comes out, for texts and features alike."""
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
