"""The command ``dask slaq reserve``: threads that an owner deserves in a span of time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from dask_slaq.cli.connection import Where, ask
from dask_slaq.cli.options import json_flag, scheduler_options


@click.command()
@click.argument("owner", required=False)
@click.argument("threads", required=False, type=float)
@click.option("--from", "begin", metavar="TIME", help="When it begins; now by default.")
@click.option("--to", "end", metavar="TIME", help="When it ends.")
@click.option("--remove", type=int, metavar="NUMBER", help="Remove the reservation of this number.")
@scheduler_options
@json_flag
def reserve(
    owner: str | None,
    threads: float | None,
    begin: str | None,
    end: str | None,
    remove: int | None,
    where: Where,
    as_json: bool,
) -> None:
    """Reserve THREADS for OWNER in a span of time, or list the reservations.

    \b
    Examples:
        dask slaq reserve ann 16 --from 18:00 --to 22:00
        dask slaq reserve
        dask slaq reserve --remove 1

    TIME is a time of this machine, such as 18:00 (the next one) or "2026-11-30 18:00". In that time
    OWNER deserves at least these threads; what it does not use is lent. Only operators
    (slaq.operators) may change reservations; everyone if there are none.
    """
    from dask_slaq import client as api
    from dask_slaq.cli.text import as_json as to_json
    from dask_slaq.cli.text import printable

    if remove is not None and (owner or begin or end):
        raise click.UsageError("give --remove or an owner, not both")
    if remove is not None:
        ask(where, lambda client: api.unreserve(remove, client=client))
        click.echo(f"reservation {remove} is removed")
    elif owner is None:
        found: Any = ask(where, lambda client: api.reservations(client=client))
        click.echo(to_json(found) if as_json else _table(found))
    elif threads is None or end is None:
        raise click.UsageError("give OWNER, THREADS and --to")
    else:
        made: Any = ask(where, lambda client: api.reserve(owner, threads, begin, end, client))
        span = f"from {_time(made['begin'])} to {_time(made['end'])}"
        what = "1 thread" if threads == 1 else f"{threads:g} threads"
        click.echo(printable(f"reservation {made['number']}: {owner} {what} {span}"))
        if made["note"]:
            click.echo(made["note"])


def _table(found: Sequence[dict[str, Any]]) -> str:
    from dask_slaq.cli.text import aligned, printable

    if not found:
        return "nothing is reserved"
    cells = [["number", "owner", "threads", "from", "to", ""]]
    for one in found:
        times = [_time(one["begin"]), _time(one["end"]), "now" * one["now"]]
        cells.append([str(one["number"]), printable(one["owner"]), f"{one['threads']:g}", *times])
    return "\n".join(aligned(cells, left=(1,)))


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
