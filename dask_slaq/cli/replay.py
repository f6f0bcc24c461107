"""The command ``dask slaq replay``."""

from __future__ import annotations

import click

from dask_slaq.cli.options import json_option


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(exists=True, dir_okay=False))
@json_option
def replay(log: str, json_file: str | None) -> None:
    """Replay a recorded log, and compare the decisions with the recorded ones.

    LOG is the newest file recorded with the setting slaq.log; older files (LOG.1, LOG.2, ...)
    are read first. The exit code is 1 if a recorded decision is not reproduced.
    """
    from dask_slaq.cli.text import tell
    from dask_slaq.simulation.replay import LogError, replay_log

    try:
        found = replay_log(log)
    except LogError as error:
        raise click.ClickException(str(error)) from None
    tell(found, "\n".join([found["said"], *found["notes"]]), json_file)
    raise SystemExit(0 if found["difference"] is None else 1)
