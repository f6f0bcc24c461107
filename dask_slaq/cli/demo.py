"""The command ``dask slaq demo``."""

from __future__ import annotations

import click

from dask_slaq.cli.options import json_option, known_policies, writable


@click.command()
@click.option("--jobs", is_flag=True, help="Train jobs of many tasks, under each policy.")
@click.option("--fits", is_flag=True, help="Fit estimators of dask-ml, by plain Dask and as jobs.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("fair", "max-total"),
    show_default="fair, then max-total",
    callback=known_policies,
    help="With --jobs: policy to train under; repeat it to compare several, in this order.",
)
@click.option("--count", type=click.IntRange(1), help="Models (32), or jobs or fits (12).")
@click.option("--steps", type=click.IntRange(2), help="Steps of a model (30), or of a job (40).")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="About how long all of them train (models 20, else 32), each time.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of models, jobs, arrivals.")
@json_option
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    default="slaq-demo.html",
    show_default=True,
    callback=writable,
    help="Write the report with curves and threads to FILE.",
)
def demo(
    jobs: bool,
    fits: bool,
    count: int | None,
    steps: int | None,
    seconds: float | None,
    json_file: str | None,
    html_file: str,
    seed: int,
    policies: tuple[str, ...],
) -> None:
    """Train many models on this machine, to see when the best are ready.

    The same models train by plain client.map and in a search, in which the most promising ones go
    first, twice each, in turn. With --fits, fits of dask-ml arrive one after another, by plain Dask
    and each as a job; with --jobs, jobs of many tasks, under each policy. A comparison and an HTML
    report follow at the end.
    """
    from dask_slaq.lab.demo import fits as of_dask_ml
    from dask_slaq.lab.demo import local, many_tasks, report, search

    if fits and jobs:
        raise click.UsageError("choose --fits or --jobs")
    run = of_dask_ml.fits if fits else many_tasks.jobs if jobs else search.search
    many = jobs or fits
    chosen = local.Options(
        count=count or (12 if many else 32),
        steps=steps or (40 if many else 30),
        seconds=seconds or (32.0 if many else 20.0),
        seed=seed,
        policies=policies,
    )
    raise SystemExit(report.show(run, chosen, json_file, html_file))
