"""The commands ``dask slaq simulate`` and ``dask slaq replay``, which need no scheduler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from textwrap import fill
from typing import Any

import click

from dask_slaq.cli.options import json_option, policies_or_oracles, with_default
from dask_slaq.cli.text import aligned, tell

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


@click.command()
@click.option(
    "--curves",
    "curves",
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
    "--cores-per-gpu",
    type=click.FloatRange(0, min_open=True),
    show_default="no cap",
    help="Threads that a job of a trace can use at most for each GPU that it had.",
)
@click.option(
    "--policies",
    default="fair,max-total,oracle",
    show_default=True,
    callback=policies_or_oracles,
    help="Names between commas: policies; oracle or oracle:POLICY, which know true curves and "
    "running times.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=160, show_default=True, help="Jobs of a list."
)
@click.option("--cores", type=click.IntRange(1), default=640, show_default=True)
@with_default("--interarrival", click.FloatRange(0), 15.0, "Mean seconds between two arrivals.")
@click.option(
    "--seeds", type=click.IntRange(1), default=6, show_default=True, help="Lists of jobs."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first one.")
@click.option(
    "--load",
    type=click.FloatRange(0, min_open=True),
    show_default="the work of the paper's section 6.2",
    help="Core-seconds that arrive in a core-second. If left out, jobs are as large at every "
    "--interarrival.",
)
@with_default(
    "--noise",
    click.FloatRange(0),
    0.0,
    "Standard deviation of the noise on reports, in ranges of the curve.",
)
@with_default(
    "--scaling",
    click.Choice(["linear", "waves", "sublinear"]),
    "linear",
    "True running times of iterations on N threads.",
)
@click.option(
    "--max-cores", type=click.FloatRange(0, min_open=True), help="Threads of any one job at most."
)
@with_default(
    "--move-pause",
    click.FloatRange(0),
    0.0,
    "Seconds in which a job computes nothing on a worker that it gained.",
)
@with_default("--epoch", click.FloatRange(0, min_open=True), 3.0, "Seconds between two decisions.")
@with_default(
    "--gap",
    click.FloatRange(0),
    0.0,
    "Least seconds between two decisions; 0 to react to arrivals and ends at once.",
)
@with_default(
    "--latest",
    click.FloatRange(1),
    2.0,
    "Factor of its fair time at which a job of known length ends at the latest; inf for none.",
)
@with_default(
    "--floor",
    click.FloatRange(0, 1),
    0.75,
    "Part of its fair share that a job of unknown length keeps over time.",
)
@click.option(
    "--announced/--unannounced",
    default=True,
    show_default=True,
    help="Whether jobs announce their number of iterations, as fits of libraries do.",
)
@with_default(
    "--normalizer",
    click.Choice(["range", "largest-change"]),
    "range",
    "What losses are divided by.",
)
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
    **settings: object,
) -> None:
    """Simulate training jobs that arrive on a cluster, once under each policy.

    The scheduling engine is the one of the live plugin; jobs, clock and cores are simulated. The
    defaults reproduce the setting of section 6.2 of the SLAQ paper.
    """
    from dask_slaq.core.errors import SlaqError
    from dask_slaq.simulation import CurveError, Settings, TraceError
    from dask_slaq.simulation import simulate as run

    try:
        chosen = Settings(**settings)  # type: ignore[arg-type]
        runs = chosen.seeds * len({*policies, "fair"})
        if processes is None:
            processes = min(os.cpu_count() or 1, runs) if chosen.jobs * runs >= MANY else 1
        about = {"arrivals": arrivals, "trace": trace, "processes": processes}
        found = run(policies, curves or None, chosen, **about)  # type: ignore[arg-type]
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


@click.command()
@click.argument("log", metavar="LOG", type=click.Path(exists=True, dir_okay=False))
@json_option
def replay(log: str, json_file: str | None) -> None:
    """Replay a recorded log, and compare the decisions with the recorded ones.

    LOG is the newest file recorded with the setting slaq.log; older files (LOG.1, LOG.2, ...)
    are read first. The exit code is 1 if a recorded decision is not reproduced.
    """
    from dask_slaq.simulation.replay import LogError, replay_log

    try:
        found = replay_log(log)
    except LogError as error:
        raise click.ClickException(str(error)) from None
    tell(found, "\n".join([found["said"], *found["notes"]]), json_file)
    raise SystemExit(0 if found["difference"] is None else 1)
