"""Table of the paper's values and the values measured here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.paper.datasets import Row

__all__ = ["markdown"]

_HEAD = """# The paper's figures, and ours

`not stated`: no number of the paper is known here for certain. What a figure of the paper shows is
told in `paper_figure` of its NetCDF file, as it is taken to be. The paper ran Spark on 640
cores; ours are simulations with the scheduler's own engine, and measurements on this machine.

"""
_NOTE = """
The mean normalized loss of the active jobs, the paper's measure, is flattered by jobs that have
nearly converged and stay active: the part of the jobs' time with at most 5 % left to fall tells how
much, and the integral of the normalized loss of each job is free of it.
"""


def markdown(rows: Sequence[Row]) -> str:
    """Format the table in Markdown, with the settings as numbered notes below it."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    lines = ["| figure | measured | the paper | ours | setting |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.figure} | {row.measured} | {row.paper} | {_ours(row)} | "
        f"[{settings.index(row.setting) + 1}] |"
        for row in rows
    ]
    notes = [f"{number}. {setting}" for number, setting in enumerate(settings, start=1)]
    return _HEAD + "\n".join(lines) + "\n" + _NOTE + "\nSettings:\n\n" + "\n".join(notes) + "\n"


def _ours(row: Row) -> str:
    unit = f" {row.unit}" if row.unit else ""
    return "; ".join(f"{name} {_short(value)}{unit}" for name, value in row.ours.items())


def _short(value: float) -> str:
    """Format a number with three digits, and nan as a dash."""
    return "-" if math.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
