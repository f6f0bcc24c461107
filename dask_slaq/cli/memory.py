"""The command ``dask slaq memory``: what a store of past runs holds, and its pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dask_slaq.cli.options import json_flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_slaq.cli.connection import Where
    from dask_slaq.memory import KindSummary


@click.command()
@click.argument("file", required=False)
@json_flag
@click.option("--prune", is_flag=True, help="Delete runs, chosen by --kind and --older-than.")
@click.option("--kind", metavar="NAME", help="Only runs of this kind.")
@click.option(
    "--older-than", metavar="TIME", help="Only runs that ended longer ago, such as 30d or 12h."
)
def memory(
    file: str | None, as_json: bool, prune: bool, kind: str | None, older_than: str | None
) -> None:
    """List the past runs in FILE by kind, or delete some.

    \b
    Examples:
        dask slaq memory runs.db
        dask slaq memory runs.db --prune --older-than 90d

    FILE is the setting slaq.memory by default. A scheduler may be writing to it. It does not
    look at deleted runs again, but remembers those that it has already read until it ends.
    """
    from dask_slaq.cli.text import as_json as to_json
    from dask_slaq.core.errors import SlaqError
    from dask_slaq.memory import prune as delete
    from dask_slaq.memory import read_kinds

    path, before = _given_or_configured(file), _before(older_than)
    if path is None:
        raise click.UsageError("no store given: pass FILE, or set slaq.memory")
    try:
        if prune:
            if kind is None and before is None:
                raise click.UsageError("--prune needs --kind or --older-than")
            deleted = delete(path, before=before, kind=kind)
            click.echo(to_json({"deleted": deleted}) if as_json else f"{deleted} runs deleted")
            return
        kinds = [
            one
            for one in read_kinds(path)
            if kind in (None, one.kind) and (before is None or one.last < before)
        ]
    except SlaqError as error:
        raise click.ClickException(str(error)) from None
    click.echo(to_json(_figures(path, kinds)) if as_json else _table(kinds))


def file_to_read(file: str | None, where: Where) -> str | None:
    """Return the store to read; None to ask a scheduler.

    Raises a `click.UsageError` if both are given, or none is given or configured.
    """
    import dask

    asked = where.address or where.scheduler_file
    if file and asked:
        raise click.UsageError("give FILE or a scheduler, not both")
    if file is None and (asked or dask.config.get("scheduler-address", None)):
        return None
    if path := _given_or_configured(file):
        return path
    raise click.UsageError(
        "nothing to read: pass FILE, --scheduler or --scheduler-file, or set "
        "DASK_SCHEDULER_ADDRESS or slaq.memory"
    )


def _given_or_configured(file: str | None) -> str | None:
    import os

    import dask

    path = file or dask.config.get("slaq.memory", None)
    return os.path.expanduser(os.fspath(path)) if path else None


def _before(age: str | None) -> float | None:
    """Return the Unix seconds of so long ago."""
    import math
    from time import time

    from dask.utils import parse_timedelta

    if age is None:
        return None
    try:
        seconds = float(parse_timedelta(age))
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise click.BadParameter(f"--older-than must be a time such as 30d or 12h, not {age!r}")
    return time() - seconds


def _figures(path: str, kinds: Sequence[KindSummary]) -> dict[str, Any]:
    import os
    from dataclasses import asdict

    return {
        "file": path,
        "bytes": os.path.getsize(path),
        "runs": sum(one.runs for one in kinds),
        "kinds": [asdict(one) for one in kinds],
    }


def _table(kinds: Sequence[KindSummary]) -> str:
    from time import time

    from dask_slaq.cli.text import aligned, duration, number, printable

    if not kinds:
        return "no runs"
    cells = [["kind", "runs", "done", "iterations", "last run"]]
    for one in kinds:
        spread = "" if one.least == one.most else f" ({one.least} to {one.most})"
        cells.append(
            [
                printable(one.kind),
                str(one.runs),
                str(one.done),
                number(one.mean, 3) + spread,
                f"{duration(max(time() - one.last, 0.0))} ago",
            ]
        )
    runs = sum(one.runs for one in kinds)
    some = "1 kind" if len(kinds) == 1 else f"{len(kinds)} kinds"
    return "\n".join([*aligned(cells), "", f"{runs} runs of {some}"])
