"""The command ``dask slaq usage``: who used what, from a scheduler or the file of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dask_slaq.cli.options import json_flag, scheduler_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_slaq.cli.connection import Where


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
    file: str | None,
    since: str | None,
    by: tuple[str, ...],
    where: Where,
    as_json: bool,
) -> None:
    """Say who used the cluster: core-seconds, waits and jobs by owner, kind, job or day.

    \b
    Examples:
        dask slaq usage --since 7d
        dask slaq usage runs.db --by owner --by day

    A running scheduler is asked, or FILE is read (the setting slaq.memory of the scheduler), also
    while a scheduler writes to it. Without both, it is the file of slaq.memory.

    Of owners with a budget, a running scheduler also says what is left of it.

    "waited" is the time in which jobs had tasks to run and no thread. Work outside of jobs counts
    for the owner of its client's last job, or for unknown@ its machine.
    """
    from dask_slaq.cli.text import as_json as to_json

    by = tuple(dict.fromkeys(by)) or ("owner",)
    found = _found(file, since, by, where)
    text = "\n".join([_table(found["rows"], by), *_budgets(found.get("budgets", ()))])
    click.echo(to_json(found) if as_json else text)
    if found["note"] and not as_json:
        from dask_slaq.cli.text import printable

        click.echo(printable(found["note"]))


def _found(file: str | None, since: str | None, by: Sequence[str], where: Where) -> dict[str, Any]:
    """Return usage as `dask_slaq.usage` does."""
    from time import time

    from dask_slaq.cli.connection import ask
    from dask_slaq.cli.memory import file_to_read
    from dask_slaq.client import seconds_of
    from dask_slaq.client import usage as ask_usage
    from dask_slaq.core.errors import SlaqError
    from dask_slaq.core.usage import DAY
    from dask_slaq.memory import read_usage, usage_as_dicts

    path = file_to_read(file, where)
    try:
        seconds = seconds_of(since)
    except SlaqError as error:
        raise click.BadParameter(f"--{error}") from None
    if path is None:
        return ask(where, lambda client: ask_usage(seconds, by, client))  # type: ignore[arg-type, return-value]
    try:
        rows = read_usage(path, by, None if seconds is None else int((time() - seconds) // DAY))
    except SlaqError as error:
        raise click.ClickException(str(error)) from None
    return {"rows": usage_as_dicts(rows, by), "file": path, "since": None, "note": None}


def _budgets(budgets: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was used and is left of each budget, one line per owner."""
    from dask_slaq.cli.text import number, printable

    lines = [f"{printable(one['text'])}: {number(one['left'], 4)} are left" for one in budgets]
    return ["", *lines] if lines else []


_NUMBERS = ("jobs", "done", "stopped", "failed", "lost")


def _table(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> str:
    from dask_slaq.cli.text import aligned, duration, printable

    if not rows:
        return "nothing was used"
    cells = [[*by, "core-s", "waited", *_NUMBERS]]
    for row in rows:
        names = [printable(row[name]) or ("(none)" if name == "owner" else "-") for name in by]
        numbers = [str(row[name]) for name in _NUMBERS]
        cells.append([*names, f"{row['core_seconds']:.1f}", duration(row["waited"]), *numbers])
    total = sum(row["core_seconds"] for row in rows)
    left = tuple(range(len(by)))
    return "\n".join(
        [*aligned(cells, left), "", f"{total:.1f} core-seconds ({total / 3600:.2f} core-hours)"]
    )
