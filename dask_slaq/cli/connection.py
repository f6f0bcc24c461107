"""Connections of commands to a running scheduler, with one clear line for what goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dask_slaq.cli.text import printable
from dask_slaq.core.errors import SlaqError

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")


@dataclass(frozen=True)
class Where:
    """Where the scheduler is: its address or its scheduler file, and the patience in seconds."""

    address: str | None = None
    scheduler_file: str | None = None
    timeout: float = 5.0

    def find(self) -> str:
        """Return the address of the scheduler. Raises ClickException if none is given."""
        import dask

        if self.scheduler_file is not None:
            return _address_in(self.scheduler_file)
        address = self.address or dask.config.get("scheduler-address", None)
        if not address:
            raise click.ClickException(
                "no scheduler given: pass --scheduler ADDRESS or --scheduler-file FILE, or set "
                "DASK_SCHEDULER_ADDRESS"
            )
        return str(address)


def _address_in(file: str) -> str:
    try:
        return str(json.loads(Path(file).read_text(encoding="utf-8"))["address"])
    except OSError as error:
        raise click.ClickException(
            f"cannot read the scheduler file {file!r}: {error.strerror}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise click.ClickException(
            f"{file!r} is not a scheduler file: it names no address"
        ) from None


def ask(where: Where, question: Callable[[Client], Awaitable[T]]) -> T:
    """Return the answer of a scheduler to a `question`, which gets an asynchronous client."""
    address = where.find()

    async def run() -> T:
        with explained(address, where.timeout):
            client = await connect(address, where.timeout)
            try:
                return await asyncio.wait_for(question(client), where.timeout)
            finally:
                await close(client)

    with quiet():
        return asyncio.run(run())


async def connect(address: str, timeout: float) -> Client:
    """Return an asynchronous client, which is nobody's default, within `timeout` seconds."""
    from distributed import Client

    client = Client(address, timeout=timeout, asynchronous=True, set_as_default=False)
    try:
        # Dask's own timeout does not cover what accepts a connection and then says nothing.
        return await asyncio.wait_for(client, timeout)
    except BaseException:
        await close(client)
        raise


async def close(client: Client) -> None:
    """Close a client, without waiting for long for a scheduler that says nothing."""
    with suppress(asyncio.TimeoutError, OSError, RuntimeError, TypeError, ValueError):
        await client.close(timeout=1)


@contextmanager
def explained(address: str, timeout: float) -> Iterator[None]:
    """Turn the errors of a connection and the refusals of the plugin into one line."""
    try:
        yield
    except SlaqError as error:
        raise click.ClickException(_one_line(error)) from None
    except (asyncio.TimeoutError, OSError) as error:
        cause = error.__cause__ or error
        why = f" ({_one_line(cause)})" if isinstance(cause, OSError) and str(cause) else ""
        raise click.ClickException(
            f"no scheduler answers at {printable(address)} within {timeout:g} s{why}"
        ) from None
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        # What Dask raises for malformed addresses and for TLS that is not configured.
        raise click.ClickException(
            f"cannot connect to {printable(address)}: {_one_line(error)}"
        ) from None


def _one_line(error: BaseException) -> str:
    return printable(" ".join(str(error).split())) or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Silence logs and warnings: errors are told by the command, and once."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
