"""Text for terminals: aligned columns, JSON, and values that cannot disturb the terminal."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dask_slaq.core.text import duration, number, printable, without_nan

__all__ = ["aligned", "duration", "local_time", "number", "printable", "tell", "to_json"]


def aligned(cells: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; the columns of the numbers `left` are aligned to the left."""
    widths = [max(_width(line[k]) for line in cells) for k in range(len(cells[0]))]
    lines = []
    for line in cells:
        padded = []
        for k, (cell, width) in enumerate(zip(line, widths, strict=True)):
            space = " " * (width - _width(cell))
            padded.append(cell + space if k in left else space + cell)
        lines.append("  ".join(padded).rstrip())
    return lines


def _width(text: str) -> int:
    """Return the columns that a terminal needs for a text: wide characters take two."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def local_time(seconds: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return Unix seconds as a time of this machine."""
    return time.strftime(form, time.localtime(seconds))


def to_json(found: Any) -> str:
    """Return JSON text in which numbers that are not finite are null."""
    return json.dumps(without_nan(found), indent=2, allow_nan=False, default=str)


def tell(found: Any, text: str, json_file: str | None) -> None:
    """Write figures as JSON to a file, if one is given, and print a text; ``-`` is only figures."""
    figures = to_json(found) + "\n"
    if json_file == "-":
        click.echo(figures, nl=False)
        return
    if json_file is not None:
        Path(json_file).write_text(figures, encoding="utf-8")
    click.echo(text)
