"""Options shared by several commands."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from dask_slaq.cli.connection import Where


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


def with_default(name: str, kind: Any, default: Any, text: str) -> Callable[..., Any]:
    """Return an option that tells its default after its help `text`."""
    return click.option(name, type=kind, default=default, show_default=True, help=text)


#: Comma between names, and not between the arguments of one.
_BETWEEN = re.compile(r",(?![^(]*\))")


def policies_or_oracles(
    context: click.Context, parameter: click.Parameter, names: str
) -> list[str]:
    """Parse names separated by commas; reject unknown policies, and drop duplicates."""
    from dask_slaq.simulation.study import check_policy

    found = [name.strip() for name in _BETWEEN.split(names) if name.strip()]
    if not found:
        raise click.BadParameter("give at least one name")
    return _known(found, check_policy)


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
