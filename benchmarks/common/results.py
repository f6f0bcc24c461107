"""Options that benchmarks share, and output of their results as tables or JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

json_option = click.option(
    "--json", "output", help="Write JSON to this file, or - for standard output."
)
curves_option = click.option(
    "--curves", "files", multiple=True,
    help="File of JSON lines with id and loss (repeatable).  [default: curves from the seed]",
)  # fmt: skip
parallel_option = click.option(
    "--parallel", type=click.IntRange(1), show_default="one per core",
    help="Number of concurrent runs on the virtual clock, each in a process of its own.",
)  # fmt: skip

processes_option = click.option(
    "--processes", default=os.cpu_count() or 1, type=click.IntRange(1), help="By default all cores."
)
noise_option = click.option(
    "--noise", default=0.0, show_default=True, type=click.FloatRange(0),
    help="Noise of reports relative to the range of the curve; t90 uses the true curve.",
)  # fmt: skip


def seeds_options(command: Any) -> Any:
    """Add the number of seeds, and the first one."""
    count = click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
    return count(click.option("--seed", default=0, show_default=True, help="First seed.")(command))


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


def say(*what: Any) -> None:
    """Print progress, which is no part of the result."""
    print(*what, file=sys.stderr, flush=True)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def give(result: Any, output: str | None, *tables: str) -> None:
    """Print the tables, unless JSON goes to standard output (-), and write JSON to `output`."""
    if output != "-":
        for table in tables:
            click.echo(table)
    if output:
        with click.open_file(output, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format rows of cells below a head, the first column to the left; numbers have two digits."""
    cells = [list(map(cell, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *rest in cells:
        others = (f"  {cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        lines.append(f"{first:<{widths[0]}}" + "".join(others))
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Format a value for a person."""
    if value is None or value != value:  # nan
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
