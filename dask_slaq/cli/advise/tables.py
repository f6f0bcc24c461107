"""Table of results for ``dask slaq advise``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from dask_slaq.cli.progress import bars
from dask_slaq.cli.tables import tell
from dask_slaq.cli.text import aligned, printable
from dask_slaq.core.errors import SlaqError
from dask_slaq.simulation.advice import advise
from dask_slaq.simulation.recorded import LogError

__all__ = ["advice_text", "show_advice"]

_HEADING = ("solver", "iterations", "threads", "s/iteration", "seconds", "thread-seconds", "")
_LEGEND = (
    "~: predicted, as no run reached the target, with the band that four runs in five are to end "
    "in.\n*: extrapolated to a number of threads that was not recorded."
)


def show_advice(
    logs: Sequence[str], target: float, *, json_file: str | None = None, **options: Any
) -> None:
    """Print the advice, and write its figures as JSON if a file is given.

    Parameters
    ----------
    logs : sequence of str
        Logs recorded by the plugin; the newest file of each.
    target : float
        Loss to reach.
    json_file : str, optional
        File for the figures; see `tell`.
    **options
        Further arguments of `advise`.

    Raises
    ------
    click.ClickException
        A log or a setting is invalid, or the target is out of reach.
    """
    try:
        with bars() as progress:
            found = advise(logs, target, progress=progress, **options)
    except (SlaqError, LogError) as error:
        raise click.ClickException(str(error)) from None
    tell(found, advice_text(found), json_file)


def advice_text(found: Mapping[str, Any]) -> str:
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
    if found["within"] is not None:
        lines += [_deadline(found["within"], n, g) for n, g in found["groups"].items()]
    return lines


def _threads(option: Mapping[str, Any]) -> str:
    count = f"{option['threads']} thread{'s' if option['threads'] > 1 else ''}"
    return f"{count} (extrapolated)" if option["extrapolated"] else count


def _deadline(within: float, name: str, group: Mapping[str, Any]) -> str:
    fewest, name = group["fewest"], printable(name)
    if fewest is None:
        return f"Within {within:g} s: {name} does not get there on the threads looked at."
    return f"Within {within:g} s: {name} on {_threads(fewest)}, in {fewest['seconds']:.1f} s."
