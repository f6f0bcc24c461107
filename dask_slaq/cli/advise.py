"""``dask slaq advise``: which solver on which threads, and how many workers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dask_slaq.cli.connection import Where, ask
from dask_slaq.cli.options import json_option, scheduler_options
from dask_slaq.cli.text import aligned, printable

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["advise"]

_HEADING = ("solver", "iterations", "threads", "s/iteration", "seconds", "thread-seconds", "")
_LEGEND = (
    "~: predicted, as no run reached the target, with the band that four runs in five are to end "
    "in.\n*: extrapolated to a number of threads that was not recorded."
)


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
    "--target",
    type=float,
    metavar="LOSS",
    help="Loss to reach, as jobs report it.",
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
    "--workers",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[N]",
    help="Of a running scheduler: how many workers pay for its jobs, or what N would change.",
)
@scheduler_options
@json_option
def advise(
    logs: tuple[str, ...],
    where: Where,
    workers: int | None,
    target: float | None,
    group: str | None,
    threads: list[int],
    json_file: str | None,
) -> None:
    """Find the solver and thread count that reach a target loss soonest.

    LOG is a file recorded with the setting slaq.log. It may hold several training runs; older
    files (LOG.1, LOG.2, ...) are read first.

    Runs are grouped by job name. Name jobs by solver, and record each solver with at least two
    thread counts: with a single one, the number of tasks is the only evidence of how the solver
    scales.

    Compare solvers only if they report the same loss: the same function of the same data, and
    either its sum in all runs or its mean in all runs.

    With --workers: says how many workers pay for the jobs of a running scheduler, by their worth
    and the price in its setting slaq.scaling, and what one more would save and cost.

    What to persist is told by dask_slaq.persisting, without a recording.
    """
    from dask_slaq.cli.tables import tell

    if workers is not None:
        if logs or target is not None:
            raise click.UsageError("--workers is of a running scheduler, without LOG and --target")
        found = ask(where, partial(_whatif, workers))
        tell(found, found["text"], json_file)
        return
    from dask_slaq.core.errors import SlaqError
    from dask_slaq.simulation import advice
    from dask_slaq.simulation.recorded import LogError

    if not logs or target is None:
        raise click.UsageError("give a LOG and --target, or --workers")
    chosen = {} if group is None else {"group": group}
    try:
        found = advice.advise(logs, target, threads=threads, **chosen)
    except (SlaqError, LogError) as error:
        raise click.ClickException(str(error)) from None
    tell(found, _text(found), json_file)


async def _whatif(workers: int, client: Client) -> dict[str, Any]:
    from dask_slaq.client import whatif

    return await whatif(workers or None, client=client)  # type: ignore[misc]


def _text(found: Mapping[str, Any]) -> str:
    """Return the result of `advise` as a readable table, followed by conclusions and notes."""
    cells = [list(_HEADING)]
    for name, group in found["groups"].items():
        first = [printable(name), _iterations(group["iterations"])]
        if not group["options"]:
            cells.append([*first, "-", "-", "-", "-", _not_in_sight(group["iterations"])])
        for option in group["options"]:
            cells.append([*first, *_cells(option), _marks(found, name, option)])
            first = ["", ""]
    title = f"To a loss of {found['target']:g}"
    lines = [title, "", *aligned(cells, left=(0, 6)), "", _LEGEND, "", *_conclusions(found)]
    return "\n".join([*lines, *found["notes"]])


def _iterations(iterations: Mapping[str, Any]) -> str:
    middle, low, high = (iterations[key] for key in ("middle", "low", "high"))
    if middle is None:
        return "-"
    text = f"{'~' if iterations['predicted'] else ''}{middle:.0f}"
    most = "?" if high is None else f"{high:.0f}"
    return text if low == high else f"{text} ({low:.0f} to {most})"


def _not_in_sight(iterations: Mapping[str, Any]) -> str:
    return (
        f"not in sight: {iterations['lowest_loss']:.4g} recorded, "
        f"{iterations['predicted_loss']:.4g} predicted at best"
    )


def _cells(option: Mapping[str, Any]) -> list[str]:
    return [
        f"{option['threads']}{'*' if option['extrapolated'] else ' '}",
        f"{option['iteration_s']:.3g}",
        f"{option['seconds']:.1f}",
        f"{option['thread_seconds']:.0f}",
    ]


def _marks(found: Mapping[str, Any], name: str, option: Mapping[str, Any]) -> str:
    here = (name, option["threads"])
    marks = [
        mark
        for mark in ("soonest", "cheapest")
        if (found[mark]["group"], found[mark]["threads"]) == here
    ]
    return ", ".join(marks)


def _conclusions(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for mark in ("soonest", "cheapest"):
        best = found[mark]
        what = f"{printable(best['group'])} on {_threads(best)}"
        lines.append(
            f"{mark.capitalize()}: {what}, in {best['seconds']:.1f} s "
            f"for {best['thread_seconds']:.0f} thread-seconds."
        )
    return lines


def _threads(option: Mapping[str, Any]) -> str:
    count = f"{option['threads']} thread{'s' if option['threads'] > 1 else ''}"
    return f"{count} (extrapolated)" if option["extrapolated"] else count
