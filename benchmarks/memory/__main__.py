"""Memory benchmark: what past runs of like kind are worth to the policies.

Jobs are drawn from kinds that were run before with other parameters and seeds. The memory knows
none, half or all of the kinds, or has the runs of other kinds under their names. Runs are on the
virtual clock, as those of `benchmarks.live`; `without` is the same jobs without a memory.
"""

from __future__ import annotations

from typing import Any

import click

from benchmarks import virtual
from benchmarks.common.results import (
    curves_option,
    give,
    json_option,
    noise_option,
    parallel_option,
    seeds_options,
)
from benchmarks.memory import errors, running
from benchmarks.memory.jobs import repeated_jobs
from benchmarks.memory.kinds import KnownKind, from_files, trained
from dask_slaq.lab.simulation.workload.curves import CurveError

#: Length of a `--quick` run relative to a full one, and its number of jobs.
QUICK, QUICK_JOBS = 0.15, 5
#: Noise of the table of errors, relative to the range.
NOISY = 0.03
#: Lists of jobs that errors are averaged over.
LISTS = 6


@click.command()
@seeds_options
@curves_option
@noise_option
@parallel_option
@click.option(
    "--forecasts-only", is_flag=True, help="Only the errors of forecasts, without running jobs."
)
@click.option("--quick", is_flag=True, help="One seed, few and small jobs.")
@virtual.latency_option
@json_option
def main(**options: Any) -> None:
    """Run jobs of kinds that were run before, with and without a memory of it."""
    shape: dict[str, Any] = {"noise": options["noise"]}
    first = options["seed"]
    seeds = [first] if options["quick"] else list(range(first, first + options["seeds"]))
    if options["quick"]:
        shape |= {"count": QUICK_JOBS, "scale": QUICK}
    listed = range(first, first + (1 if options["quick"] else LISTS))
    kinds = {seed: _kinds(options["files"], seed) for seed in {*seeds, *listed}}
    result: dict[str, Any] = {}
    if not options["forecasts_only"]:
        with virtual.pool(options["parallel"]) as pool:
            result = running.measure({seed: kinds[seed] for seed in seeds}, shape, pool)
    forecasts: dict[str, Any] = {}
    for name, noise in (("smooth", 0.0), ("noisy", NOISY)):
        lists = [repeated_jobs(kinds[seed], "burst", seed, noise=noise) for seed in listed]
        memories = (("without", None), ("with", "all_known"), ("misled", "misleading"))
        forecasts[name] = {which: errors.errors(lists, memory) for which, memory in memories}
    tables = [running.show(result)] if result else []
    give({**result, "forecasts": forecasts}, options["output"], *tables, errors.show(forecasts))


def _kinds(files: tuple[str, ...], seed: int) -> list[KnownKind]:
    if not files:
        return trained(seed)
    try:
        kinds = from_files(files, seed)
    except (CurveError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if len(kinds) < 2:
        raise click.ClickException("fewer than two groups of these curves have several runs")
    return kinds


if __name__ == "__main__":
    main()
