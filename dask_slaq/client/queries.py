"""Questions to the scheduler: what every job does now, and what it was granted over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import current_client, request

if TYPE_CHECKING:
    import xarray
    from distributed import Client

_VARIABLES = {
    "iteration": "reports received",
    "loss": "last raw loss",
    "normalized_loss": "remaining loss over the whole predicted range, 1 to 0",
    "predicted": "predicted fall of the normalized loss by the next epoch",
    "share": "threads granted",
    "running": "tasks that hold a slot",
}


def status(client: Client | None = None) -> dict[str, Any]:
    """Every job now.

    Parameters
    ----------
    client : distributed.Client, optional
        The current one by default; an asynchronous one returns an awaitable.

    Returns
    -------
    dict
        ``policy``, ``epoch`` (seconds), ``capacity`` (threads), ``holding`` (whether tasks go
        through pools now), ``failed`` (why all is left to plain Dask, or None) and ``jobs``: by
        name, the values that `dask_slaq.scheduler.status.status_of_job` documents.

    Raises
    ------
    NoPlugin
    """
    client = current_client(client)
    return client.sync(request, client, "slaq_status")


def history(client: Client | None = None) -> xarray.Dataset:
    """What every job was granted, over the epochs that the scheduler remembers.

    Parameters
    ----------
    client : distributed.Client, optional
        The current one by default; an asynchronous one returns an awaitable.

    Returns
    -------
    xarray.Dataset
        Over (job, epoch), nan where a job did not run: ``iteration``, ``loss``,
        ``normalized_loss``, ``predicted``, ``share`` (threads), ``running`` (tasks); with the
        coordinate ``time`` (epoch), unix seconds.

    Raises
    ------
    NoPlugin
    """
    client = current_client(client)
    return client.sync(_history, client)


def bindings(client: Client | None = None) -> list[dict[str, Any]]:
    """Which task was sent to which worker, for which job, and why; oldest first.

    Returns
    -------
    list of dict
        ``time`` (unix seconds), ``key``, ``job``, ``worker`` (address), and ``reason``:
        ``granted``, ``floor`` (the job was behind its floor), ``lent``, or ``passed`` (the task
        was not held: it is short, pinned, or there was no contention).

    Raises
    ------
    NoPlugin
    """
    client = current_client(client)
    return client.sync(_bindings, client)


async def _history(client: Client) -> xarray.Dataset:
    pieces: list[dict[str, Any]] = []
    start: int | None = 0
    stop: int | None = None
    while start is not None:
        piece = await request(client, "slaq_history", start=start, stop=stop)
        pieces.append(piece)
        start, stop = piece["next"], piece["stop"]
    return dataset(pieces)


async def _bindings(client: Client) -> list[dict[str, Any]]:
    rows = await request(client, "slaq_bindings")
    return [dict(zip(("time", "key", "job", "worker", "reason"), r, strict=True)) for r in rows]


def dataset(pieces: list[dict[str, Any]]) -> xarray.Dataset:
    """Pieces of epochs, see `dask_slaq.core.epochs.Epochs.read`, as one Dataset."""
    import numpy as np
    import xarray as xr

    from dask_slaq.core.epochs import ROW

    rows = [np.frombuffer(piece["rows"], ROW) for piece in pieces]
    places: dict[str, int] = {}  # of the jobs, in the order in which they are found
    job = np.concatenate([_places(r, p, places) for r, p in zip(rows, pieces, strict=True)])
    times = np.concatenate([np.array(piece["times"], float) for piece in pieces])
    sizes = np.concatenate([np.array(piece["sizes"], int) for piece in pieces])
    epoch = np.repeat(np.arange(len(sizes)), sizes)
    values = {}
    for name in _VARIABLES:
        values[name] = np.full((len(places), len(sizes)), np.nan)
        values[name][job, epoch] = np.concatenate([r[name] for r in rows])
    return xr.Dataset(
        {v: (("job", "epoch"), values[v], {"long_name": text}) for v, text in _VARIABLES.items()},
        coords={
            "job": np.array(list(places), dtype=object),
            "epoch": np.arange(len(sizes)),
            "time": ("epoch", times),
        },
    )


def _places(rows: Any, piece: dict[str, Any], places: dict[str, int]) -> Any:
    """Where the jobs of some rows stand in the dataset; new ones get the next places."""
    import numpy as np

    name_of = dict(zip(piece["numbers"], piece["names"], strict=True))
    numbers, first, which = np.unique(rows["job"], return_index=True, return_inverse=True)
    for number in numbers[np.argsort(first)].tolist():
        places.setdefault(name_of[number], len(places))
    return np.array([places[name_of[number]] for number in numbers.tolist()], int)[which]
