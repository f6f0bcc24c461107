"""Command line ``dask slaq``, also available as ``python -m dask_slaq``.

Commands import their dependencies when they run, because ``dask --help`` loads this module.
"""

from __future__ import annotations

import click

from dask_slaq.cli.advise import advise
from dask_slaq.cli.options import json_option, writable
from dask_slaq.demo import ITERATIONS, ROWS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def slaq() -> None:
    """Quality-driven scheduling of machine learning jobs."""


def _known_policies(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Reject unknown policies, and drop duplicates."""
    from dask_slaq.core.errors import UnknownPolicy
    from dask_slaq.core.policies import policy

    for name in names:
        try:
            policy(name)
        except UnknownPolicy as error:
            raise click.BadParameter(str(error)) from None
    return tuple(dict.fromkeys(names))


@slaq.command()
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("fair", "max-total"),
    show_default="fair, then max-total",
    callback=_known_policies,
    help="Policy to train under; repeat it to compare several, in this order.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=None,
    show_default="one a core, 2 to 4",
    help="Worker processes.",
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads a worker."
)
@click.option("--jobs", type=click.IntRange(1), default=6, show_default=True, help="Training jobs.")
@click.option(
    "--mix",
    type=click.Choice(["dask-ml", "nine"]),
    default="dask-ml",
    show_default=True,
    help="Which jobs: estimators of dask-ml, or the algorithms of the SLAQ paper's Table 1.",
)
@click.option(
    "--iterations",
    type=click.IntRange(2),
    default=ITERATIONS,
    show_default=True,
    help="Iterations that each job trains.",
)
@click.option(
    "--rows",
    type=click.IntRange(100),
    default=ROWS,
    show_default=True,
    help="Rows in each chunk of the training data.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of data, arrivals and jobs.")
@json_option
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    default="slaq-demo.html",
    show_default=True,
    callback=writable,
    help="Write the report with loss curves and allocation to FILE.",
)
@click.option(
    "--log",
    type=click.Path(file_okay=False, writable=True),
    metavar="DIR",
    help="Record every policy's run to DIR/POLICY.jsonl, for dask slaq replay.",
)
def demo(json_file: str | None, html_file: str, **options: object) -> None:
    """Train real jobs on a local cluster, once under each policy.

    The same jobs arrive one after another under every policy. A live table shows their progress.
    A comparison of the policies and an HTML report follow at the end.
    """
    from dask_slaq.demo.run import Options, show

    raise SystemExit(show(Options(**options), json_file=json_file, html_file=html_file))


def _policy_list(context: click.Context, parameter: click.Parameter, names: str) -> list[str]:
    """Parse names separated by commas; reject unknown policies, and drop duplicates."""
    from dask_slaq.core.errors import UnknownPolicy
    from dask_slaq.simulation.study import check_policy

    found = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not found:
        raise click.BadParameter("give at least one name")
    for name in found:
        try:
            check_policy(name)
        except UnknownPolicy as error:
            raise click.BadParameter(str(error)) from None
    return found


def _capacity_changes(
    context: click.Context, parameter: click.Parameter, changes: tuple[str, ...]
) -> tuple[tuple[float, int], ...]:
    """Parse changes of the form SECONDS:CORES, and sort them by time."""
    found = []
    for change in changes:
        time, _, cores = change.partition(":")
        try:
            found.append((float(time), int(cores)))
        except ValueError:
            raise click.BadParameter(f"{change!r} is not of the form SECONDS:CORES") from None
    return tuple(sorted(found))


def _known_studies(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> list[str]:
    return _policy_list(context, parameter, ",".join(names))


@slaq.command()
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

    raise SystemExit(0 if show_replay(log, policies, json_file=json_file) else 1)


@slaq.command()
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
    callback=_policy_list,
    help="Names between commas: policies; oracle or oracle:POLICY, which know true curves and "
    "running times; oracle-curves and oracle-times, which know only one of these; srtf-oracle, "
    "shortest remaining time to 95 % first.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=160, show_default=True, help="Jobs of a list."
)
@click.option("--cores", type=click.IntRange(1), default=640, show_default=True)
@click.option(
    "--interarrival",
    type=click.FloatRange(0),
    default=15.0,
    show_default=True,
    help="Mean seconds between two arrivals.",
)
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
@click.option(
    "--noise",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Standard deviation of the noise on reports, in ranges of the curve.",
)
@click.option(
    "--scaling",
    type=click.Choice(["linear", "waves", "sublinear"]),
    default="linear",
    show_default=True,
    help="True running times of iterations on N threads.",
)
@click.option(
    "--max-cores", type=click.FloatRange(0, min_open=True), help="Threads of any one job at most."
)
@click.option(
    "--move-pause",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds in which a job computes nothing on a worker that it gained.",
)
@click.option(
    "--stragglers",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the iterations that take four times as long.",
)
@click.option(
    "--capacity",
    multiple=True,
    metavar="SECONDS:CORES",
    callback=_capacity_changes,
    help="From then on there are so many cores. Can be repeated.",
)
@click.option(
    "--epoch",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds between two decisions.",
)
@click.option(
    "--dispatch",
    type=click.Choice(["shares", "index"]),
    default="shares",
    show_default=True,
    help="Who has the threads between two decisions: every job its share, or job by job as many "
    "as it can use, in the policy's order.",
)
@click.option(
    "--gap",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Least seconds between two decisions; 0 to react to arrivals and ends at once.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Part of its fair share that every job keeps over time.",
)
@click.option(
    "--normalizer",
    type=click.Choice(["range", "largest-change"]),
    default="range",
    show_default=True,
    help="What losses are divided by.",
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
    from dask_slaq.cli.tables import show

    show(
        policies,
        curves,
        settings,
        arrivals=arrivals,
        trace=trace,
        processes=processes,
        json_file=json_file,
    )


slaq.add_command(advise)
