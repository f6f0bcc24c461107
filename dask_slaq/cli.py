"""``dask slaq …``: the command line, also as ``python -m dask_slaq``.

Imports of what a command needs stay inside the command: ``dask --help`` loads this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from dask_slaq.demo import ITERATIONS, ROWS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def slaq() -> None:
    """Quality-driven scheduling of machine learning jobs."""


def _known_policies(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse an unknown policy, naming it and what is allowed."""
    from dask_slaq.core.errors import UnknownPolicy
    from dask_slaq.core.policies import policy

    for name in names:
        try:
            policy(name)
        except UnknownPolicy as error:
            raise click.BadParameter(str(error)) from None
    return tuple(dict.fromkeys(names))


def _writable(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Refuse a file that cannot be written before minutes are spent on what goes into it."""
    if name is None or name == "-":
        return name
    path = Path(name)
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a directory, not a file")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} for {name!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{name!r} cannot be written")
    return name


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
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=_writable,
    help="Write the figures to FILE; - for standard output.",
)
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    default="slaq-demo.html",
    show_default=True,
    callback=_writable,
    help="Write the report with loss curves and allocation to FILE.",
)
def demo(json_file: str | None, html_file: str, **options: object) -> None:
    """Train real dask-ml jobs on a local cluster, under one policy after another.

    The jobs arrive one after another, the same under every policy. A live table shows them;
    a comparison and an HTML report come at the end.
    """
    from dask_slaq.demo.show import Options, show

    raise SystemExit(show(Options(**options), json_file=json_file, html_file=html_file))
