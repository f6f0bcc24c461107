"""Options that benchmarks share, and output of their results as tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

__all__ = ["Names", "give", "json_option"]

json_option = click.option(
    "--json", "output", help="Write JSON to this file, or - for standard output."
)


class Names(click.ParamType):
    """Comma-separated names, each taken once. `noun` says what has the `known` names."""

    name = "names"

    def __init__(self, noun: str, known: Iterable[str] | None = None) -> None:
        self.noun, self.known = noun, None if known is None else list(known)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Split and check the names."""
        if isinstance(value, list):
            return value
        names = list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not names:
            self.fail("give at least one name", param, ctx)
        for name in names:
            if self.known is not None and name not in self.known:
                known = ", ".join(self.known)
                self.fail(f"unknown {self.noun} {name}: one of {known}", param, ctx)
        return names


def give(result: Any, output: str | None, *tables: str) -> None:
    """Print the tables, unless JSON goes to standard output (-), and write JSON to `output`."""
    if output != "-":
        for table in tables:
            click.echo(table)
    if output:
        with click.open_file(output, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
