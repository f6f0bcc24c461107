"""Preload module for ``dask scheduler --preload dask_slaq``, with all settings as options.

As ``distributed.client.preload`` it says to whom the tasks of a client belong that opens no job.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from dask_slaq.client import introduce
from dask_slaq.config import settings
from dask_slaq.core.errors import SlaqError
from dask_slaq.core.policies import POLICIES
from dask_slaq.scheduler.event_log import Journal

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

logger = logging.getLogger(__name__)


class CheckedCommand(click.Command):
    """Command that checks all options when the command line is parsed.

    Dask only logs what a preload raises later, so the scheduler would run without the plugin.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        try:
            chosen = settings(**ctx.params)
            if chosen.log:
                Journal(chosen.log, chosen.log_size, chosen.log_files).close()
        except SlaqError as error:
            raise click.UsageError(str(error), ctx) from error
        return rest


@click.command(cls=CheckedCommand)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    help="Policy that decides which jobs get the workers.",
)
@click.option("--epoch", help="Time between two reallocations, such as 1s.")
@click.option("--lend/--no-lend", default=None, help="Lend idle slots to other jobs.")
@click.option("--normalizer", help="range or largest-change.")
@click.option("--latest", type=float, help="Factor of its fair time at which a job ends at latest.")
@click.option("--floor", type=float, help="Fraction of its fair share of a job of unknown length.")
@click.option("--other-weight", type=float, help="Weight of unowned tasks.")
@click.option("--reserve", type=float, help="Fraction of the threads reserved for unowned tasks.")
@click.option("--ahead", help="Send a task this long before a thread is free, such as 25ms.")
@click.option("--history", type=int, help="Number of epochs to remember.")
@click.option("--bindings", type=int, help="Number of task bindings to remember.")
@click.option(
    "--memory", metavar="FILE", help="Keep past runs in FILE, for forecasts of later ones."
)
@click.option("--log", metavar="FILE", help="Record all events to FILE, for dask slaq replay.")
@click.option("--log-size", help="Size at which the log is rotated, such as 100MiB.")
@click.option("--log-files", type=int, help="Number of log files to keep.")
async def dask_setup(scheduler: Scheduler | Worker | Client, **options: Any) -> None:
    """Register SlaqPlugin. Options default to the Dask configuration under slaq:."""
    from distributed import Client, Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

    if isinstance(scheduler, Client):
        await introduce(scheduler)
        return
    if not isinstance(scheduler, Scheduler):
        logger.warning("--preload dask_slaq does nothing on %s", type(scheduler).__name__)
        return
    _log_as_distributed()
    plugin = SlaqPlugin(**options)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin, name=plugin.name)
    logger.info("dask_slaq: policy %s, epoch %g s", plugin.settings.policy, plugin.settings.epoch)


def _log_as_distributed() -> None:
    """Send log messages of dask_slaq to Dask's handlers, unless logging is set up otherwise."""
    ours, theirs = logging.getLogger("dask_slaq"), logging.getLogger("distributed")
    if not ours.hasHandlers():
        ours.setLevel(theirs.getEffectiveLevel())
        for handler in theirs.handlers:
            ours.addHandler(handler)
