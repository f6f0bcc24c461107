"""Output of benchmark results, as tables or JSON."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["give", "json_option"]

json_option = click.option(
    "--json", "output", help="Write JSON to this file, or - for standard output."
)


def give(result: Any, output: str | None, *tables: str) -> None:
    """Print the tables, unless JSON goes to standard output, and write JSON to `output`.

    Parameters
    ----------
    result : object
        Result that can be written as JSON.
    output : str, optional
        JSON file; - is standard output.
    *tables : str
    """
    if output != "-":
        for table in tables:
            click.echo(table)
    if output:
        with click.open_file(output, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
