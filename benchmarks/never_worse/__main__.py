"""``python -m benchmarks.never_worse``: the laws, checked on random scenarios."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import click

from benchmarks import virtual
from benchmarks.common.ledger import Ledger, ledger_option
from benchmarks.common.results import Names, give, json_option, processes_option, say, table
from benchmarks.never_worse.laws import Finding, compare, smallest, summary
from benchmarks.never_worse.situations import SITUATIONS, measure

#: Laws that are exact: results are those of plain Dask, and nothing is left over.
FIRST = ("1 results", "1 left over")


@click.command()
@click.option("--scenarios", default=500, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the first scenario.")
@click.option(
    "--policies", default="fair,max-total", show_default=True, help="Policies, comma-separated."
)
@processes_option
@click.option("--shrink", is_flag=True, help="Print a small scenario for each law that is broken.")
@ledger_option
@click.option("--quick", is_flag=True, help="Run 20 scenarios only, or situations at half size.")
@click.option("--situations", is_flag=True, help="Run the named situations instead of scenarios.")
@click.option(
    "--only", type=Names("situation", SITUATIONS), help="Situations to run, comma-separated."
)
@virtual.latency_option
@json_option
def main(
    scenarios: int,
    seed: int,
    policies: str,
    processes: int,
    shrink: bool,
    ledger: str | None,
    quick: bool,
    situations: bool,
    only: list[str] | None,
    output: str | None,
) -> None:
    """Run random scenarios under plain Dask and with the plugin, and check the laws.

    For each broken law, the seed, the law and both figures are printed. ``--scenarios 1 --seed N``
    runs the scenario again, and ``--shrink`` looks for a small one. ``--situations`` prints figures
    of named situations, plain and ours, their ratio and its bound. The exit code is 1 if a result
    differs or something is left over.
    """
    count = 20 if quick else scenarios
    names = tuple(policies.split(","))
    if situations or only:
        with virtual.pool(processes) as pool:
            rows = list(measure(only or list(SITUATIONS), names, pool, half=quick))
        give({"situations": rows}, output, _table(rows))
        return
    book = Ledger(ledger)
    seeds = book.left(range(seed, seed + count))
    found: list[tuple[int, str, Finding]] = []
    begin = time.perf_counter()
    compared = virtual.run_all(compare, [(number, names) for number in seeds], processes)
    for done, (_, findings) in enumerate(book.follow(compared, _row), start=1):
        found += findings
        for number, policy, finding in findings:
            if finding.broken:
                say(_line(number, policy, finding))
        if done % 100 == 0:
            say(f"{done} scenarios, {time.perf_counter() - begin:.0f} s")
    broken = [(n, p, f) for n, p, f in found if f.broken]
    if shrink:
        for number, policy, law in sorted({(n, p, f.law) for n, p, f in broken}):
            small = json.dumps(asdict(smallest(number, policy, law)))
            say(f"seed {number}, {policy}: law {law}: {small}")
    laws = summary([finding for _, _, finding in found])
    if output != "-":
        for law, row in sorted(laws.items()):
            ratio = f"  ours / plain {row['ratio']:.3f}" if row["ratio"] else ""
            click.echo(
                f"{law:20} checked {row['checked']:6}  broken {row['broken']:5}  "
                f"worst {row['worst']:+.3f} of the bound  q99 {row['q99']:+.3f}  "
                f"mean excess {row['mean_excess']:.4f}{ratio}"
            )
    give(
        {
            "scenarios": len(seeds),
            "laws": laws,
            "broken": [{"seed": number, **_as_dict(policy, f)} for number, policy, f in broken],
        },
        output,
    )
    sys.exit(any(finding.law in FIRST for _, _, finding in broken))


def _as_dict(policy: str, finding: Finding) -> dict[str, Any]:
    about = {"plain": finding.plain, "ours": finding.ours, "about": finding.about}
    return {"policy": policy, "law": finding.law, **about}


def _row(findings: list[tuple[int, str, Finding]]) -> dict[str, Any]:
    """Return what the ledger keeps of a scenario."""
    broken = [_as_dict(policy, finding) for _, policy, finding in findings if finding.broken]
    return {"checked": len(findings), "broken": broken}


def _line(seed: int, policy: str, finding: Finding) -> str:
    about = f" ({finding.about})" if finding.about else ""
    return (
        f"seed {seed}, {policy}: law {finding.law}: plain {finding.plain:.4g}, "
        f"ours {finding.ours:.4g}{about}"
    )


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["situation", "figure", "policy", "plain", "ours", "ratio", "bound", "ok"]
    return table(head, [[row[key] for key in head] for row in rows])


if __name__ == "__main__":
    main()
