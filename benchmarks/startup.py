"""Startup benchmark: what the plugin adds to the start and the memory of a scheduler.

Each measurement is a process of its own. Plain Dask and the plugin take turns; medians are shown.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import click

from benchmarks.common.results import give, json_option, table

#: Start a scheduler in this process. It imports the plugin if told to preload it.
PROGRAM = """
import asyncio, json, sys
from time import perf_counter

import psutil

begin = perf_counter()
from distributed import Scheduler

steps = {}


def done(step):
    global begin
    now = perf_counter()
    megabytes = psutil.Process().memory_info().rss / 1e6
    steps[step] = {"seconds": now - begin, "megabytes": megabytes}
    begin = perf_counter()


async def start(preload):
    done("import distributed")
    options = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    async with Scheduler(**options, preload=preload):
        done("start the scheduler")
    print(json.dumps(steps))


asyncio.run(start(sys.argv[1:]))
"""


def measure(repetitions: int = 11) -> list[dict[str, Any]]:
    """Measure scheduler processes with and without the plugin, alternating.

    Returns a row per step with medians: seconds that it takes, and resident memory after it in 10^6
    bytes.
    """
    sides: dict[str, list[dict[str, dict[str, float]]]] = {"plain": [], "plugin": []}
    for _ in range(repetitions):
        for side, processes in sides.items():
            processes.append(_run(["dask_slaq"] if side == "plugin" else []))
    rows = []
    for step in sides["plugin"][0]:
        row: dict[str, Any] = {"step": step}
        for side, processes in sides.items():
            for key, unit in (("seconds", "s"), ("megabytes", "mb")):
                values = [steps[step][key] for steps in processes]
                row[f"{side}_{unit}"] = statistics.median(values)
        rows.append(row)
    return rows


def _run(preload: list[str]) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *preload]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    steps: dict[str, dict[str, float]] = json.loads(done.stdout)
    return steps


@click.command()
@click.option(
    "--repetitions", default=11, show_default=True, help="Processes with the plugin, and without."
)
@click.option("--quick", is_flag=True, help="Three processes of each; takes half a minute.")
@json_option
def main(repetitions: int, quick: bool, output: str | None) -> None:
    """Measure what the plugin adds to the start and the memory of a scheduler."""
    rows = measure(3 if quick else repetitions)
    give(rows, output, table(list(rows[0]), [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main()
