"""Training with xgboost on a worker set that may change: ``dask_slaq.xgboost.train``.

It trains in short steps, between which the rows move to the workers that the job is granted.
"""

from __future__ import annotations

import numbers
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np

from dask_slaq.adapters.observing import stopped
from dask_slaq.adapters.optional import optional
from dask_slaq.client.connection import current_client
from dask_slaq.client.queries import status
from dask_slaq.core.errors import StopTraining

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
    """Train an xgboost model in steps, each on the workers that are granted at its start.

    In a job block, every round reports its loss, as with `xgboost.dask.train`.

    Parameters
    ----------
    params : Mapping of str to object
        Parameters of `xgboost.train`.
    X : dask array, (n_rows, n_columns)
        Training data.
    y : dask array, (n_rows,)
        Targets, split into partitions like `X`.
    num_boost_round : int
        Total number of rounds.
    rounds_per_step : int
        Number of rounds between two changes of the worker set. Each step rebuilds the training
        matrices.
    workers : callable, optional
        Called before each step to return the addresses of the workers to use. By default, a step
        uses the workers granted to the open job, or all workers if no other job contends for them.
    client : distributed.Client, optional
        The default is the current client.

    Returns
    -------
    xgboost.Booster
        Trained model. Without random sampling, it is the same for every choice of workers and
        steps, up to rounding of the sums over rows. If rows or columns are sampled, the seed of
        each step is ``params["seed"]`` plus the number of rounds before the step.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or an invalid value.
    ImportError
        If xgboost is not installed.

    Notes
    -----
    Columns are binned once, before the first step, into quantiles: as many as the parameter
    ``max_bin``, 256 by default. `slaq.stop` ends the training with the trees so far.

    Examples
    --------
    >>> import dask_slaq as slaq
    >>> with slaq.job("trees"):  # doctest: +SKIP
    ...     booster = slaq.xgboost.train({"max_depth": 3}, X, y, 200, rounds_per_step=10)
    >>> xgboost.dask.predict(client, booster, X)  # doctest: +SKIP
    """
    library = optional("xgboost.dask", "xgboost")
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
        # If one of the workers has left in the meantime, its rows go to another one.
        with dask.annotate(workers=targets, allow_other_workers=True):
            matrix = library.DaskDMatrix(client, X, y)
        try:
            model = library.train(
                client,
                {**params, "seed": params.get("seed", 0) + done},
                matrix,
                num_boost_round=min(rounds_per_step, num_boost_round - done),
                xgb_model=model,
            )["booster"]
        except StopTraining:  # before this step
            if model is None:
                raise
            break
        if stopped():
            break
    return model


def granted(client: Client) -> list[str]:
    """Return the addresses of the workers granted to the job of this context.

    They are all workers if there is no open job or no other job contends for them.
    """
    name = (dask.get_annotations() or {}).get("slaq_job")
    if name is not None:
        now = status(client)
        job = now["jobs"].get(name)
        if job and job["workers"] and now["holding"]:
            return list(job["workers"])
    return sorted(client.nthreads())


def binned(client: Client, X: da.Array, bins: int) -> da.Array:
    """Replace each value of persisted rows by the lower edge of its bin, a float32.

    xgboost's own bins depend on how the rows are distributed. These edges, at most `bins` per
    column, are quantiles of the quantiles of the partitions, and do not depend on where the
    partitions are. A tree grown on the edges splits the original values in the same way.
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
    """Assign partitions, which are at `homes`, evenly to workers, and move as few as possible.

    Raises `ValueError` if `workers` is empty.

    Examples
    --------
    >>> place(["a", "a", "a", "c"], ["a", "b"])
    ['a', 'a', 'b', 'b']
    """
    if not workers:
        raise ValueError("there are no workers to train on")
    each, more = divmod(len(homes), len(workers))
    held = {w: sum(home == w for home in homes) for w in workers}
    # The workers that hold the most partitions already keep the remainder.
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


def _check(num_boost_round: Any, rounds_per_step: Any) -> None:
    given = {"num_boost_round": num_boost_round, "rounds_per_step": rounds_per_step}
    for name, value in given.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")


def _partitions(client: Client, X: Any, y: Any) -> tuple[da.Array, da.Array]:
    """Validate X and y, and persist them with all columns in each partition."""
    if not isinstance(X, da.Array) or not isinstance(y, da.Array):
        raise TypeError("X and y must be dask arrays; see dask.array.from_array")
    if X.ndim != 2 or y.ndim != 1:
        raise ValueError(f"X must have 2 dimensions and y 1, not {X.ndim} and {y.ndim}")
    if X.chunks[0] != y.chunks[0]:
        raise ValueError(f"X and y must be split alike by rows: {X.chunks[0]} and {y.chunks[0]}")
    X, y = client.persist([X.rechunk({1: -1}), y])
    return X, y


def _futures(array: da.Array) -> list[Any]:
    """Return the blocks of a persisted array, in order."""
    graph = dict(array.__dask_graph__())
    return [graph[key] for key in dask.core.flatten(array.__dask_keys__())]


def _homes(client: Client, array: da.Array) -> list[str]:
    """Return the address of one worker per block that holds the block."""
    from distributed import wait

    futures = _futures(array)
    wait(futures)
    where = client.who_has(futures)
    return [next(iter(where[future.key]), "") for future in futures]


def _moved(client: Client, array: da.Array, places: Sequence[str]) -> da.Array:
    """Move the blocks of an array to the workers in `places`. Blocks that stay are not copied."""
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
    """Return `n` evenly spaced order statistics of each column."""
    return [_order_statistics(column, n) for column in np.asarray(block, "f4").T]


def _edges(some: Sequence[list[np.ndarray]], bins: int) -> list[np.ndarray]:
    """Return the lower edges of the bins of each column, in ascending order."""
    columns = (np.concatenate(parts) for parts in zip(*some, strict=True))
    return [np.unique(_order_statistics(column, bins)) for column in columns]


def _order_statistics(values: np.ndarray, n: int) -> np.ndarray:
    """Return `n` evenly spaced order statistics, minimum to maximum, ignoring missing values."""
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
