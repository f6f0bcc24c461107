"""The commands ``dask slaq runs`` and ``usage``, which read a scheduler's run history."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from time import time
from typing import Any

import click
import dask

from dask_slaq.cli.options import Where, call, json_flag, scheduler_options
from dask_slaq.cli.text import aligned, duration, number, printable, to_json
from dask_slaq.core.errors import SlaqError
from dask_slaq.core.owners.usage import DAY_SECONDS


@click.command()
@click.argument("file", required=False)
@json_flag
@click.option("--prune", is_flag=True, help="Delete runs, chosen by --kind and --older-than.")
@click.option("--kind", metavar="NAME", help="Only runs of this kind.")
@click.option(
    "--older-than", metavar="TIME", help="Only runs that ended longer ago, such as 30d or 12h."
)
def runs(
    file: str | None, as_json: bool, prune: bool, kind: str | None, older_than: str | None
) -> None:
    """List the past runs in FILE by kind, or delete some.

    \b
    Examples:
        dask slaq runs runs.db
        dask slaq runs runs.db --prune --older-than 90d

    FILE is the setting slaq.run-history by default. A scheduler may be writing to it. It does not
    look at deleted runs again, but remembers those that it has already read until it ends.
    """
    from dask_slaq.run_history import prune as delete
    from dask_slaq.run_history import read_kinds

    path, age = _given_or_configured(file), _seconds("older-than", older_than, "30d or 12h")
    before = None if age is None else time() - age
    if path is None:
        raise click.UsageError("no file given: pass FILE, or set slaq.run-history")
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
    figures = {
        "file": path,
        "bytes": os.path.getsize(path),
        "runs": sum(one.runs for one in kinds),
        "kinds": [asdict(one) for one in kinds],
    }
    click.echo(to_json(figures) if as_json else _table(kinds))


def file_to_read(file: str | None, where: Where) -> str | None:
    """Return the file to read; None to ask a scheduler. Raises `click.UsageError`."""
    asked = where.address or where.scheduler_file
    if file and asked:
        raise click.UsageError("give FILE or a scheduler, not both")
    if file is None and (asked or dask.config.get("scheduler-address", None)):
        return None
    if path := _given_or_configured(file):
        return path
    raise click.UsageError(
        "nothing to read: pass FILE, --scheduler or --scheduler-file, or set "
        "DASK_SCHEDULER_ADDRESS or slaq.run-history"
    )


def _given_or_configured(file: str | None) -> str | None:
    path = file or dask.config.get("slaq.run-history", None)
    return os.path.expanduser(os.fspath(path)) if path else None


def _seconds(option: str, given: str | None, example: str) -> float | None:
    """Return the time that an option names in seconds; None without one."""
    from dask_slaq.client import seconds_of

    try:
        return seconds_of(given, f"--{option}", example)
    except SlaqError as error:
        raise click.BadParameter(str(error)) from None


def _table(kinds: Sequence[Any]) -> str:
    if not kinds:
        return "no runs"
    cells = [["kind", "runs", "done", "iterations", "last run"]]
    for one in kinds:
        spread = "" if one.least == one.most else f" ({one.least} to {one.most})"
        ago = f"{duration(max(time() - one.last, 0.0))} ago"
        iterations = number(one.mean, 3) + spread
        cells.append([printable(one.kind), str(one.runs), str(one.done), iterations, ago])
    runs = sum(one.runs for one in kinds)
    some = "1 kind" if len(kinds) == 1 else f"{len(kinds)} kinds"
    return "\n".join([*aligned(cells), "", f"{runs} runs of {some}"])


@click.command()
@click.argument("file", required=False)
@click.option(
    "--since", metavar="TIME", help="How far back, such as 7d; in whole days (UTC). All by default."
)
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(["owner", "kind", "job", "day"]),
    help="What to sum by; may be given several times.  [default: owner]",
)
@scheduler_options
@json_flag
def usage(
    file: str | None, since: str | None, by: tuple[str, ...], where: Where, as_json: bool
) -> None:
    """Say who used the cluster: core-seconds, waits and jobs by owner, kind, job or day.

    \b
    Examples:
        dask slaq usage --since 7d
        dask slaq usage runs.db --by owner --by day

    A running scheduler is asked, or FILE is read (the setting slaq.run-history), also while a
    scheduler writes to it. Without both, it is the file of slaq.run-history.

    Of owners with a budget, a running scheduler also says what is left of it.

    "waited" is the time in which jobs had tasks to run and no thread. Work outside of jobs counts
    for the owner of its client's last job, or for unknown@ its machine.
    """
    by = tuple(dict.fromkeys(by)) or ("owner",)
    found = _found(file, since, by, where)
    text = "\n".join([_usage_table(found["rows"], by), *_budgets(found.get("budgets", ()))])
    click.echo(to_json(found) if as_json else text)
    if found["note"] and not as_json:
        click.echo(printable(found["note"]))


def _found(file: str | None, since: str | None, by: Sequence[str], where: Where) -> dict[str, Any]:
    """Return usage as `dask_slaq.usage` does."""
    from dask_slaq.run_history import read_usage, usage_as_dicts

    path, seconds = file_to_read(file, where), _seconds("since", since, "7d or 12h")
    if path is None:
        return call(where, "usage", seconds, by)
    rows = read_usage(path, by, None if seconds is None else int((time() - seconds) // DAY_SECONDS))
    return {"rows": usage_as_dicts(rows, by), "file": path, "since": None, "note": None}


def _budgets(budgets: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was used and is left of each budget, one line per owner."""
    lines = [f"{printable(one['text'])}: {number(one['left'], 4)} are left" for one in budgets]
    return ["", *lines] if lines else []


_NUMBERS = ("jobs", "done", "stopped", "failed", "lost")


def _usage_table(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> str:
    if not rows:
        return "nothing was used"
    cells = [[*by, "core-s", "waited", *_NUMBERS]]
    for row in rows:
        names = [printable(row[name]) or ("(none)" if name == "owner" else "-") for name in by]
        numbers = [str(row[name]) for name in _NUMBERS]
        cells.append([*names, f"{row['core_seconds']:.1f}", duration(row["waited"]), *numbers])
    total = sum(row["core_seconds"] for row in rows)
    in_all = f"{total:.1f} core-seconds ({total / 3600:.2f} core-hours)"
    return "\n".join([*aligned(cells, tuple(range(len(by)))), "", in_all])
