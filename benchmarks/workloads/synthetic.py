"""Synthetic data sets of any size, generated from a seed, block by block on the workers.

A few strong directions hold most of the signal. The weak directions are learned much later, which
gives training a long tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

FEATURES = 30
STRONG = 6
CLUSTERS = 40
CLUSTER_FEATURES = 10
GROUPS = 5
WORDS = 300
TOPICS = 12
WORDS_IN_DOCUMENT = 60

Block = np.ndarray
Random = np.random.Generator


def _features(random: Random, shared: Random, rows: int) -> tuple[Block, Block]:
    """Return correlated features of decaying scale, and the independent directions behind them."""
    scales = np.concatenate([np.ones(STRONG), np.geomspace(0.5, 0.05, FEATURES - STRONG)])
    basis, _ = np.linalg.qr(shared.standard_normal((FEATURES, FEATURES)))
    directions = random.standard_normal((rows, FEATURES))
    return (directions * scales) @ basis, directions


def _weights(shared: Random) -> Block:
    """Return weights of the directions; strong ones hold 90 % of the variance of the signal."""
    parts = [np.full(STRONG, 0.9 / STRONG), np.full(FEATURES - STRONG, 0.1 / (FEATURES - STRONG))]
    return np.sqrt(np.concatenate(parts)) * shared.choice([-1.0, 1.0], FEATURES)


def _classes(random: Random, shared: Random, rows: int) -> Block:
    """Generate two classes that a hyperplane separates, up to noise."""
    X, directions = _features(random, shared, rows)
    chance = 1.0 / (1.0 + np.exp(-4.0 * directions @ _weights(shared)))
    return np.column_stack([X, random.random(rows) < chance])


def _curved(random: Random, shared: Random, rows: int) -> Block:
    """Generate two classes, separated by products of neighbouring directions and a hyperplane."""
    X, directions = _features(random, shared, rows)
    signal = directions[:, :STRONG:2] * directions[:, 1:STRONG:2]
    score = signal.sum(axis=1) + 0.5 * directions @ _weights(shared)
    return np.column_stack([X, score + 0.2 * random.standard_normal(rows) > 0.0])


def _amounts(random: Random, shared: Random, rows: int) -> Block:
    """Generate targets that are linear in the features, with noise."""
    X, directions = _features(random, shared, rows)
    y = 3.0 + directions @ _weights(shared) + 0.2 * random.standard_normal(rows)
    return np.column_stack([X, y])


def _steps(random: Random, shared: Random, rows: int) -> Block:
    """Generate targets that are nonlinear in a few features (Friedman 1991, with a jump)."""
    X = random.random((rows, FEATURES))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * (X[:, 4] > 0.6) + random.standard_normal(rows)
    return np.column_stack([X, y])


def _groups(random: Random, shared: Random, rows: int) -> Block:
    """Generate several classes that a network with one hidden layer separates, up to noise."""
    X, directions = _features(random, shared, rows)
    hidden = np.tanh(directions[:, :STRONG] @ shared.standard_normal((STRONG, 12)))
    score = hidden @ shared.standard_normal((12, GROUPS))
    return np.column_stack([X, (score + 0.3 * random.standard_normal(score.shape)).argmax(axis=1)])


def _clusters(random: Random, shared: Random, rows: int) -> Block:
    """Generate overlapping clusters."""
    centers = shared.standard_normal((CLUSTERS, CLUSTER_FEATURES))
    members = random.integers(CLUSTERS, size=rows)
    return centers[members] + random.standard_normal((rows, CLUSTER_FEATURES))


def _documents(random: Random, shared: Random, rows: int) -> Block:
    """Generate word counts from the model of latent Dirichlet allocation."""
    topics = shared.dirichlet(np.full(WORDS, 0.05), TOPICS)
    shares = random.dirichlet(np.full(TOPICS, 0.2), rows)
    return random.multinomial(WORDS_IN_DOCUMENT, shares @ topics).astype(float)


_MAKERS: dict[str, tuple[Callable[[Random, Random, int], Block], int, type | None]] = {
    # name: (function that generates a block, columns without y, type of y)
    "classes": (_classes, FEATURES, int),
    "curved": (_curved, FEATURES, int),
    "amounts": (_amounts, FEATURES, float),
    "steps": (_steps, FEATURES, float),
    "groups": (_groups, FEATURES, int),
    "clusters": (_clusters, CLUSTER_FEATURES, None),
    "documents": (_documents, WORDS, None),
}
#: Names of the kinds of data.
KINDS = tuple(_MAKERS)


def make(kind: str, rows: int, partitions: int, seed: int = 0) -> tuple[da.Array, ...]:
    """Return a synthetic data set as lazy dask arrays: X, and y for supervised learning.

    The same seed, rows and partitions give the same data on any workers.
    """
    if rows < partitions:
        raise ValueError(f"rows must be at least {partitions}, one per partition, not {rows}")
    _, features, target = _MAKERS[kind]
    sizes = tuple(rows // partitions + (i < rows % partitions) for i in range(partitions))
    table = da.map_blocks(
        _block,
        kind,
        seed,
        chunks=(sizes, (features + (target is not None),)),
        dtype=float,
        meta=np.empty((0, 0)),
    )
    if target is None:
        return (table,)
    X = table.map_blocks(_without_last, chunks=(sizes, (features,)), meta=np.empty((0, 0)))
    y = table.map_blocks(_last, target, drop_axis=1, meta=np.empty(0, target))
    return X, y


def _block(kind: str, seed: int, block_info: dict[Any, Any]) -> Block:
    rows, number = block_info[None]["chunk-shape"][0], block_info[None]["chunk-location"][0]
    random, shared = np.random.default_rng([seed, number]), np.random.default_rng(seed)
    return np.asarray(_MAKERS[kind][0](random, shared, rows), dtype=float)


def _without_last(table: Block) -> Block:
    return np.ascontiguousarray(table[:, :-1])


def _last(table: Block, dtype: type) -> Block:
    return table[:, -1].astype(dtype)
