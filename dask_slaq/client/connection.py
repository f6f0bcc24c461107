"""Requests to the plugin on the scheduler, with a clear error where the plugin is missing."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import dask

from dask_slaq.core.errors import NoPlugin, SlaqError
from dask_slaq.core.settings import NOT_STARTED

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["check_plugin", "check_started", "current_client", "go_without", "request"]

logger = logging.getLogger(__name__)

#: Seconds between two looks at a client that connects again.
RECONNECTING = 0.05

# Clients that were warned that their scheduler does not run the plugin.
_warned: WeakSet[Client] = WeakSet()


def current_client(client: Client | None = None) -> Client:
    """Return the client passed in, or the current client of this thread or task.

    Raises
    ------
    NoPlugin
        There is no current client.
    """
    from distributed import get_client

    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        raise NoPlugin(
            "there is no Dask client here: create one with distributed.Client(address), or pass "
            "client="
        ) from None


async def request(client: Client, operation: str, /, **arguments: Any) -> Any:
    """Send a request to the plugin and return its response.

    Parameters
    ----------
    client : distributed.Client
    operation : str
        Name of the request handler, such as ``"slaq_status"``.
    **arguments
        Arguments of the handler.

    Returns
    -------
    object
        The value that the handler returns. An error that the handler raises is raised here.

    Raises
    ------
    NoPlugin
        The scheduler does not run the plugin. This is checked first, because Dask never responds
        to a request without a handler.
    SlaqError
        The client is closed.
    """
    await reconnected(client)
    await check_plugin(client)
    return await getattr(client.scheduler, operation)(**arguments)


async def reconnected(client: Client) -> None:
    """Wait while a client that lost its scheduler connects again, as what it submits does."""
    until = monotonic() + client._timeout + 1  # Dask closes the client before
    while client.status == "connecting" and client.scheduler_comm is None and monotonic() < until:
        await asyncio.sleep(RECONNECTING)


async def check_plugin(client: Client) -> None:
    """Raise `NoPlugin` if the scheduler does not run the plugin; see `request`."""
    if client.scheduler is None:
        raise SlaqError(f"the Dask client {client.id} is closed: create another one")
    if await client.scheduler.get_metadata(keys=["slaq"], default=None) is None:
        await check_started(client)
        raise NoPlugin(
            f"the scheduler at {client.scheduler.address} does not run SlaqPlugin: register it by "
            "client.register_plugin(dask_slaq.SlaqPlugin()), or start the scheduler with "
            "--preload dask_slaq"
        )


async def check_started(client: Client) -> None:
    """Raise `NoPlugin` with the reason if the scheduler was to run the plugin, and cannot.

    Parameters
    ----------
    client : distributed.Client
    """
    why = await client.scheduler.get_metadata(keys=[NOT_STARTED], default=None)
    if why is not None:
        raise NoPlugin(
            f"SlaqPlugin did not start on the scheduler at {client.scheduler.address}, and every "
            f"task is left to plain Dask, without limits: {why}"
        )


def go_without(client: Client, error: NoPlugin) -> None:
    """Accept that the scheduler does not run the plugin, with one warning per client.

    Parameters
    ----------
    client : distributed.Client
    error : NoPlugin
        What the request raised.

    Raises
    ------
    NoPlugin
        ``slaq.require-plugin`` is set.
    """
    if dask.config.get("slaq.require-plugin", False):
        raise error
    if client not in _warned:
        _warned.add(client)
        logger.warning("jobs run under plain Dask: %s", error)
