"""Text for terminals: aligned columns, JSON, and values that cannot disturb the terminal."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from dask_slaq.core.text import aligned, duration, number, printable, without_nan

__all__ = ["aligned", "duration", "local_time", "number", "printable", "tell", "to_json"]


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
