"""Live benchmark: jobs on a real Dask cluster, plain Dask against the policies.

`staggered` and `burst` emulate the compute of jobs with recorded loss curves on 16
one-thread workers in this process; `dask-ml` runs unmodified fits on worker processes, and `nine`
the algorithms of the paper's Table 1.
`oracle` is max-total with a predictor that knows the true curves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from dask.utils import parse_timedelta

from benchmarks import agreement
from benchmarks import jobs as job_makers
from benchmarks.emulation import run_emulated
from benchmarks.measure import LATE, Run, ratios, summarize, table
from benchmarks.results import give, json_option
from dask_slaq.simulation import curves as curve_files

EMULATED = ("staggered", "burst")
REAL = ("dask-ml", "nine")
WORKLOADS = (*EMULATED, *REAL)
#: Length of a `--quick` run in relation to a whole one, and its number of jobs.
QUICK = 0.08
QUICK_JOBS = 6

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
            busy = " - this machine is busy, times mean little" if done.late > LATE else ""
            say(f"seed {seed}, {policy}: makespan {done.makespan:.1f} s{busy}")
    found = {policy: summarize(done) for policy, done in runs.items()}
    return {"policies": found, "ratios": ratios(found)}


def emulated(jobs: agreement.Jobs, settings: dict[str, Any]) -> Runner:
    """Runner of `staggered` or `burst`.

    Parameters
    ----------
    jobs : callable
        Makes the jobs of a seed.
    settings : dict
        Of `run_emulated`.
    """

    def run(policy: str, seed: int) -> Run:
        made = jobs(seed)
        predictor = None
        if policy == "oracle":
            from dask_slaq.simulation.oracles import OraclePredictor

            predictor = OraclePredictor({job.name: job.loss for job in made})
            policy = "max-total"
        return run_emulated(made, policy, seed=seed, predictor=predictor, **settings)

    return run


def _jobs(workload: str, curves: list[curve_files.Curve], **shape: Any) -> agreement.Jobs:
    """What makes the jobs of `staggered` or `burst`, of curves made from the seed by default."""
    make = {"staggered": job_makers.staggered, "burst": job_makers.burst}[workload]
    return lambda seed: make(curves or curve_files.make_curves(seed), seed, **shape)


def _names(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    if value is None:
        return []
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
    callback=_names,
    help=f"Comma-separated, of {', '.join(WORKLOADS)}; the first three, or two when --quick.",
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
    help="On emulated reports, in ranges of the curve; t90 is by the true curve.",
)
@click.option("--epoch", default="1s", show_default=True, help="Of the plugin.")
@click.option("--oracle/--no-oracle", default=True, help="Run the oracle beside max-total.")
@click.option("--workers", default=16, show_default=True, help="In-process workers.")
@click.option("--processes", default=2, show_default=True, help="For dask-ml and nine.")
@click.option("--partition-bytes", default=2**20, show_default=True, help="Emulated data.")
@click.option("--jobs", type=click.IntRange(1), help="Emulated jobs; 10 staggered, 14 in a burst.")
@click.option("--scale", default=1.0, show_default=True, help="Length of the emulated runs.")
@click.option(
    "--slow",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Factor on the seconds of emulated jobs, for a machine that is busy otherwise; give "
    "--epoch as much longer.",
)
@click.option(
    "--told/--untold",
    default=True,
    show_default=True,
    help="Whether emulated jobs say how many iterations they run, as fits of libraries do.",
)
@click.option(
    "--simulate/--no-simulate",
    default=None,
    show_default="on, but for --quick",
    help="Simulate the emulated jobs too, and compare the mean t90.",
)
@click.option("--quick", is_flag=True, help="One seed, few and small jobs: under a minute.")
@json_option
def main(**options: Any) -> None:
    """Run jobs on a real Dask cluster under each policy, and compare."""
    if options["quick"]:
        options.update(seeds=1, scale=QUICK, jobs=options["jobs"] or QUICK_JOBS)
    workloads = options["workloads"] or (EMULATED if options["quick"] else WORKLOADS[:3])
    if unknown := set(workloads) - set(WORKLOADS):
        raise click.UsageError(f"unknown workload {min(unknown)}: one of {', '.join(WORKLOADS)}")
    curves = _curves(options["files"])
    policies, first = options["policies"], options["seed"]
    if options["oracle"] and "max-total" in policies and "oracle" not in policies:
        policies = [*policies, "oracle"]
    check = options["simulate"] or (options["simulate"] is None and not options["quick"])
    result: dict[str, Any] = {}
    for workload in workloads:
        result[workload] = found = measure(
            _runner(workload, curves, options),
            [p for p in policies if p != "oracle" or workload in EMULATED],
            range(first, first + options["seeds"]),
            lambda line, workload=workload: print(f"{workload}: {line}", file=sys.stderr),
        )
        if options["output"] != "-":
            click.echo(table(workload, found["policies"]) + "\n")
    for workload in workloads if check else ():
        if workload in EMULATED:
            _simulate(workload, result[workload], curves, options)
    give(result, options["output"])


def _simulate(
    workload: str, found: dict[str, Any], curves: list[curve_files.Curve], options: dict[str, Any]
) -> None:
    """Compare with the simulator what was found for a workload, and put it there."""
    found["simulator"] = agreement.compare(
        found["policies"],
        _jobs(workload, curves, **_shape(options)),
        range(options["seed"], options["seed"] + options["seeds"]),
        workers=options["workers"],
        epoch=parse_timedelta(options["epoch"]),
        overhead=agreement.measure_overhead(**_settings(options)),
    )
    if options["output"] != "-":
        click.echo(agreement.agreement_table(workload, found["simulator"]) + "\n")


def _curves(files: tuple[str, ...]) -> list[curve_files.Curve]:
    try:
        curves = curve_files.fit_for_jobs(curve_files.read_curves(files))
    except curve_files.CurveError as error:
        raise click.ClickException(str(error)) from error
    if files and not curves:
        raise click.ClickException(f"no curve of {', '.join(files)} is fit for a job")
    return curves


def _runner(workload: str, curves: list[curve_files.Curve], options: dict[str, Any]) -> Runner:
    if workload in REAL:
        from benchmarks import real_fits

        size = {"rows": real_fits.ROWS // 20, "part": 0.3} if options["quick"] else {}
        return real_fits.runner(options["processes"], mix=workload, epoch=options["epoch"], **size)
    return emulated(_jobs(workload, curves, **_shape(options)), _settings(options))


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Of `run_emulated`."""
    return {key: options[key] for key in ("workers", "partition_bytes", "epoch")}


def _shape(options: dict[str, Any]) -> dict[str, Any]:
    """Of the emulated jobs."""
    shape = {key: options[key] for key in ("scale", "noise", "slow", "told")}
    return {**shape, "count": options["jobs"]} if options["jobs"] else shape


if __name__ == "__main__":
    main()
