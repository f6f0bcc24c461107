"""Synthetic data sets of the demo, made on the workers from a seed and kept in their memory.

The features are correlated and the clusters overlap. As with most real data, training gains a
lot at first and then little for a long time.
"""

from __future__ import annotations

from collections.abc import Callable

import dask.array as da
import numpy as np

FEATURES = 20
CLUSTER_FEATURES = 16
CLUSTERS = 48

# A few strong directions hold most of the signal and are learned in about ten iterations. The weak
# ones make the long tail.
_STRONG = 10
_WEAK = FEATURES - _STRONG
_SPREAD = np.concatenate([np.geomspace(1.0, 0.5, _STRONG), 0.08 / np.arange(1, _WEAK + 1)])
_SIGNAL = np.concatenate([np.full(_STRONG, 0.93 / _STRONG), np.full(_WEAK, 0.07 / _WEAK)]) ** 0.5

DataSet = tuple[da.Array, da.Array | None]


def _features(rng: np.random.Generator, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features (rows, FEATURES) and their signal of unit variance (rows,)."""
    of_all_blocks = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(of_all_blocks.standard_normal((FEATURES, FEATURES)))
    sign = of_all_blocks.choice([-1.0, 1.0], FEATURES)
    directions = rng.standard_normal((rows, FEATURES))
    return (directions * _SPREAD) @ basis, directions @ (sign * _SIGNAL)


def _classes(rng: np.random.Generator, rows: int, seed: int) -> np.ndarray:
    X, signal = _features(rng, rows, seed)
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(-3.0 * signal))
    return np.column_stack([X, y])


def _amounts(rng: np.random.Generator, rows: int, seed: int) -> np.ndarray:
    X, signal = _features(rng, rows, seed)
    return np.column_stack([X, signal + 0.3 * rng.standard_normal(rows)])


def _counts(rng: np.random.Generator, rows: int, seed: int) -> np.ndarray:
    X, signal = _features(rng, rows, seed)
    return np.column_stack([X, rng.poisson(np.exp(0.7 * signal))])


def _clusters(rng: np.random.Generator, rows: int, seed: int) -> np.ndarray:
    centers = 0.45 * np.random.default_rng(seed).standard_normal((CLUSTERS, CLUSTER_FEATURES))
    members = rng.integers(CLUSTERS, size=rows)
    return centers[members] + rng.standard_normal((rows, CLUSTER_FEATURES))


_MAKERS: dict[str, tuple[Callable[..., np.ndarray], int, bool]] = {
    # name: (one block of rows, columns, last column is y)
    "classes": (_classes, FEATURES + 1, True),
    "amounts": (_amounts, FEATURES + 1, True),
    "counts": (_counts, FEATURES + 1, True),
    "clusters": (_clusters, CLUSTER_FEATURES, False),
}
NAMES = tuple(_MAKERS)


def _block(name: str, rows: int, seed: int, block_info: dict | None = None) -> np.ndarray:
    number = block_info[None]["chunk-location"][0] if block_info else 0
    return _MAKERS[name][0](np.random.default_rng([seed, number]), rows, seed)


def load(name: str, *, rows: int, chunks: int, seed: int) -> DataSet:
    """Return a data set as lazy arrays.

    Parameters
    ----------
    name : str
        One of `NAMES`, or a workload of the catalogue.
    rows : int
        Rows per chunk. A workload of the catalogue scales them by its `size`.
    chunks : int
        Number of chunks.
    seed : int

    Returns
    -------
    X : dask.array.Array, shape (chunks * rows, n_features)
    y : dask.array.Array, shape (chunks * rows,), or None
        Target; None for clustering.
    """
    if name not in _MAKERS:
        from dask_slaq.workloads.catalogue import CATALOGUE

        X, *y = CATALOGUE[name].sized_data(rows, chunks, seed)
        return X, (y[0] if y else None)
    _, columns, has_target = _MAKERS[name]
    table = da.map_blocks(
        _block,
        name,
        rows,
        seed,
        chunks=((rows,) * chunks, (columns,)),
        dtype="f8",
        meta=np.empty((0, 0)),
    )
    return (table[:, :-1], table[:, -1]) if has_target else (table, None)
