"""The commands ``dask slaq simulate`` and ``dask slaq replay``, which need no scheduler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from textwrap import fill
from typing import Any

import click

from dask_slaq.cli.options import json_option, policies_or_oracles
from dask_slaq.cli.text import aligned, tell
from dask_slaq.lab.simulation import Settings

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
_LEGEND = (
    "Means over all jobs: seconds from arrival to 90 and 95 % of the loss reduction and to the "
    "end;\nnormalized loss over the active jobs, and its integral a job; rho: seconds to the end "
    "over those under fair."
)


def _options_of_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each of the `Settings`."""
    for row in reversed(fields(Settings)):
        flag, default, about = row.name.replace("_", "-"), row.default, row.metadata
        names, shown = f"--{flag}", about["unset"] or default is not None
        kind: Any = bool
        if isinstance(default, bool):
            names = f"--{flag}/--un{flag}"
        elif isinstance(default, str):
            kind = click.Choice(about["allowed"])
        else:
            number = click.IntRange if isinstance(default, int) else click.FloatRange
            kind = number(*about["allowed"]) if about["allowed"] else float
        option = click.option(
            names, type=kind, default=default, show_default=shown, help=about["about"]
        )
        command = option(command)
    return command


@click.command()
@click.option(
    "--curves",
    multiple=True,
    metavar="FILE",
    show_default="curves made from the seed",
    help="Loss curves of the jobs: JSON lines with id and loss. Can be repeated.",
)
@click.option(
    "--arrivals",
    metavar="FILE",
    show_default="a Poisson process",
    help="Traces of clusters, JSON lines with trace, arrivals_s, duration_s and gpus: jobs come, "
    "and are large, as the first ones there; scaled to --interarrival and --load.",
)
@click.option("--trace", metavar="NAME", help="Which one, if FILE has several.")
@click.option(
    "--policies",
    default="fair,max-total,oracle",
    show_default=True,
    callback=policies_or_oracles,
    help="Names between commas: policies; oracle or oracle:POLICY, which know true curves and "
    "running times.",
)
@_options_of_settings
@click.option(
    "--processes",
    type=click.IntRange(1),
    show_default="one a core, or one if there are few jobs",
    help="Runs of policies and lists at once; results are the same.",
)
@json_option
def simulate(
    policies: list[str],
    curves: tuple[str, ...],
    arrivals: str | None,
    trace: str | None,
    processes: int | None,
    json_file: str | None,
    **settings: Any,
) -> None:
    """Simulate training jobs that arrive on a cluster, once under each policy.

    The scheduling engine is the one of the live plugin; jobs, clock and cores are simulated. The
    defaults reproduce the setting of section 6.2 of the SLAQ paper.
    """
    from dask_slaq.lab.simulation import simulate as run

    chosen = Settings(**settings)
    runs = chosen.seeds * len({*policies, "fair"})
    if processes is None:
        # For fewer jobs than that, starting more processes does not pay off.
        processes = min(os.cpu_count() or 1, runs) if chosen.jobs * runs >= 500 else 1

    def say(ended: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{ended} of {runs} runs ", nl=ended == runs, err=True)

    times: dict[str, Any] = {"arrivals": arrivals, "trace": trace}
    found = run(policies, curves or None, chosen, processes=processes, say=say, **times)
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


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(exists=True, dir_okay=False))
@json_option
def replay(log: str, json_file: str | None) -> None:
    """Replay a recorded log, and compare the decisions with the recorded ones.

    LOG is the newest file recorded with the setting slaq.log; older files (LOG.1, LOG.2, ...)
    are read first. The exit code is 1 if a recorded decision is not reproduced.
    """
    from dask_slaq.lab.simulation import replay as replaying

    found = replaying.replay_log(log)
    tell(found, "\n".join([found["said"], *found["notes"]]), json_file)
    raise SystemExit(0 if found["difference"] is None else 1)
