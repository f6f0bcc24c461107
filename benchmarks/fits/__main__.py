"""``python -m benchmarks.fits``: recorded fits of dask-ml on the virtual clock, with latency.

Each fit of a recording is a job: per iteration its driver computes, then sends a graph of four
chains of tasks on four blocks of data and their sum, with the recorded seconds, and reports the
recorded loss. Lists: six at once; all over time, one every two seconds on average; long ones, of
which most comes after 90 % of the fall, one every four seconds; `others-1` and `others-2`, halves
of 24 fits with dask-ml's own tolerances, long tails, small and large, and sparse data. `none` is
plain Dask, and `worst` the largest time of a fit over its own there; the oracle serves the least
work left to 90 % of the fall first, without a promise. With
``--record FILE``, the twelve are recorded, or with `--others` these, and nothing runs.

With ``--real``, unmodified fits run on worker processes, whose tasks last `--stretch` times as
long as they compute, asleep, so that two cores are enough for many workers; their drivers have
processes of their own. They arrive at random, on average after each of the `--gaps`. Figures are
those of the replay, the scheduler's CPU seconds, bytes moved, ratios to plain Dask's, the `worst`
time of a fit over its own on plain Dask, and parts of the cores by groups of normalized loss.
"""

from __future__ import annotations

import gzip
import itertools
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks import virtual
from benchmarks.common.metrics import Run, summarize
from benchmarks.common.results import Names, give, json_option, processes_option, say
from benchmarks.fits import real
from benchmarks.fits.real import Setting
from benchmarks.fits.recording import HALVES, others, record
from benchmarks.fits.replay import run
from benchmarks.virtual.latency import parse
from dask_slaq.lab.demo.fits import estimators

LISTS = ("six", "twelve", "long", *HALVES)
POLICIES = ["none", "fair", "max-total", "first-to-target", "oracle"]
#: Rows per block of what is recorded, and what a short run of real fits does.
ROWS, QUICK = 100_000, Setting(workers=2, stretch=5.0, fits=4, rows=5_000, part=0.2)
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
@click.option("--lists", type=Names("list", LISTS), default=",".join(LISTS[:3]), show_default=True)
@click.option(
    "--latency", default="0,4ms", show_default=True, callback=parse, help="Comma-separated."
)
@click.option(
    "--policies",
    type=Names("policy"),
    help=f"[default: {','.join(POLICIES)}; with --real {','.join(real.POLICIES)}]",
)
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1), help="Number.")
@click.option("--seed", default=0, show_default=True, help="First seed.")
@click.option(
    "--charge",
    default=1.0,
    show_default=True,
    help="Virtual seconds per CPU second of the scheduler.",
)
@processes_option
@click.option("--quick", is_flag=True, help="Six fits, one seed, two policies.")
@click.option("--record", "target", help="Record real fits to this file, and run nothing.")
@click.option("--others", "is_others", is_flag=True, help="Record the other fits.")
@click.option(
    "--rows",
    type=click.IntRange(1),
    help=f"Rows per block of what is recorded [default: {ROWS}], or real [{Setting.rows}].",
)
@click.option("--real", "is_real", is_flag=True, help="Run real fits; the options below are its.")
@click.option("--workers", default=Setting.workers, show_default=True, type=click.IntRange(1))
@click.option("--stretch", default=Setting.stretch, show_default=True, type=click.FloatRange(1))
@click.option("--fits-number", default=Setting.fits, show_default=True, type=click.IntRange(1))
@click.option("--gaps", default="4s,8s,16s", show_default=True, callback=parse, help="Mean gaps.")
@click.option("--repeat", default=1, show_default=True, help="Times that each list runs.")
@click.option("--table", help="File of CPU seconds of tasks: read, or if there is none, written.")
@json_option
def main(path: str | None, lists: list[str], latency: list[float], policies: list[str] | None,
         seeds: int, seed: int, charge: float, processes: int, quick: bool, target: str | None,
         is_others: bool, rows: int | None, is_real: bool, workers: int, stretch: float,
         fits_number: int, gaps: list[float], repeat: int, table: str | None,
         output: str | None) -> None:  # fmt: skip
    """Run the benchmark."""
    if target is not None:
        ours = {name: (data, 100, fit) for name, (data, fit) in estimators(0, 0.7).items()}
        found = record(others() if is_others else ours, rows or ROWS)
        Path(target).write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        return
    if is_real:
        setting = Setting(workers, stretch, fits_number, rows or Setting.rows, table=table)
        policies = policies or real.POLICIES
        if quick:
            setting, policies = QUICK, ["none", "first-to-target"]
            gaps, seeds, repeat = [0.5], 1, 1
        _run_real(setting, policies, gaps, list(range(seed, seed + seeds)), repeat, output)
        return
    policies = policies or POLICIES
    if quick:
        lists, policies, seeds = ["six"], ["none", "first-to-target"], 1
    plan = [
        (which, path, policy, each, seconds, charge)
        for which in lists for seconds in latency for policy in policies
        for each in range(seed, seed + seeds)
    ]  # fmt: skip
    found: dict[str, Any] = {}
    ends: dict[Any, dict[tuple[str, int], float]] = {}
    done = virtual.run_all(run, plan, processes)
    for (which, seconds, policy), group in itertools.groupby(
        done, lambda pair: (pair[0][0], pair[0][4], pair[0][2])
    ):
        runs = [each for _, each in group]
        row = figures(runs)
        mine = ends[which, seconds, policy] = real.ends(summarize(runs)["jobs"])
        if (plain := ends.get((which, seconds, "none"))) is not None:
            row["worst"] = max(mine[job] / plain[job] for job in mine)
        found.setdefault(which, {}).setdefault(_name(seconds), {})[policy] = row
        say(_line(which, seconds, policy, row))
    lines = [
        _line(which, seconds, policy, found[which][_name(seconds)][policy])
        for which in lists for seconds in latency for policy in policies
    ]  # fmt: skip
    give(found, output, "\n".join(lines))


def _run_real(setting: Setting, policies: list[str], gaps: list[float], seeds: list[int],
              repeat: int, output: str | None) -> None:  # fmt: skip
    """Run real fits until the end or a signal, and give what is measured by then."""

    runs: real.Runs = {}
    stopped: list[int] = []

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        raise KeyboardInterrupt

    def tell(line: str) -> None:
        say(line)
        if stopped:  # by a signal in a callback, from which nothing is raised
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        real.measure(setting, policies, gaps, seeds, repeat, tell, runs)
    except KeyboardInterrupt:
        say("Stopped: what follows are the runs that have ended.")
    finally:  # also if a fit failed
        found = {gap: real.compare(each) for gap, each in runs.items() if each}
        give({"real": found}, output, *(real.show(*each) for each in found.items()))


def _name(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds else "0"


def _line(which: str, seconds: float, policy: str, row: Mapping[str, Any]) -> str:
    shown = "  ".join(
        f"{key.removesuffix('_s')} {row[key]:6.2f}"
        for key in (*FIGURES, "worst")
        if row.get(key) is not None
    )
    return f"{which:8} {_name(seconds):>5} {policy:16} {shown}"


if __name__ == "__main__":
    main()
