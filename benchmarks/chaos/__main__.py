"""``python -m benchmarks.chaos``: random faults against the plugin, and checks afterwards."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from benchmarks.chaos.rounds import FAULTS_PER_ROUND
from benchmarks.chaos.verdict import KEYS, Verdict, judge_seed, smallest
from benchmarks.common.ledger import Ledger, ledger_option
from benchmarks.common.results import give, json_option, processes_option, say
from benchmarks.virtual import latency_option, run_all


@click.command()
@click.option("--faults", default=5000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the first round.")
@processes_option
@click.option("--quick", is_flag=True, help="Inject 100 faults.")
@click.option("--shrink", is_flag=True, help="Print a small round for each that is broken.")
@ledger_option
@latency_option
@json_option
def main(
    faults: int,
    seed: int,
    processes: int,
    quick: bool,
    shrink: bool,
    ledger: str | None,
    output: str | None,
) -> None:
    """Inject faults while jobs run, in seeded rounds on the virtual clock.

    After each round, all results must equal those of a run without faults, all must end soon after
    the last fault, nothing may be left over, the invariants of the pools must hold, and the log
    must replay. For each broken round, the seed is printed; ``--faults 1 --seed N`` runs the round
    again, and ``--shrink`` looks for a small one.
    """
    book, count = Ledger(ledger), -(-(100 if quick else faults) // FAULTS_PER_ROUND)
    seeds = book.left(range(seed, seed + count))
    verdicts = run_all(judge_seed, [(number,) for number in seeds], processes)
    total: Counter[str] = Counter()
    whole = Verdict(seed)
    begin = time.perf_counter()
    broken = []
    for done, (number, verdict) in enumerate(book.follow(verdicts, _row), start=1):
        broken += [number] * any(verdict.figures()[key] for key in KEYS)
        total.update(verdict.faults)
        for line in verdict.lines():
            say(line)
        whole.add(verdict)
        if done % 25 == 0:
            took = time.perf_counter() - begin
            say(f"{done} rounds, {total.total()} faults, {took:.0f} s")
    for number in broken if shrink else ():
        small = json.dumps(asdict(smallest(number)))
        say(f"seed {number}: {small}")
    if output != "-":
        for kind, n in sorted(total.items()):
            click.echo(f"{kind:26} {n:6}")
    figures = whole.figures()
    give(
        {"faults": dict(sorted(total.items())), **figures},
        output,
        *(f"{name:26} {n:6}" for name, n in figures.items()),
    )
    sys.exit(any(figures[key] for key in KEYS))


def _row(verdict: Verdict) -> dict[str, Any]:
    """Return what the ledger keeps of a round."""
    problems = {key: found for key in KEYS if (found := getattr(verdict, key))}
    return {"faults": verdict.faults.total(), "compared": verdict.compared, **problems}


if __name__ == "__main__":
    main()
