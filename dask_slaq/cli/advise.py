"""The command ``dask slaq advise``: how many workers pay for the jobs of a scheduler."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dask_slaq.cli.connection import Where, ask
from dask_slaq.cli.options import json_option, scheduler_options
from dask_slaq.cli.text import tell

if TYPE_CHECKING:
    from distributed import Client


@click.command()
@click.option(
    "--workers",
    is_flag=False,
    flag_value=0,
    default=0,
    type=click.IntRange(0),
    metavar="[N]",
    help="Number of workers to compare with those that are there; that which pays by default.",
)
@scheduler_options
@json_option
def advise(where: Where, workers: int, json_file: str | None) -> None:
    """Say how many workers pay for the jobs of a running scheduler, or what N would change.

    They pay by the worth of the jobs' time and the price in the setting slaq.scaling, without it in
    worker-hours. What to persist is told by dask_slaq.persisting.
    """
    found = ask(where, partial(_whatif, workers))
    tell(found, found["text"], json_file)


async def _whatif(workers: int, client: Client) -> dict[str, Any]:
    from dask_slaq.client import whatif

    return await whatif(workers or None, client=client)  # type: ignore[misc]
