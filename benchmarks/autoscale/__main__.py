"""``python -m benchmarks.autoscale``: how many workers, on the virtual clock.

People come over an hour or two, quiet and busy, with trainings, searches, batches and notebooks. A
worker has two threads and computes 30 s after it was asked for. ``fixed`` is a cluster of one size,
``adaptive`` Dask's own number of workers, and ``worth`` that of the setting slaq.scaling. Of the
others, the cheapest of several sizes and settings is shown that is as fast as ``worth`` (t90 and
completion within 5 %), or the fastest one if none is. All have the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from benchmarks import virtual
from benchmarks.autoscale.lists import LISTS, QUICK
from benchmarks.autoscale.running import Way, run
from benchmarks.common.results import Names, cell, give, json_option, processes_option, say, table

#: Sizes and settings of which the best one counts.
FIXED = [Way("fixed", n) for n in (1, 2, 4, 6, 8, 12)]
ADAPTIVE = [
    Way("adaptive", target_duration=seconds, wait_count=wait)
    for seconds, wait in ((5.0, 3), (5.0, 60), (20.0, 60))
]
WORTH = Way("worth")
KEYS = ("worker_hours", "t90_mean_s", "completion_mean_s", "starts")
#: Times that differ by less count as equal.
EQUAL = 1.05


@click.command(help=__doc__)
@click.option("--lists", type=Names("list", LISTS), help="Lists, comma-separated; all by default.")
@click.option("--seed", default=0, show_default=True)
@processes_option
@click.option("--quick", is_flag=True, help="One list, and one size and setting of each way.")
@virtual.latency_option
@json_option
def main(
    lists: list[str] | None, seed: int, processes: int, quick: bool, output: str | None
) -> None:
    """Run the benchmark."""
    names = lists or list(QUICK if quick else LISTS)
    ways = [*FIXED, *ADAPTIVE, WORTH]
    if quick:
        ways = [Way("fixed", 8), Way("adaptive"), WORTH]
    plan = [(name, seed, way) for name in names for way in ways]
    rows: dict[str, dict[Way, dict[str, Any]]] = {}
    for (name, _, way), row in virtual.run_all(run, plan, processes):
        rows.setdefault(name, {})[way] = row
        say(name, way.kind, way.label, *map(cell, _cells(row)))
    found = {name: choose(some) for name, some in rows.items()}
    shown = [
        [name, f"{way}: {row['settings']}", *_cells(row)]
        for name, some in found.items()
        for way, row in some.items()
    ]
    give(found, output, table(["list", "way", "hours", "t90/s", "ended/s", "starts"], shown))


def choose(rows: Mapping[Way, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the row of each kind of way that counts; see the module."""
    ours = rows[WORTH]
    found = {}
    for kind in ("fixed", "adaptive", "worth"):
        some = {way: row for way, row in rows.items() if way.kind == kind}
        fast = [way for way, row in some.items() if _is_as_fast(row, ours)]
        if fast:
            best = min(fast, key=lambda way: some[way]["worker_hours"])
        else:
            best = min(some, key=lambda way: some[way]["completion_mean_s"])
        found[kind] = {**{key: some[best][key] for key in KEYS}, "settings": best.label}
    return found


def _is_as_fast(row: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    times = ("t90_mean_s", "completion_mean_s")
    return all(ours[key] is None or row[key] <= EQUAL * ours[key] for key in times)


def _cells(row: Mapping[str, Any]) -> list[Any]:
    return [row[key] for key in KEYS]


if __name__ == "__main__":
    main()
