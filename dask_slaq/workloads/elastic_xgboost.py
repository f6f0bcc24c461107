"""Gradient boosting by xgboost whose worker set may change while it trains.

``xgboost.dask.train`` keeps its workers for a whole run. Here a run is a chain of short ones, each
of which continues the model so far; in between the rows are moved to the workers that the job is
granted by then. Columns are binned once, before: xgboost's own bins depend on which rows are where.
"""

from __future__ import annotations

import numbers
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np

from dask_slaq.client.connection import current_client
from dask_slaq.client.queries import status

if TYPE_CHECKING:
    from distributed import Client
    from xgboost import Booster

__all__ = ["train"]


def train(
    params: Mapping[str, Any],
    X: da.Array,
    y: da.Array,
    num_boost_round: int = 100,
    *,
    rounds_per_step: int = 10,
    workers: Callable[[], Sequence[str]] | None = None,
    client: Client | None = None,
) -> Booster:
    """Boost trees by xgboost in steps, each on the workers that are granted by then.

    In a job block every round reports its loss, as `xgboost.dask.train` does there.

    Parameters
    ----------
    params : Mapping of str to object
        As of `xgboost.train`.
    X : dask array, (n_rows, n_columns)
    y : dask array, (n_rows,)
        Split by rows as `X` is.
    num_boost_round : int
        Rounds in all.
    rounds_per_step : int
        Rounds between two changes of the worker set. Each step builds its training matrices anew.
    workers : callable, optional
        Called before each step; returns the addresses of the workers for it. By default those that
        the open job is granted, or all workers where no other job contends for them.
    client : distributed.Client, optional
        The current one by default.

    Returns
    -------
    xgboost.Booster
        The same for every choice of workers and steps, up to the rounding of sums over rows, where
        nothing is drawn at random. Where rows or columns are sampled, each step has a seed of its
        own: ``params["seed"]`` plus the rounds before it.

    Raises
    ------
    TypeError, ValueError
        Arguments that are not as said above.
    ImportError
        xgboost is not installed.
    """
    library = _library()
    client = current_client(client)
    _check(num_boost_round, rounds_per_step)
    X, y = _partitions(client, X, y)
    X = binned(client, X, params.get("max_bin", 256))
    choose = workers or (lambda: granted(client))
    model: Any = None
    places: list[str] = []
    for done in range(0, num_boost_round, rounds_per_step):
        targets = list(choose())
        before, places = places, place(places or _homes(client, X), targets)
        if places != before:
            X, y = _moved(client, X, places), _moved(client, y, places)
        # Should one of them have left by now, its rows go to another.
        with dask.annotate(workers=targets, allow_other_workers=True):
            matrix = library.DaskDMatrix(client, X, y)
        model = library.train(
            client,
            {**params, "seed": params.get("seed", 0) + done},
            matrix,
            num_boost_round=min(rounds_per_step, num_boost_round - done),
            xgb_model=model,
        )["booster"]
    return model


def granted(client: Client) -> list[str]:
    """Addresses of the workers that the job of this context holds; of all where none contends."""
    name = (dask.get_annotations() or {}).get("slaq_job")
    if name is not None:
        now = status(client)
        job = now["jobs"].get(name)
        if job and job["workers"] and now["holding"]:
            return list(job["workers"])
    return sorted(client.nthreads())


