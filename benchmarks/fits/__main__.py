"""``python -m benchmarks.fits``: recorded fits of dask-ml on the virtual clock, with latency.

Each fit of a recording is a job: per iteration its driver computes, then sends a graph of four
chains of tasks on four blocks of data and their sum, with the recorded seconds, and reports the
recorded loss. Lists: six at once; all over time, one every two seconds on average; long ones, of
which most comes after 90 % of the fall, one every four seconds. `none` is plain Dask; the oracle
serves the least work left to 90 % of the fall first, without a promise. With ``--record FILE``,
real fits are recorded, and nothing runs.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from benchmarks import virtual
from benchmarks.common.metrics import Run, summarize
from benchmarks.common.results import Names, give, json_option
from benchmarks.fits.recording import record
from benchmarks.fits.replay import run
from benchmarks.virtual.latency import parse
from dask_slaq.demo.fits import estimators

LISTS = ("six", "twelve", "long")
POLICIES = ["none", "fair", "max-total", "first-to-target", "oracle"]
FIGURES = ("t90_mean_s", "t95_mean_s", "completion_mean_s", "makespan_s", "busy", "inside")


def figures(runs: list[Run]) -> dict[str, float | None]:
    """Return the figures of one policy."""
    found = summarize(runs)
    row = {key: found["utilization" if key == "busy" else key] for key in FIGURES}
    return {
        **row,
        "planned": found["planned"],
        "slowest_s": max(j["completion_s"] for j in found["jobs"]),
    }


@click.command(help=__doc__)
@click.option("--fits", "path", type=click.Path(exists=True), help="Recording; by default ours.")
@click.option("--lists", type=Names("list", LISTS), default=",".join(LISTS), show_default=True)
@click.option(
    "--latency", default="0,4ms", show_default=True, callback=parse, help="Comma-separated."
)
@click.option("--policies", type=Names("policy"), default=",".join(POLICIES), show_default=True)
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1), help="Number.")
@click.option("--seed", default=0, show_default=True, help="First seed.")
@click.option(
    "--charge",
    default=1.0,
    show_default=True,
    help="Virtual seconds per CPU second of the scheduler.",
)
@click.option("--processes", default=os.cpu_count() or 1, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="Six fits, one seed, two policies.")
@click.option("--record", "target", help="Record real fits to this file, and run nothing.")
@click.option(
    "--rows", default=100_000, show_default=True, help="Rows per block of what is recorded."
)
@json_option
def main(path: str | None, lists: list[str], latency: list[float], policies: list[str], seeds: int,
         seed: int, charge: float, processes: int, quick: bool, target: str | None, rows: int,
         output: str | None) -> None:  # fmt: skip
    """Run the benchmark."""
    if target is not None:
        with open(target, "w") as file:
            json.dump(record(estimators(0, 0.7), rows), file)
        return
    if quick:
        lists, policies, seeds = ["six"], ["none", "first-to-target"], 1
    plan = [
        (which, path, policy, each, seconds, charge)
        for which in lists for seconds in latency for policy in policies
        for each in range(seed, seed + seeds)
    ]  # fmt: skip
    found: dict[str, Any] = {}
    with virtual.pool(processes) as pool:
        done = zip(plan, pool.map(run, *zip(*plan, strict=True)), strict=True)
        for (which, seconds, policy), group in itertools.groupby(
            done, lambda pair: (pair[0][0], pair[0][4], pair[0][2])
        ):
            row = figures([each for _, each in group])
            found.setdefault(which, {}).setdefault(_name(seconds), {})[policy] = row
            print(_line(which, seconds, policy, row), file=sys.stderr, flush=True)
    lines = [
        _line(which, seconds, policy, found[which][_name(seconds)][policy])
        for which in lists for seconds in latency for policy in policies
    ]  # fmt: skip
    give(found, output, "\n".join(lines))


def _name(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds else "0"


def _line(which: str, seconds: float, policy: str, row: Mapping[str, Any]) -> str:
    shown = "  ".join(
        f"{key.removesuffix('_s')} {row[key]:6.2f}" for key in FIGURES if row[key] is not None
    )
    return f"{which:8} {_name(seconds):>5} {policy:16} {shown}"


if __name__ == "__main__":
    main()
