"""Repairs of dask-ml 2025.1.0 where newer releases of Dask, pandas and scikit-learn broke it.

No newer release is out: the next one ends all of them (`LAST_RELEASE`). No repair changes a result;
where its fault is absent, it does what the library does. Names in dask-ml's modules are replaced
while a block is open, and put back when the last one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from types import ModuleType
from typing import Any

import dask
import numpy as np

from dask_slaq.adapters.observing import Proxy, WhileOpen, warn_once
from dask_slaq.config import repairs_libraries

#: Newest release of dask-ml that has the faults.
LAST_RELEASE = (2025, 1, 0)

#: (holder, attribute, new value) for each attribute to replace.
Changes = list[tuple[Any, str, Any]]


# Incremental searches: their coroutine calls `dask.persist`, which raises in the event loop of a
# client since dask 2025.3.0 (dask-ml#1016).
def _persist(*collections: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Do what `dask.persist` does, also in the event loop of the current client."""
    from dask.base import unpack_collections
    from distributed import default_client

    client = default_client()  # a search has asked for it before
    if not client.asynchronous:
        return dask.persist(*collections, **kwargs)
    found, repack = unpack_collections(*collections)
    return repack(client.persist(found, **kwargs)) if found else collections


# k-means++: it calls a private function of scikit-learn without the weights that this requires
# since 1.3.
def _start_with_equal_weights(module: ModuleType) -> Changes:
    original = module._kmeans_plusplus

    def _kmeans_plusplus(X: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("sample_weight", np.ones(X.shape[0], dtype=X.dtype))
        return original(X, *args, **kwargs)

    return [(module, "_kmeans_plusplus", _kmeans_plusplus)]


# r2_score: it assigns to a slice of an array of unknown length, which Dask rejects since 2025.2.0
# (ended by dask-ml#1013).
def _r2_score(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    multioutput: Any = "uniform_average",
    compute: bool = True,
) -> Any:
    # Each output scores 1 - u / v, the residual over the total sum of squares; 1 if both are 0, 0
    # if only v is.
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


# Hashed text: Dask infers the result from a made-up series. One of strings has missing values, and
# with pandas 3 one of objects no longer has text.
def _hash_without_inference(module: ModuleType) -> Changes:
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


#: What is changed, by module.
REPAIRS: dict[str, Callable[[ModuleType], Changes]] = {
    "dask_ml.model_selection._incremental": lambda module: [
        (module, "dask", Proxy(module.dask, persist=_persist))
    ],
    "dask_ml.cluster.k_means": _start_with_equal_weights,
    "dask_ml.metrics": lambda module: [(module, "r2_score", _r2_score)],
    "dask_ml.linear_model.glm": lambda module: [(module, "r2_score", _r2_score)],
    "dask_ml.metrics.scorer": lambda module: [
        (module, "SCORERS", {**module.SCORERS, "r2": (_r2_score, {})})
    ],
    # PCA and IncrementalPCA lack an attribute that scikit-learn reads since 1.8 (dask-ml#1023).
    "dask_ml.decomposition.pca": lambda module: [
        (module.PCA, "power_iteration_normalizer", "auto")
    ],
    "dask_ml.feature_extraction.text": _hash_without_inference,
}


def _has_faults() -> bool:
    release = version("dask-ml").split(".")[:3]
    return tuple(int(part) if part.isdigit() else 0 for part in release) <= LAST_RELEASE


class Repairs(WhileOpen):
    """Context manager of repairs, at most one per module, that are there while a block is open."""

    def __init__(self, repairs: Mapping[str, Callable[[ModuleType], Changes]]) -> None:
        self._repairs = repairs
        super().__init__(repairs)

    def patch(self, name: str, module: ModuleType) -> None:
        """Repair a module."""
        try:
            if _has_faults():
                self._replacements.put(*self._repairs[name](module))
        except Exception as error:
            warn_once(name, f"{name} was not repaired: {error!r}")


_repairs = Repairs(REPAIRS)


def while_open() -> AbstractContextManager[None]:
    """Return a context in which the repairs are applied, if ``slaq.repairs`` is true.

    Raises `InvalidSetting` if the setting is invalid.
    """
    return _repairs if repairs_libraries() else nullcontext()
