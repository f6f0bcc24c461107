"""Options shared by several commands."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from dask_slaq.cli.text import printable
from dask_slaq.core.errors import SlaqError


def writable(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Reject a file that cannot be written, before minutes are spent on computing its content."""
    if name is None or name == "-":
        return name
    path = Path(name)
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a directory, not a file")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} for {name!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{name!r} cannot be written")
    return name


json_option = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=writable,
    help="Write the figures to FILE; - for standard output.",
)


#: Comma between names, and not between the arguments of one.
_BETWEEN = re.compile(r",(?![^(]*\))")


def policies_or_oracles(
    context: click.Context, parameter: click.Parameter, names: str
) -> list[str]:
    """Parse names separated by commas; reject unknown policies, and drop duplicates."""
    from dask_slaq.lab.simulation import study

    found = [name.strip() for name in _BETWEEN.split(names) if name.strip()]
    if not found:
        raise click.BadParameter("give at least one name")
    return _known(found, study.check_policy)


def known_policies(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Reject unknown policies, and drop duplicates."""
    from dask_slaq.core.policies import policy

    return tuple(_known(names, policy))


def _known(names: Iterable[str], check: Callable[[str], object]) -> list[str]:
    from dask_slaq.core.errors import UnknownPolicy
    from dask_slaq.plug_ins import add_policies

    found = list(dict.fromkeys(names))
    add_policies(found)
    try:
        for name in found:
            check(name)
    except UnknownPolicy as error:
        raise click.BadParameter(str(error)) from None
    return found


json_flag = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON. Unknown numbers are null."
)


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a running scheduler; the command gets them as `where`."""

    @functools.wraps(command)
    def with_where(
        *args: Any, address: str | None, scheduler_file: str | None, timeout: float, **options: Any
    ) -> Any:
        if address is not None and scheduler_file is not None:
            raise click.UsageError("give --scheduler or --scheduler-file, not both")
        return command(*args, where=Where(address, scheduler_file, timeout), **options)

    for option in reversed(_SCHEDULER):
        with_where = option(with_where)
    return with_where


_SCHEDULER = (
    click.option(
        "--scheduler",
        "address",
        metavar="ADDRESS",
        show_default="DASK_SCHEDULER_ADDRESS, or scheduler-address in Dask's configuration",
        help="Address of the scheduler, such as tcp://10.0.0.1:8786 or tls://... . Certificates "
        "for TLS are taken from Dask's configuration (distributed.comm.tls).",
    ),
    click.option(
        "--scheduler-file",
        metavar="FILE",
        help="File in which dask scheduler --scheduler-file wrote its address.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        default=5.0,
        show_default=True,
        help="How long to wait for the scheduler.",
    ),
)


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


def ask(where: Where, question: Callable[[Any], Awaitable[T]]) -> T:
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


def call(where: Where, name: str, *args: Any, **kwargs: Any) -> Any:
    """Return what the function of a `name` in `dask_slaq.client` does on a scheduler."""
    from dask_slaq import client as api

    return ask(where, lambda client: getattr(api, name)(*args, client=client, **kwargs))


async def connect(address: str, timeout: float) -> Any:
    """Return an asynchronous client, which is nobody's default, within `timeout` seconds."""
    from distributed import Client

    client = Client(address, timeout=timeout, asynchronous=True, set_as_default=False)
    try:
        # Dask's own timeout does not cover what accepts a connection and then says nothing.
        return await asyncio.wait_for(client, timeout)
    except BaseException:
        await close(client)
        raise


async def close(client: Any) -> None:
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
