"""``python -m benchmarks.chaos``: random faults against the plugin, and checks afterwards."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from benchmarks.chaos.rounds import FAULTS_PER_ROUND
from benchmarks.chaos.verdict import KEYS, Verdict, judge_seed, smallest
from benchmarks.common.ledger import Ledger, ledger_option
from benchmarks.common.results import give, json_option
from benchmarks.virtual import latency_option, pool


@click.command()
@click.option("--faults", default=5000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the first round.")
@click.option("--processes", default=os.cpu_count() or 1, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="Inject 100 faults, or 10 with --real.")
@click.option(
    "--real", is_flag=True, help="Use worker processes, SIGKILL and SIGSTOP, in real time."
)
@click.option("--shrink", is_flag=True, help="Print a small round for each that is broken.")
@ledger_option
@latency_option
@json_option
def main(
    faults: int,
    seed: int,
    processes: int,
    quick: bool,
    real: bool,
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
    if quick:
        faults = 10 if real else 100
    book, seeds = Ledger(ledger), [seed]
    if real:
        from benchmarks.chaos.real import run_real

        verdicts: Any = [run_real(faults, seed)]
    else:
        seeds = book.left(range(seed, seed - (-faults // FAULTS_PER_ROUND)))
        verdicts = _judge_all(seeds, processes)
    total: Counter[str] = Counter()
    count = Verdict(seed)
    begin = time.perf_counter()
    broken = []
    for done, (number, verdict) in enumerate(book.follow(verdicts, seeds, _row), start=1):
        broken += [number] * any(verdict.figures()[key] for key in KEYS)
        total.update(verdict.faults)
        for line in verdict.lines():
            print(line, file=sys.stderr, flush=True)
        count.add(verdict)
        if done % 25 == 0:
            took = time.perf_counter() - begin
            print(f"{done} rounds, {total.total()} faults, {took:.0f} s", file=sys.stderr)
    for number in broken if shrink and not real else ():
        small = json.dumps(smallest(number).describe())
        print(f"seed {number}: {small}", file=sys.stderr, flush=True)
    if output != "-":
        for kind, n in sorted(total.items()):
            click.echo(f"{kind:26} {n:6}")
    figures = count.figures()
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


def _judge_all(seeds: Sequence[int], processes: int) -> Any:
    with pool(processes) as executor:
        yield from executor.map(judge_seed, seeds)


if __name__ == "__main__":
    main()
