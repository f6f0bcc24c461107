"""Options shared by several commands."""

from __future__ import annotations

import os
from pathlib import Path

import click

__all__ = ["json_option", "policies_or_oracles", "writable"]


def writable(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Reject a file that cannot be written, before minutes are spent on computing its content.

    See the ``callback`` parameter of `click.Option`.

    Raises
    ------
    click.BadParameter
        The file is a directory, lies in a missing directory, or is not writable.
    """
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


def policies_or_oracles(
    context: click.Context, parameter: click.Parameter, names: str
) -> list[str]:
    """Parse names separated by commas; reject unknown policies, and drop duplicates."""
    from dask_slaq.core.errors import UnknownPolicy
    from dask_slaq.simulation.study import check_policy

    found = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not found:
        raise click.BadParameter("give at least one name")
    for name in found:
        try:
            check_policy(name)
        except UnknownPolicy as error:
            raise click.BadParameter(str(error)) from None
    return found
