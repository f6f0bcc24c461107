"""Live benchmark: jobs on Dask's real scheduler and workers, plain Dask against the policies.

The workloads `staggered` and `burst` emulate the compute of jobs with recorded loss curves on 16
one-thread workers; `mixed` adds batches, reductions and chains. They use the virtual clock by
default, on which a run gives the same digits on any machine; `mixed` runs there only. In real time,
`dask-ml` runs unmodified fits on worker processes, and `nine` runs the algorithms of the paper's
Table 1. The policy `oracle` is max-total with the true curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import click

from benchmarks import virtual
from benchmarks.common import results
from benchmarks.common.curves import read
from benchmarks.common.metrics import LATE, Run, ratios, summarize, table
from benchmarks.live_jobs.drivers import run_emulated
from benchmarks.live_jobs.emulated import make_jobs
from dask_slaq.lab.simulation.workload import curves as curve_files

EMULATED = ("staggered", "burst", "mixed")
REAL = ("dask-ml", "nine")
WORKLOADS = (*EMULATED, *REAL)
#: Length of a `--quick` run relative to a full run, and its number of jobs.
QUICK = 0.08
QUICK_JOBS = 6
POLICIES = ["none", "fair", "max-total"]

#: Function that runs one policy for one seed.
Runner = Callable[[str, int], Run]


def measure(
    run: Runner,
    policies: list[str],
    seeds: Iterable[int],
    say: Callable[[str], None],
    pool: Executor | None = None,
) -> dict[str, Any]:
    """Run all policies for all seeds, and summarize the runs and their ratios.

    The executor is for runs that do not disturb each other. Without one, runs are sequential, and
    the order of the policies rotates so that drift of the machine cancels.
    """
    plan = []
    for turn, seed in enumerate(seeds):
        shift = turn % len(policies)
        plan += [(policy, seed) for policy in policies[shift:] + policies[:shift]]
    runs: dict[str, list[Run]] = {policy: [] for policy in policies}
    compute = map if pool is None else pool.map
    for (policy, seed), done in zip(plan, compute(run, *zip(*plan, strict=True)), strict=True):
        runs[policy].append(done)
        busy = " - this machine is busy, times mean little" if done.late > LATE else ""
        results.say(f"seed {seed}, {policy}: makespan {done.makespan:.1f} s{busy}")
    found = {policy: summarize(done) for policy, done in runs.items()}
    return {"policies": found, "ratios": ratios(found)}


@dataclass(frozen=True)
class Emulated:
    """Runner of an emulated workload.

    Without curves, these are generated from the seed. `shape` and `settings` are further arguments
    of the function that makes the jobs, and of the one that runs them.
    """

    workload: str
    curves: Sequence[curve_files.LossCurve]
    shape: dict[str, Any]
    settings: dict[str, Any]

    def __call__(self, policy: str, seed: int) -> Run:
        """Run `policy` for `seed`."""
        curves = list(self.curves) or curve_files.make_curves(seed)
        jobs = make_jobs(self.workload, curves, seed, **self.shape)
        predictor = None
        if policy == "oracle":
            from dask_slaq.lab.simulation.oracles import OraclePredictor

            predictor = OraclePredictor({job.name: job.loss for job in jobs})
            policy = "max-total"
        return run_emulated(jobs, policy, seed=seed, predictor=predictor, **self.settings)


@click.command()
@click.option(
    "--policies",
    type=results.Names("policy"),
    help="Policies, comma-separated; 'none' is plain Dask without the plugin, 'idle' has it, "
    "but no jobs, and 'strict' is the default policy with strict worker sets.  "
    "[default: none,fair,max-total]",
)
@click.option(
    "--workloads",
    type=results.Names("workload", WORKLOADS),
    help=f"Workloads, comma-separated, from {', '.join(WORKLOADS)}.  [default: the first four, "
    "or the first three with --quick]",
)
@results.seeds_options
@results.curves_option
@results.noise_option
@click.option("--epoch", default="1s", show_default=True, help="Length of the plugin's epochs.")
@click.option("--oracle/--no-oracle", default=True, help="Run the oracle alongside max-total.")
@click.option(
    "--clock",
    type=click.Choice(["virtual", "real"]),
    default="virtual",
    show_default=True,
    help="Clock of the emulated workloads; dask-ml and nine always run in real time.",
)
@results.parallel_option
@click.option(
    "--charge",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Virtual seconds per second of CPU time that the scheduler takes for messages, decisions "
    "and dispatches. Figures then differ a little from run to run.",
)
@click.option("--workers", default=16, show_default=True, help="Workers of emulated runs.")
@click.option(
    "--processes", default=2, show_default=True, help="Worker processes for dask-ml and nine."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of emulated jobs.  [default: 10 staggered, 14 in a burst, 12 mixed]",
)
@click.option(
    "--scale", default=1.0, show_default=True, help="Relative length of the emulated runs."
)
@click.option("--quick", is_flag=True, help="One seed, few and small jobs; takes under a minute.")
@virtual.latency_option
@results.json_option
def main(**options: Any) -> None:
    """Run jobs on a real Dask cluster under each policy, and compare the policies."""
    if options["quick"]:
        options.update(seeds=1, scale=QUICK, jobs=options["jobs"] or QUICK_JOBS)
    workloads = options["workloads"] or (EMULATED if options["quick"] else WORKLOADS[:4])
    if options["clock"] == "real" and "mixed" in workloads:
        raise click.UsageError("mixed runs on the virtual clock only")
    curves = _curves(options["files"])
    policies, first = options["policies"] or POLICIES, options["seed"]
    if options["oracle"] and "max-total" in policies and "oracle" not in policies:
        policies = [*policies, "oracle"]
    result: dict[str, Any] = {}
    with virtual.pool(options["parallel"]) as pool:
        for workload in workloads:
            result[workload] = found = measure(
                _runner(workload, curves, options),
                [p for p in policies if p != "oracle" or workload in EMULATED],
                range(first, first + options["seeds"]),
                lambda line, workload=workload: results.say(f"{workload}: {line}"),
                pool if workload in EMULATED and options["clock"] == "virtual" else None,
            )
            if options["output"] != "-":
                click.echo(table(workload, found["policies"]) + "\n")
    results.give(result, options["output"])


def _curves(files: tuple[str, ...]) -> list[curve_files.LossCurve]:
    curves = curve_files.fit_for_jobs(read(files))
    if files and not curves:
        raise click.ClickException(f"no curve of {', '.join(files)} is fit for a job")
    return curves


def _runner(workload: str, curves: list[curve_files.LossCurve], options: dict[str, Any]) -> Runner:
    if workload in REAL:
        from benchmarks.live_jobs import real_fits

        size = {"rows": real_fits.ROWS // 20, "part": 0.3} if options["quick"] else {}
        return real_fits.runner(options["processes"], mix=workload, epoch=options["epoch"], **size)
    shape = {key: options[key] for key in ("scale", "noise")}
    if options["jobs"]:
        shape["count"] = options["jobs"]
    settings = {key: options[key] for key in ("clock", "charge", "workers", "epoch")}
    return Emulated(workload, curves, shape, settings)


if __name__ == "__main__":
    main()
