"""``python -m benchmarks.chaos``: random faults against the plugin, and checks afterwards."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import Any

import click

from benchmarks.chaos.rounds import FAULTS_PER_ROUND
from benchmarks.chaos.verdict import Verdict, judge_seed
from benchmarks.common.results import give, json_option
from benchmarks.virtual import pool


@click.command()
@click.option("--faults", default=5000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the first round.")
@click.option("--processes", default=os.cpu_count() or 1, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="Inject 100 faults, or 10 with --real.")
@click.option(
    "--real", is_flag=True, help="Use worker processes, SIGKILL and SIGSTOP, in real time."
)
@json_option
def main(
    faults: int, seed: int, processes: int, quick: bool, real: bool, output: str | None
) -> None:
    """Inject faults while jobs run, in seeded rounds on the virtual clock.

    After each round, all results must equal those of a run without faults, nothing may be left
    over, the invariants of the pools must hold, and the log must replay. For each broken round, the
    seed is printed; ``--faults 1 --seed N`` runs the round again.
    """
    if quick:
        faults = 10 if real else 100
    if real:
        from benchmarks.chaos.real import run_real

        verdicts: Any = [run_real(faults, seed)]
    else:
        verdicts = _judge_all(range(seed, seed - (-faults // FAULTS_PER_ROUND)), processes)
    total: Counter[str] = Counter()
    count = Verdict(seed)
    begin = time.perf_counter()
    for done, verdict in enumerate(verdicts, start=1):
        total.update(verdict.faults)
        for line in verdict.lines():
            print(line, file=sys.stderr, flush=True)
        count.add(verdict)
        if done % 25 == 0:
            took = time.perf_counter() - begin
            print(f"{done} rounds, {total.total()} faults, {took:.0f} s", file=sys.stderr)
    if output != "-":
        for kind, n in sorted(total.items()):
            click.echo(f"{kind:26} {n:6}")
    figures = count.figures()
    give(
        {"faults": dict(sorted(total.items())), **figures},
        output,
        *(f"{name:26} {n:6}" for name, n in figures.items()),
    )
    sys.exit(any(figures[key] for key in ("lost", "different", "left_over", "invariants_broken")))


def _judge_all(seeds: range, processes: int) -> Any:
    with pool(processes) as executor:
        yield from executor.map(judge_seed, seeds)


if __name__ == "__main__":
    main()