def binned(client: Client, X: da.Array, bins: int) -> da.Array:
    """Replace each value by the lower edge of its bin, one of at most `bins` in its column.

    The edges are quantiles of quantiles of the partitions, so they depend on the rows alone, and
    a tree that is grown on the edges splits the values themselves in the same way.
    """
    most = max(X.chunks[0])
    some = [
        client.submit(_quantiles, block, -(-bins * rows // most), pure=False)
        for block, rows in zip(_futures(X), X.chunks[0], strict=True)
    ]
    edges = client.submit(_edges, some, bins, pure=False)
    name = f"binned-{uuid.uuid4().hex}"
    keys = [(name, i, 0) for i in range(len(some))]
    graph = {
        key: client.submit(_bin, block, edges, key=key)
        for key, block in zip(keys, _futures(X), strict=True)
    }
    return da.Array(graph, name, X.chunks, meta=np.empty((0, 0), "f4"))


def place(homes: Sequence[str], workers: Sequence[str]) -> list[str]:
    """Spread partitions over workers evenly, and move as few as that takes.

    Parameters
    ----------
    homes : sequence of str
        Where each partition is.
    workers : sequence of str
        Where they may be.

    Returns
    -------
    list of str
        Where each is to be.

    Raises
    ------
    ValueError
        There are no workers.

    Examples
    --------
    >>> place(["a", "a", "a", "c"], ["a", "b"])
    ['a', 'a', 'b', 'b']
    """
    if not workers:
        raise ValueError("there are no workers to train on")
    each, more = divmod(len(homes), len(workers))
    held = {w: sum(home == w for home in homes) for w in workers}
    # Those that hold most already take what does not go even.
    order = sorted(workers, key=held.__getitem__, reverse=True)
    room = {w: each + (i < more) for i, w in enumerate(order)}
    places: list[str | None] = []
    for home in homes:
        stays = room.get(home, 0) > 0
        places.append(home if stays else None)
        if stays:
            room[home] -= 1
    free = iter([w for w in workers for _ in range(room[w])])
    return [home or next(free) for home in places]


def _library() -> Any:
    try:
        import xgboost.dask
    except ImportError as error:
        raise ImportError("xgboost is not installed: pip install dask-slaq[xgboost]") from error
    return xgboost.dask


def _check(num_boost_round: Any, rounds_per_step: Any) -> None:
    for name, value in {
        "num_boost_round": num_boost_round,
        "rounds_per_step": rounds_per_step,
    }.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")


def _partitions(client: Client, X: Any, y: Any) -> tuple[da.Array, da.Array]:
    """X and y in memory on the workers, each partition with all columns."""
    if not isinstance(X, da.Array) or not isinstance(y, da.Array):
        raise TypeError("X and y must be dask arrays; see dask.array.from_array")
    if X.ndim != 2 or y.ndim != 1:
        raise ValueError(f"X must have 2 dimensions and y 1, not {X.ndim} and {y.ndim}")
    if X.chunks[0] != y.chunks[0]:
        raise ValueError(f"X and y must be split alike by rows: {X.chunks[0]} and {y.chunks[0]}")
    X, y = client.persist([X.rechunk({1: -1}), y])
    return X, y


def _futures(array: da.Array) -> list[Any]:
    """The blocks of a persisted array, in order."""
    graph = dict(array.__dask_graph__())
    return [graph[key] for key in dask.core.flatten(array.__dask_keys__())]


def _homes(client: Client, array: da.Array) -> list[str]:
    """A worker that has each block."""
    from distributed import wait

    futures = _futures(array)
    wait(futures)
    where = client.who_has(futures)
    return [next(iter(where[future.key]), "") for future in futures]


def _moved(client: Client, array: da.Array, places: Sequence[str]) -> da.Array:
    """The same array with its blocks on those workers; those that stay are not copied."""
    name = f"placed-{uuid.uuid4().hex}"
    graph = {}
    for future, worker in zip(_futures(array), places, strict=True):
        key = (name, *future.key[1:])
        graph[key] = client.submit(
            _itself, future, key=key, workers=[worker], allow_other_workers=True
        )
    return da.Array(graph, name, array.chunks, meta=array._meta)


def _itself(block: Any) -> Any:
    return block


def _quantiles(block: np.ndarray, n: int) -> list[np.ndarray]:
    """Evenly spaced order statistics of each column."""
    return [_order_statistics(column, n) for column in np.asarray(block, "f4").T]


def _edges(some: Sequence[list[np.ndarray]], bins: int) -> list[np.ndarray]:
    """Lower edges of the bins of each column, ascending."""
    columns = (np.concatenate(parts) for parts in zip(*some, strict=True))
    return [np.unique(_order_statistics(column, bins)) for column in columns]


def _order_statistics(values: np.ndarray, n: int) -> np.ndarray:
    """The least, the greatest and what lies evenly between, without what is missing."""
    known = values[~np.isnan(values)]
    return np.quantile(known, np.linspace(0, 1, n), method="lower") if len(known) else known


def _bin(block: np.ndarray, edges: Sequence[np.ndarray]) -> np.ndarray:
    values = np.array(block, "f4")
    for column, lower in zip(values.T, edges, strict=True):
        known = ~np.isnan(column)
        if len(lower):
            bins = np.searchsorted(lower, column[known], side="right") - 1
            column[known] = lower[np.maximum(bins, 0)]
    return values
