"""``python -m benchmarks.mutants``: small faults in the package, and how many the tests catch.

Each mutant is the package with one change. It is caught if a test fails, or does not end. Those
that live show what nobody tests, or changes that make no difference.
"""

from __future__ import annotations

import ast
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from benchmarks.common.results import give, json_option
from benchmarks.mutants.changes import mutations
from benchmarks.mutants.running import ROOT, Covering, Tree, catch, load_libraries

__all__ = ["choose", "main", "measure"]

#: Parts of the package that are mutated.
AREAS = (
    "core/dispatch",
    "core/promises.py",
    "core/trials",
    "scheduler/pools",
    "scheduler/requests",
)
#: Folders of tests that are to catch the mutants.
TESTS = ("tests/core", "tests/scheduler", "tests/client")


def choose(seed: int, count: int) -> list[tuple[str, int]]:
    """Return modules and numbers of mutations, of each area in proportion to what it has."""
    sites = []
    for area in AREAS:
        place = ROOT / "dask_slaq" / area
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            found = sum(1 for _ in mutations(ast.parse(path.read_text())))
            sites += [(path.relative_to(ROOT).as_posix(), i) for i in range(found)]
    return random.Random(seed).sample(sites, min(count, len(sites)))


def measure(count: int, seed: int, ledger: Path, covering: Path) -> list[dict[str, Any]]:
    """Make mutants and run the tests that execute their lines.

    Parameters
    ----------
    count, seed : int
        How many, and which.
    ledger, covering : Path
        Files of JSON lines with the mutants and with the lines that tests execute. What is in them
        is not run again, and what is new is added.

    Returns
    -------
    list of dict
        By mutant: ``module``, ``line``, ``what``, ``tests`` (that execute the line), ``met``
        (of these, until it was caught or most were), ``seconds``, and ``caught`` (the test; empty
        if it lives).
    """
    chosen = choose(seed, count)
    known = {}
    if ledger.exists():
        for text in ledger.read_text().splitlines():
            row = json.loads(text)
            known[row["module"], row["number"]] = row
    with tempfile.TemporaryDirectory() as name:
        load_libraries()
        tree, lines = Tree(Path(name)), Covering(covering)
        modules = sorted({module for module, _ in choose(0, 10**9)})
        for file in lines.follow(tree, modules, TESTS):
            click.echo(f"lines of {file}", err=True)
        for module, number in chosen:
            if (module, number) in known:
                continue
            row = known[module, number] = catch(tree, lines, module, number)
            with ledger.open("a") as file:
                print(json.dumps(row), file=file)
            told = row["caught"] or "LIVES"
            click.echo(f"{module}:{row['line']}: {row['what']}: {told}", err=True)
    return [known[each] for each in chosen]


@click.command()
@click.option("--count", default=200, show_default=True, help="Number of mutants.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    default="mutants.jsonl",
    show_default=True,
    help="File of results, to go on with; of one state of the package.",
)
@click.option(
    "--covering",
    type=click.Path(dir_okay=False, path_type=Path),
    default="mutants-lines.jsonl",
    show_default=True,
    help="File of the lines that each test executes, made if it is not there.",
)
@json_option
def main(count: int, seed: int, ledger: Path, covering: Path, output: str | None) -> None:
    """Count the mutants of the package that its tests catch."""
    rows = measure(count, seed, ledger, covering)
    areas: Counter[str] = Counter()
    lives: Counter[str] = Counter()
    for row in rows:
        area = next(a for a in AREAS if row["module"].startswith(f"dask_slaq/{a}"))
        areas[area] += 1
        lives[area] += not row["caught"]
    found = {
        area: {"mutants": n, "caught": (n - lives[area]) / n} for area, n in sorted(areas.items())
    }
    alive = [row for row in rows if not row["caught"]]
    table = [f"{area:24}{row['mutants']:6d}{row['caught']:8.0%}" for area, row in found.items()]
    table += [f"{row['module']}:{row['line']}: {row['what']}" for row in alive]
    give({"areas": found, "alive": alive}, output, "\n".join(table))


if __name__ == "__main__":
    main()
