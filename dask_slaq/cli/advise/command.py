"""``dask slaq advise``: choice of solver and thread count from recorded runs."""

from __future__ import annotations

import click

from dask_slaq.cli.memory import runs_of_store, store_option
from dask_slaq.cli.options import json_option


def _counts(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """Parse thread counts separated by commas."""
    if value is None:
        return []
    try:
        counts = [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers, as 2,4,8") from None
    if min(counts) < 1:
        raise click.BadParameter(f"thread counts must be at least 1, not {min(counts)}")
    return counts


@click.command()
@click.argument("logs", metavar="[LOG...]", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--target", type=float, required=True, metavar="LOSS", help="Loss to reach, as jobs report it."
)
@click.option(
    "--group",
    metavar="REGEX",
    show_default="the name without a number at its end",
    help="What of a job's name is its solver: the first parenthesis of a regular expression, or "
    "all that it finds. Jobs in which it finds nothing are left out.",
)
@click.option(
    "--threads",
    callback=_counts,
    metavar="N,N,...",
    show_default="those recorded, and powers of two",
    help="Thread counts to estimate for.",
)
@click.option(
    "--within",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Also say the fewest threads that reach the target in so many seconds.",
)
@store_option
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="NAME",
    help="Only past runs of this kind. Can be repeated.",
)
@json_option
def advise(
    logs: tuple[str, ...],
    target: float,
    group: str | None,
    threads: list[int],
    within: float | None,
    memory: str | None,
    kinds: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Find the solver and thread count that reach a target loss soonest or cheapest.

    LOG is a file recorded with the setting slaq.log. It may hold several training runs; older
    files (LOG.1, LOG.2, ...) are read first. Runs are grouped by job name. Name jobs by solver,
    and record each solver with at least two thread counts: with a single one, the number of
    tasks is the only evidence of how the solver scales.

    Compare solvers only if they report the same loss: the same function of the same data, and
    either its sum in all runs or its mean in all runs.

    With --memory, past runs are considered too, with their kind as solver; --kind chooses some.
    """
    from dask_slaq.cli.advise.tables import show_advice

    chosen = {} if group is None else {"group": group}
    if not logs and memory is None:
        raise click.UsageError("give a LOG or --memory")
    if kinds and memory is None:
        raise click.UsageError("--kind needs --memory")
    runs = [run for run in runs_of_store(memory) if not kinds or run.kind.name in kinds]
    if memory is not None and not runs and not logs:
        raise click.ClickException("there is no past run of these kinds: see dask slaq memory")
    show_advice(
        logs, target, json_file=json_file, threads=threads, within=within, memory=runs, **chosen
    )
