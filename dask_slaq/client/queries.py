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
        name, the values that `dask_slaq.scheduler.records.status_of_job` documents.

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
    return dataset(await request(client, "slaq_history"))


async def _bindings(client: Client) -> list[dict[str, Any]]:
    rows = await request(client, "slaq_bindings")
    return [dict(zip(("time", "key", "job", "worker", "reason"), r, strict=True)) for r in rows]


def dataset(epochs: list[dict[str, Any]]) -> xarray.Dataset:
    """Recorded epochs as a Dataset over (job, epoch)."""
    import numpy as np
    import xarray as xr

    names = list(dict.fromkeys(name for epoch in epochs for name in epoch["jobs"]))
    row = {name: i for i, name in enumerate(names)}
    values = {v: np.full((len(names), len(epochs)), np.nan) for v in _VARIABLES}
    for column, epoch in enumerate(epochs):
        for name, job in epoch["jobs"].items():
            for variable, array in values.items():
                array[row[name], column] = job[variable]
    return xr.Dataset(
        {v: (("job", "epoch"), values[v], {"long_name": text}) for v, text in _VARIABLES.items()},
        coords={
            "job": np.array(names, dtype=object),
            "epoch": np.arange(len(epochs)),
            "time": ("epoch", np.array([e["time"] for e in epochs], float)),
        },
    )
