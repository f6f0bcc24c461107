"""The command ``dask slaq demo``."""

from __future__ import annotations

import click

from dask_slaq.cli.options import json_option, writable
from dask_slaq.demo import ITERATIONS, ROWS

__all__ = ["demo"]


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


@click.command()
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
