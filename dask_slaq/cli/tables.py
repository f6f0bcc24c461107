"""Output of ``dask slaq simulate``: a table, and figures as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import click

from dask_slaq.cli.text import aligned, tell
from dask_slaq.core.errors import SlaqError
from dask_slaq.simulation.study import Settings, simulate
from dask_slaq.simulation.workload import CurveError, TraceError

#: Heading, key and number of decimals of each column.
COLUMNS = (
    ("t90/s", "t90_mean_s", 1),
    ("t95/s", "t95_mean_s", 1),
    ("end/s", "completion_mean_s", 1),
    ("loss", "mean_normalized_loss", 3),
    ("area/s", "area", 1),
    ("rho", "rho_mean", 2),
    ("p95", "rho_p95", 2),
    ("max", "rho_max", 2),
    ("busy", "utilization", 2),
    ("active", "active_mean", 1),
    ("decision/ms", "decision_seconds", 1),
)
#: Number of jobs, summed over all runs, from which starting more processes pays off.
MANY = 500
_LEGEND = (
    "Means over all jobs: seconds from arrival to 90 and 95 % of the loss reduction and to the "
    "end;\nnormalized loss over the active jobs, and its integral a job; rho: seconds to the end "
    "over those under fair."
)


def show(
    policies: Sequence[str],
    curves: Sequence[str],
    settings: Mapping[str, Any],
    *,
    arrivals: str | None = None,
    trace: str | None = None,
    processes: int | None = None,
    json_file: str | None = None,
) -> None:
    """Simulate, print a table, and write the figures as JSON to `json_file` if it is given.

    `settings` are those of `simulation.settings.Settings`; see `simulation.study.simulate` for the
    rest. By default, a large study has a process per core.
    """
    try:
        chosen = Settings(**settings)
        runs = chosen.seeds * len({*policies, "fair"})
        if processes is None:
            processes = min(os.cpu_count() or 1, runs) if chosen.jobs * runs >= MANY else 1
        found = simulate(
            policies,
            curves or None,
            chosen,
            arrivals=arrivals,
            trace=trace,
            processes=processes,
        )
    except (SlaqError, CurveError, TraceError) as error:
        raise click.ClickException(str(error)) from None
    tell(found, _table(found), json_file)


def _table(found: Mapping[str, Any]) -> str:
    """Return the result of a study as a table below a summary of its settings."""
    cells = [["policy", *(heading for heading, _, _ in COLUMNS)]]
    for name, figures in found["policies"].items():
        line = [name]
        for _, key, digits in COLUMNS:
            value = figures[key]
            if value is not None and key == "decision_seconds":
                value *= 1e3
            line.append("-" if value is None else f"{value:.{digits}f}")
        cells.append(line)
    s = found["settings"]
    title = (
        f"{s['jobs']} jobs, {s['cores']} cores, one every {s['interarrival']:g} s, "
        f"{s['scaling']} scaling, seeds {s['seed']} to {s['seed'] + s['seeds'] - 1}"
    )
    legend = [_LEGEND]
    if assumption := s.get("assumption"):  # with a trace
        legend.append(fill(assumption, 100))
    return "\n".join([title, "", *aligned(cells), "", *legend])
