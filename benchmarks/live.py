"""Live benchmark: jobs on a real Dask cluster, plain Dask against the policies.

`staggered` and `burst` emulate the compute of jobs with recorded loss curves on 16
one-thread workers in this process; `dask-ml` runs unmodified fits on worker processes.
`oracle` is max-total with a predictor that knows the true curves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from benchmarks import curves as curve_files
from benchmarks import jobs as job_makers
from benchmarks.emulation import run_emulated
from benchmarks.measure import Run, ratios, summarize, table

WORKLOADS = ("staggered", "burst", "dask-ml")
#: Size of a `--quick` run in relation to a whole one.
QUICK = 0.12

#: Runs one policy for one seed.
Runner = Callable[[str, int], Run]


def measure(
    run: Runner, policies: list[str], seeds: Iterable[int], say: Callable[[str], None]
) -> dict[str, Any]:
    """All policies for all seeds, the order of policies rotating so that drift cancels."""
    runs: dict[str, list[Run]] = {policy: [] for policy in policies}
    for turn, seed in enumerate(seeds):
        shift = turn % len(policies)
        for policy in policies[shift:] + policies[:shift]:
            done = run(policy, seed)
            runs[policy].append(done)
            say(f"seed {seed}, {policy}: makespan {done.makespan:.1f} s")
    found = {policy: summarize(done) for policy, done in runs.items()}
    return {"policies": found, "ratios": ratios(found)}


def emulated(
    workload: str, curves: list[curve_files.Curve], scale: float, noise: float, **settings: Any
) -> Runner:
    """Runner of `staggered` or `burst`."""
    make = {"staggered": job_makers.staggered, "burst": job_makers.burst}[workload]

    def run(policy: str, seed: int) -> Run:
        drawn = curves or curve_files.make_curves(seed)
        jobs = make(drawn, seed, scale=scale, noise=noise)
        predictor = None
        if policy == "oracle":
            from benchmarks.oracle import OraclePredictor

            predictor = OraclePredictor({job.name: job.loss for job in jobs})
            policy = "max-total"
        return run_emulated(jobs, policy, seed=seed, predictor=predictor, **settings)

    return run


def _names(context: click.Context, option: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("give at least one name")
    return list(dict.fromkeys(names))


@click.command()
@click.option(
    "--policies",
    default="none,fair,max-total",
    show_default=True,
    callback=_names,
    help="Comma-separated; 'none' is plain Dask without the plugin.",
)
@click.option(
    "--workloads",
    default=",".join(WORKLOADS),
    show_default=True,
    callback=_names,
    help="Comma-separated.",
)
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option(
    "--curves",
    "files",
    multiple=True,
    help="JSON lines with id and loss (repeatable); made from the seed by default.",
)
@click.option(
    "--noise",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Noise on emulated reports, in ranges of the curve; t90 is by the true curve.",
)
@click.option("--epoch", default="1s", show_default=True, help="Of the plugin.")
@click.option("--oracle/--no-oracle", default=True, help="Run the oracle beside max-total.")
@click.option("--workers", default=16, show_default=True, help="In-process workers.")
@click.option("--processes", default=2, show_default=True, help="Worker processes for dask-ml.")
@click.option("--partition-bytes", default=2**20, show_default=True, help="Emulated data.")
@click.option("--quick", is_flag=True, help="One seed and small jobs: under a minute.")
@click.option("--json", "output", help="Write JSON to this file, or - for standard output.")
def main(
    policies: list[str],
    workloads: list[str],
    seeds: int,
    seed: int,
    files: tuple[str, ...],
    noise: float,
    epoch: str,
    oracle: bool,
    workers: int,
    processes: int,
    partition_bytes: int,
    quick: bool,
    output: str | None,
) -> None:
    """Run jobs on a real Dask cluster under each policy, and compare."""
    if unknown := set(workloads) - set(WORKLOADS):
        raise click.BadParameter(f"unknown workload {', '.join(unknown)}: one of {WORKLOADS}")
    try:
        curves = curve_files.fit_for_jobs(curve_files.read_curves(files))
    except curve_files.CurveError as error:
        raise click.ClickException(str(error)) from error
    if files and not curves:
        raise click.ClickException(f"no curve of {', '.join(files)} is fit for a job")
    if oracle and "max-total" in policies and "oracle" not in policies:
        policies = [*policies, "oracle"]
    seeds = 1 if quick else seeds
    result: dict[str, Any] = {}
    for workload in workloads:
        chosen = policies
        if workload == "dask-ml":
            from benchmarks.dask_ml_fits import runner

            run = runner(processes, quick=quick, epoch=epoch)
            chosen = [policy for policy in policies if policy != "oracle"]
        else:
            run = emulated(
                workload,
                curves,
                QUICK if quick else 1.0,
                noise,
                workers=workers,
                partition_bytes=partition_bytes,
                epoch=epoch,
            )
        result[workload] = measure(
            run, chosen, range(seed, seed + seeds), lambda line, w=workload: _say(f"{w}: {line}")
        )
        if output != "-":
            click.echo(table(workload, result[workload]["policies"]) + "\n")
    if output:
        with click.open_file(output, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
