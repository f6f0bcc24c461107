"""The command ``dask slaq replay``."""

from __future__ import annotations

import click

from dask_slaq.cli.options import json_option, policies_or_oracles

__all__ = ["replay"]


def _known_studies(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> list[str]:
    return policies_or_oracles(context, parameter, ",".join(names))


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("fair", "max-total"),
    show_default="fair and max-total",
    callback=_known_studies,
    help="Policy or oracle, as of simulate, to simulate on the recorded jobs; can be repeated.",
)
@json_option
def replay(log: str, policies: list[str], json_file: str | None) -> None:
    """Replay a recorded log, and simulate its jobs under other policies.

    LOG is the newest file recorded with the setting slaq.log; older files (LOG.1, LOG.2, ...)
    are read first. The exit code is 1 if a recorded decision is not reproduced.
    """
    from dask_slaq.cli.tables import show_replay

    raise SystemExit(0 if show_replay(log, policies, json_file) else 1)
