"""The command ``dask slaq top``: a live table of jobs, with keys to sort and to steer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dask_slaq.cli.options import scheduler_options

if TYPE_CHECKING:
    from dask_slaq.cli.connection import Where

__all__ = ["top"]


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.2),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time between two looks at the scheduler.",
)
@click.option(
    "--read-only", is_flag=True, help="Leave out the keys that pause, resume and stop jobs."
)
@scheduler_options
def top(where: Where, interval: float, read_only: bool) -> None:
    """Watch the jobs of a running scheduler, live.

    \b
    Example:
        dask slaq top --scheduler tcp://10.0.0.1:8786

    \b
    Keys:
        up, down     choose a job
        < and >      sort by the next column to the left or right (or click a heading)
        r            reverse the order
        /            show only jobs whose name or owner contains a text; Escape shows all again
        e or Enter   explain the chosen job, live, in a pane below the table; again to close it
        o            show the owners instead; again for the jobs
        p            pause the chosen job, or resume it if it is paused
        s            stop the chosen job, after a question
        q            quit

    Needs textual: pip install 'dask-slaq[top]'
    """
    from dask_slaq.cli.connection import ask, quiet
    from dask_slaq.client import status

    try:
        from dask_slaq.cli.top.app import Top
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise click.ClickException(
            "dask slaq top needs textual: pip install 'dask-slaq[top]'"
        ) from None
    if not sys.stdout.isatty():
        raise click.ClickException("dask slaq top needs a terminal; try dask slaq jobs")
    ask(where, lambda client: status(client))  # type: ignore[arg-type] # errors before the screen
    with quiet():  # anything printed would disturb the screen
        Top(where, interval=interval, read_only=read_only).run()
