"""Requests to the plugin on the scheduler, with a clear error where the plugin is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import NoPlugin, SlaqError

if TYPE_CHECKING:
    from distributed import Client


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
    if client.scheduler is None:
        raise SlaqError(f"the Dask client {client.id} is closed: create another one")
    if await client.scheduler.get_metadata(keys=["slaq"], default=None) is None:
        raise NoPlugin(
            f"the scheduler at {client.scheduler.address} does not run SlaqPlugin: register it by "
            "client.register_plugin(dask_slaq.SlaqPlugin()), or start the scheduler with "
            "--preload dask_slaq"
        )
    return await getattr(client.scheduler, operation)(**arguments)
