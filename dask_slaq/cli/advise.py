"""``dask slaq advise``: which solver and how many threads, from recorded runs."""

from __future__ import annotations

import click

from dask_slaq.cli.options import json_option


def _counts(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """Whole numbers between commas."""
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
@click.argument(
    "logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False)
)
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
@json_option
def advise(
    logs: tuple[str, ...],
    target: float,
    group: str | None,
    threads: list[int],
    within: float | None,
    json_file: str | None,
) -> None:
    """Advise which solver, on how many threads, reaches a target loss soonest or cheapest.

    LOG is a file that the setting slaq.log made, of one or several training runs; older files
    (LOG.1, LOG.2, ...) are read first. Runs are grouped by the names of their jobs. Name them by
    solver, and record each on two or more numbers of threads: one tells nothing of scaling but
    how many tasks there are.

    Losses of different solvers can only be compared if they are the same loss: the same
    function of the same data, a sum in all or a mean in all.
    """
    from dask_slaq.cli.advice_tables import show_advice

    chosen = {} if group is None else {"group": group}
    show_advice(logs, target, json_file=json_file, threads=threads, within=within, **chosen)
