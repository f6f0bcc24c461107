"""The command ``dask slaq top``: the jobs of a scheduler, live, in the table of `progress`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import click

from dask_slaq.cli.options import Where, ask, close, connect, explained, quiet, scheduler_options
from dask_slaq.cli.text import printable
from dask_slaq.core.jobs.columns import JOB_COLUMNS, rows
from dask_slaq.core.text import shortened

#: Columns of the table, by the name that ``--sort`` takes.
COLUMNS = {column.name: column for column in JOB_COLUMNS if column.terminal}
#: Number of models of a search below its explanation.
MOST_MODELS = 12
#: Characters of a job's or owner's name that are shown. All are in the explanation.
LONGEST = 24


@click.command()
@click.argument("job", required=False)
@click.option("--filter", "text", default="", help="Only jobs whose name or owner contains this.")
@click.option(
    "--sort",
    type=click.Choice(list(COLUMNS)),
    default="job",
    show_default=True,
    help="Column by which jobs are sorted: names from the first, of numbers the most first.",
)
@click.option("--owners", is_flag=True, help="Show the owners instead of the jobs.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time between two looks at the scheduler.",
)
@scheduler_options
def top(where: Where, interval: float, **shown: Any) -> None:
    """Watch the jobs of a running scheduler, live, until Ctrl-C.

    With JOB its explanation is above the table, and the best models of a search.

    \b
    Example:
        dask slaq top --scheduler tcp://10.0.0.1:8786 --sort running

    Needs rich: pip install 'dask-slaq[top]'
    """
    try:
        from rich.live import Live
    except ImportError:
        raise click.ClickException(
            "dask slaq top needs rich: pip install 'dask-slaq[top]'"
        ) from None
    if not sys.stdout.isatty():
        raise click.ClickException("dask slaq top needs a terminal; try dask slaq jobs")
    look = partial(screen_of, **shown)
    ask(where, look)  # errors before the screen

    async def watch() -> None:
        async with aclosing(screens(where, look, interval)) as seen:
            with Live(auto_refresh=False, screen=True) as live:
                async for screen in seen:
                    live.update(screen, refresh=True)

    with quiet(), suppress(KeyboardInterrupt):  # anything printed would disturb the screen
        asyncio.run(watch())


async def screens(
    where: Where, look: Callable[[Any], Awaitable[Any]], interval: float
) -> AsyncGenerator[Any, None]:
    """Yield what to show, again and again; what goes wrong is above what was there before."""
    from rich.console import Group
    from rich.text import Text

    address, client, last = where.find(), None, Text()
    try:
        while True:
            try:
                with explained(address, where.timeout):
                    client = client or await connect(address, where.timeout)
                    last = await asyncio.wait_for(look(client), where.timeout)
                yield last
            except click.ClickException as error:
                if client is not None and client.status != "running":
                    await close(client)
                    client = None  # a lost connection is made anew
                yield Group(Text(printable(error.format_message()), "yellow"), last)
            await asyncio.sleep(interval)
    finally:
        if client is not None:
            await close(client)


async def screen_of(client: Any, *, job: str | None, text: str, sort: str, owners: bool) -> Any:
    """Return what is shown of the jobs of a scheduler."""
    from rich.console import Group
    from rich.text import Text

    from dask_slaq.cli.status_tables import owners_table, summary
    from dask_slaq.client import as_cells, as_table, explain, request, status

    found = await status(client)  # type: ignore[misc]
    head = Text(summary(found), "bold")
    if owners:
        everybody = {**found.get("owners", {}), **found.get("teams", {})}
        return Group(head, Text(owners_table(everybody), no_wrap=True))
    text = text.casefold()
    jobs = [
        row
        for row in sorted(rows(found["jobs"]), key=lambda row: row["job"])
        if text in row["job"].casefold() or text in row["owner"].casefold()
    ]
    jobs.sort(key=COLUMNS[sort].rank, reverse=not COLUMNS[sort].left)
    jobs.sort(key=lambda row: not row["reports"])  # tasks outside of jobs last
    above = [head]  # the rows of many jobs may not fit on the screen
    if job is not None:
        about = await explain(job, client=client)  # type: ignore[misc] # it is asynchronous
        above.append(Text("\n".join(map(printable, about["text"].splitlines()))))
        if job in found.get("searches", ()):
            models = await request(client, "slaq_models", search=job)
            above.append(as_table(*as_cells(models["rows"], models["maximize"], MOST_MODELS)))
    cells = [[column.text(row) for column in COLUMNS.values()] for row in jobs]
    for line in cells:
        line[:2] = (shortened(name, LONGEST) for name in line[:2])
    names = [column.heading or column.name for column in COLUMNS.values()]
    # A column in which no job has anything, leaves its room to the others.
    used = [k for k in range(len(names)) if any(line[k] for line in cells)]
    table = as_table([names[k] for k in used], [[line[k] for k in used] for line in cells])
    return Group(*above, table if jobs else Text("no job to show"))
