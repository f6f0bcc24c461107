"""How every benchmark gives its result: tables to read, or JSON."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["give", "json_option"]

json_option = click.option(
    "--json", "output", help="Write JSON to this file, or - for standard output."
)


def give(result: Any, output: str | None, *tables: str) -> None:
    """Print tables, unless standard output is for JSON, and write JSON if asked for.

    Parameters
    ----------
    result : object
        What JSON can hold.
    output : str, optional
        File for JSON; - is standard output.
    *tables : str
    """
    if output != "-":
        for table in tables:
            click.echo(table)
    if output:
        with click.open_file(output, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
