"""``python -m benchmarks.mixtures``: work of all kinds on one cluster, against plain Dask.

Each list has several participants: trainings, notebooks, batches, chains, reductions, urgent and
nested tasks, short blocks. It runs on the virtual clock under plain Dask and under each policy.
All figures are ratios to plain Dask, so below 1 is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from benchmarks import virtual
from benchmarks.common.results import Names, cell, give, json_option, processes_option, say, table
from benchmarks.mixtures.figures import compare, measure
from benchmarks.mixtures.lists import FRESH, LISTS, QUICK

POLICIES = ["fair", "max-total", "first-to-target"]


@click.command(help=__doc__)
@click.option(
    "--lists",
    type=Names("list", ["fresh", *LISTS]),
    help="Lists, comma-separated; all but the ten that are fresh by default.",
)
@click.option(
    "--policies", type=Names("policy"), default=",".join(POLICIES), show_default=True,
    help="Policies, comma-separated.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@processes_option
@click.option("--quick", is_flag=True, help="Three lists and the default policy only.")
@virtual.latency_option
@json_option
def main(
    lists: list[str] | None,
    policies: list[str],
    seed: int,
    processes: int,
    quick: bool,
    output: str | None,
) -> None:
    """Run the benchmark."""
    usual = [name for name in LISTS if name not in FRESH]
    names = lists or (list(QUICK) if quick else usual)
    if "fresh" in names:
        names = list(dict.fromkeys([*(name for name in names if name != "fresh"), *FRESH]))
    policies = ["first-to-target"] if quick else policies
    plan = [(name, policy, seed) for name in names for policy in ("none", *policies)]
    found: dict[str, dict[str, Any]] = {}
    plain: dict[str, Any] = {}
    for (name, policy, _), done in virtual.run_all(measure, plan, processes):
        if policy == "none":
            plain = done
            continue
        row = found.setdefault(name, {})[policy] = compare(plain, done)
        say(name, policy, *map(cell, _cells(row)))
    give(found, output, show(found))


_KEYS = ("slowdown_mean", "slowdown_worst", "t90_training", "completion_mean", "makespan", "bytes")


def _cells(row: Mapping[str, Any]) -> list[Any]:
    kinds = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in row["kinds"].items())
    return [*(row[key] for key in _KEYS), row["worst"], row["lost"], kinds]


def show(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of all lists and policies, and the means over the lists."""
    rows = [[name, p, *_cells(row)] for name, by in found.items() for p, row in by.items()]
    if len(found) > 1:
        for policy in next(iter(found.values())):
            mean = _mean([by[policy] for by in found.values()])
            rows.append(["mean", policy, *_cells(mean)])
    head = ["list", "policy", "mean", "worst", "t90", "end", "makespan", "bytes", "who", "lost"]
    return table([*head, "slowdown by kind"], rows)


def _mean(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means over lists of the figures that have one; the worst is of all."""
    known = {key: [row[key] for row in rows if row[key] is not None] for key in _KEYS}
    mean = {key: sum(some) / len(some) if some else None for key, some in known.items()}
    worst = max(rows, key=lambda row: row["slowdown_worst"])
    about = {"worst": worst["worst"], "slowdown_worst": worst["slowdown_worst"]}
    return {**mean, **about, "lost": sum(row["lost"] for row in rows), "kinds": {}}


if __name__ == "__main__":
    main()
