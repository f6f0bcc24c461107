"""Requests to the plugin on the scheduler, and to whom the tasks of a client belong."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import secrets
import socket
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import dask
from distributed import Client, get_client

from dask_slaq.core.errors import InvalidSetting, NoPlugin, SlaqError
from dask_slaq.core.settings import NOT_STARTED, check_text, require, shown
from dask_slaq.core.text import printable

logger = logging.getLogger(__name__)

#: Requests that the scheduler answers only to a client that proves to be the one that it is.
PROVEN = frozenset(f"slaq_{name}" for name in ("introduce", "open", "close", "steer", "follow"))

# Secret by which each client proves who it is, and the connection on which it was told.
_secrets: WeakKeyDictionary[Client, tuple[object, str]] = WeakKeyDictionary()
# Clients that were warned that their scheduler does not run the plugin.
_warned: WeakSet[Client] = WeakSet()


def current_client(client: Client | None = None) -> Client:
    """Return the client passed in, or else the current one. Raises NoPlugin if there is none.

    Raises InvalidSetting for what is no client, such as the name of a job in its place.
    """
    if client is not None:
        if not isinstance(client, Client):
            raise InvalidSetting(f"client must be a distributed.Client, not {shown(client)}")
        return client
    try:
        return get_client()
    except ValueError:
        raise NoPlugin(
            "there is no Dask client here: create one with distributed.Client(address), or pass "
            "client="
        ) from None


def ask(
    client: Client | None, operation: str, then: Callable[[Any], Any] | None = None, /, **given: Any
) -> Any:
    """Send a request from a client, by default the current one, and return what `then` makes of it.

    See `request` for the arguments that are `given`.
    """
    client = current_client(client)

    async def answer() -> Any:
        found = await request(client, operation, **given)
        return found if then is None else then(found)

    return client.sync(answer)


async def request(client: Client, operation: str, /, **arguments: Any) -> Any:
    """Send a request, such as ``"slaq_status"``, to the plugin, and return its response.

    An error that the handler raises is raised here; `NoPlugin` if the scheduler does not run the
    plugin, which is checked first, because Dask never responds to a request without a handler; and
    `SlaqError` if the client is closed.
    """
    check_text("what is sent", arguments)
    for name, value in arguments.items():
        is_fit = isinstance(value, str) if name == "job" else not isinstance(value, Client)
        require(name, value, is_fit, "a name or a number (clients are passed as client=)")
    # What a client submits waits, too, while it connects again; else Dask closes it.
    while client.status == "connecting" and client.scheduler_comm is None:
        await asyncio.sleep(0.05)
    known = await check_plugin(client)
    if operation in PROVEN:
        arguments["proof"] = _prove(client, known)
    return await getattr(scheduler_of(client), operation)(**arguments)


def _prove(client: Client, known: Any) -> str:
    """Return the secret of a client, which is told on its stream: a request has no sender.

    A scheduler whose plugin does not know such messages would end the connection.
    """
    if not (isinstance(known, dict) and known.get("proof")):
        raise NoPlugin(
            f"the scheduler at {scheduler_of(client).address} runs an older release of dask_slaq: "
            "install the one of this client there"
        )
    stream, secret = _secrets.get(client, (None, ""))
    if stream is not client.scheduler_comm:
        secret = secrets.token_hex(16)
        _secrets[client] = client.scheduler_comm, secret
        client._send_to_scheduler({"op": "slaq-prove", "proof": secret})
    return secret


def scheduler_of(client: Client) -> Any:
    """Return what a client sends requests by. Raises `SlaqError` if it is closed."""
    if client.scheduler is None:
        raise SlaqError(f"the Dask client {client.id} is closed: create another one")
    return client.scheduler


async def check_plugin(client: Client) -> Any:
    """Return what the plugin says of itself. Raises `NoPlugin` if there is none; see `request`."""
    known = await scheduler_of(client).get_metadata(keys=["slaq"], default=None)
    if known is None:
        await check_started(client)
        raise NoPlugin(
            f"the scheduler at {scheduler_of(client).address} does not run SlaqPlugin: register it "
            "by client.register_plugin(dask_slaq.SlaqPlugin()), or start the scheduler with "
            "--preload dask_slaq"
        )
    return known


async def check_started(client: Client) -> None:
    """Raise `NoPlugin` with the reason if the scheduler was to run the plugin, and cannot."""
    why = await scheduler_of(client).get_metadata(keys=[NOT_STARTED], default=None)
    if why is not None:
        raise NoPlugin(
            f"SlaqPlugin did not start on the scheduler at {scheduler_of(client).address}, and "
            f"every task is left to plain Dask, without limits: {why}"
        )


def go_without(client: Client, error: NoPlugin) -> None:
    """Accept that the scheduler does not run the plugin, with one warning per client.

    With ``slaq.require-plugin``, the error is raised instead.
    """
    if dask.config.get("slaq.require-plugin", False):
        raise error
    if client not in _warned:
        _warned.add(client)
        logger.warning("jobs run under plain Dask: %s", error)


def owner_of_client() -> str:
    """Return to whom the jobs of this process belong: ``slaq.owner``, or ``user@host``."""
    configured = dask.config.get("slaq.owner", None)
    if configured is not None:
        return str(configured)
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user without an entry in the password database
        user = "unknown"
    return printable(f"{user}@{socket.gethostname()}")[:256]


async def introduce(client: Client) -> None:
    """Tell the scheduler, if it runs the plugin, to whom the client's tasks outside jobs belong.

    It is told again when the client connects again: another scheduler may run there by then.
    """
    from tornado.ioloop import PeriodicCallback

    owner, known = owner_of_client(), client.scheduler_comm

    async def tell() -> None:
        with contextlib.suppress(SlaqError, OSError):
            await request(client, "slaq_introduce", owner=owner)

    async def look() -> None:
        nonlocal known
        if client.status == "closed":
            again.stop()
        if client.status == "running" and client.scheduler_comm is not known:
            known = client.scheduler_comm
            await tell()

    await tell()
    again = PeriodicCallback(look, 500)  # milliseconds; Dask has no hook for it
    again.start()
