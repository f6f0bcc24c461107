"""``python -m benchmarks.readme``: run what README's figures come from, and say what must change.

Takes half an hour on an idle machine. ``--quick`` only looks whether README has all of them.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import click

README = Path(__file__).parents[1] / "README.md"
FITS = (
    "benchmarks.fits --real --workers 4 --stretch 40 --fits-number 10 --gaps 5s --seed 4 --seeds 1"
    " --policies none,first-to-target,slaq2017"
)
T90, *REST = "t90_mean_s", "over_none/completion_mean_s", "worst", "over_none/makespan_s"
DEMO = "5x dask slaq demo --seed {}"
BEST, FIVE, ALL = (f".*/ways/search/{k}_s : .*/ways/plain/{k}_s" for k in ("best", "top5", "all"))
GRIDS = "benchmarks.search_policies --policies plain,search,prune,asha --orders 5"
MISLEAD = (
    "rewards-cartpole,rewards-corridor,schedule-few,schedule-noisy,plateau-chance,plateau-parity,"
    "fold-cancer,fold-friedman"
)
BOOSTING = "benchmarks.boosting --library lightgbm --from clients"
MIXTURES = "benchmarks.mixtures --lists notebook,urgent --policies first-to-target"
SETS = "benchmarks.live --policies first-to-target,strict --no-oracle --seeds 1"
STRICT = ".*/policies/strict/makespan_s : .*/policies/first-to-target/makespan_s"


def fits(policy: str) -> list[str]:
    moved = f"real/5s/{policy}/bytes_moved : real/5s/none/bytes_moved"
    return [f"real/5s/{policy}/{key}" for key in (f"over_none/{T90}", *REST)] + [moved]


def grids(policy: str, *keys: str) -> list[str]:
    """Return paths of figures of all grids but those that mislead, and of the part that is lost."""
    path = f"(?!rewards|schedule|plateau|fold).*/{policy}"
    return [*(f"{path}/{key}" for key in keys), f"%@{path}/lost", f"{path}/core_s"]


#: Command (N times, {} is the seed); text in README, where # is a number; where each is in its
#: JSON: patterns of keys, or two for a ratio. All that match are averaged, or as before the @.
FIGURES: tuple[tuple[str, str, list[str]], ...] = (
    (FITS, "reach 90 % of their loss reduction after # of plain", fits("first-to-target")[:1]),
    (FITS, "| `first-to-target`, the default | # | # | # | # | # |", fits("first-to-target")),
    (FITS, "| `slaq2017`, the paper's scheduler | # | # | # | # | # |", fits("slaq2017")),
    (
        "dask slaq demo --fits",
        "--fits`: # of",
        [f"first-to-target/{T90} : none/{T90}"],
    ),
    (DEMO, "the best five of 32 models are ready # times sooner", [f"1/@{FIVE}"]),
    (DEMO, "after # of its time (median #), all after #.", [BEST, f"median@{BEST}", ALL]),
    (
        GRIDS,
        "| a search | # | # | # | # | # % | # |",
        grids("search", *["first", "best", "top5", "all"]),
    ),
    (
        GRIDS,
        "`prune=True` | # | # | # | # | # % | # |",
        grids("prune", *["first", "best", "top5", "all"]),
    ),
    (
        GRIDS,
        "keeps the best | # | # | \u2013 | # | # % | # |",
        grids("asha", "first", "best", "all"),
    ),
    (
        f"benchmarks.search_policies --policies plain,prune --models 24 --names {MISLEAD}",
        "or # % with 24 models",
        ["%@.*/prune/lost"],
    ),
    (MIXTURES, "queries take # of", ["notebook/first-to-target/kinds/notebook"]),
    (MIXTURES, "urgent tasks #", ["urgent/first-to-target/kinds/urgent"]),
    (SETS, "at # to # of the makespan", [f"min@{STRICT}", f"max@{STRICT}"]),
    (f"2x {BOOSTING} --way plain", "# and # ended", ["min@.*/ended", "max@.*/ended"]),
    (BOOSTING, "in jobs all # end", ["ended"]),
    (
        "benchmarks.scale --costs",
        "is # times plain Dask's; a lone job #, none #",
        ["2/ratio", "1/ratio", "0/ratio"],
    ),
)


def numbers(text: str) -> list[str]:
    """Return the numbers of README at the places of # in a text."""
    pattern = r"(\d+(?:\.\d+)?)".join(map(re.escape, text.split("#")))
    found = re.search(pattern, " ".join(README.read_text(encoding="utf-8").split()))
    if found is None:
        raise click.ClickException(f"README has no {text!r}")
    return list(found.groups())


def figure(found: Any, spec: str) -> float:
    """Return a number of the JSON of a command."""
    how, _, path = spec.rpartition("@")
    sides = []
    for side in path.split(" : "):
        nodes = [found]
        for key in side.split("/"):
            items = [n.items() if isinstance(n, dict) else ((".*", x) for x in n) for n in nodes]
            nodes = [x for of in items for name, x in of if re.fullmatch(key, name)]
        sides.append([float(node) for node in nodes if node is not None])
    some = [a / b for a, b in zip(*sides, strict=True)] if len(sides) == 2 else sides[0]
    if how in ("1/", "%"):
        return 1 / mean(some) if how == "1/" else 100 * mean(some)
    return {"min": min, "max": max, "median": median, "": mean}[how](some)


def run(command: str) -> Any:
    """Return the JSON of a command, or of each time that it runs."""
    times, is_many, one = command.partition("x ")
    if is_many and times.isdecimal():
        return [run(one.format(seed)) for seed in range(int(times))]
    with tempfile.TemporaryDirectory() as folder:
        into = ["--json", f"{folder}/json"] + ["--html", f"{folder}/html"] * (" demo" in command)
        words = [sys.executable, "-m", *shlex.split(command), *into]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=README.parent)
        return json.loads(Path(folder, "json").read_text(encoding="utf-8"))


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Run nothing: only look whether README has all.")
@click.option("--only", default="", metavar="TEXT", help="Only commands that contain it.")
def main(quick: bool, only: str) -> None:
    """Run the benchmark."""
    shown = [(command, text, numbers(text), specs) for command, text, specs in FIGURES]
    for command in dict.fromkeys(row[0] for row in shown if only in row[0] and not quick):
        begin, found = time.monotonic(), run(command)
        click.echo(f"{command}: {time.monotonic() - begin:.0f} s")
        for _, text, old, specs in (row for row in shown if row[0] == command):
            for number, spec in zip(old, specs, strict=True):
                new = f"{figure(found, spec):.{len(number.partition('.')[2])}f}"
                click.echo(f"  {text}: {number}{'' if new == number else f' must be {new}'}")


if __name__ == "__main__":
    main()
