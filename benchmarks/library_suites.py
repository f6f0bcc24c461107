"""Runs the own test suites of dask-ml and dask-glm with repairs and instrumentation on.

What fails here and passes in a baseline is printed: another interpreter with an older Dask, the
result of an earlier run, or by default the same interpreter without us. The suites come from
checkouts that the user names; nothing is copied.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click

from benchmarks.results import give, json_option

__all__ = ["compare", "main", "outcomes_of", "run_suite"]

ROOT = Path(__file__).parents[1]
# Without the folder it runs in on the path: the installed library is tested.
RUN = "import sys; sys.path.pop(0); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
GOOD = ("passed", "skipped")


def run_suite(
    checkout: Path, python: str = sys.executable, *, observed: bool, arguments: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, Any]]:
    """Run the tests of one checkout.

    Parameters
    ----------
    checkout : Path
        Of dask-ml or dask-glm, a git checkout or an unpacked source distribution.
    python : str
        Interpreter of the environment.
    observed : bool
        With repairs and an `instrument` block around everything.
    arguments : tuple of str
        More arguments for pytest.

    Returns
    -------
    outcomes : dict of str to str
        By test: ``passed``, ``failed``, ``error`` or ``skipped``.
    observations : dict
        What `benchmarks.observed_suite` saw; empty if not observed.

    Raises
    ------
    click.ClickException
        pytest gave no result.
    """
    with tempfile.TemporaryDirectory() as folder:
        xml, seen = Path(folder, "junit.xml"), Path(folder, "seen.json")
        plugin = ["-p", "benchmarks.observed_suite"] if observed else []
        command = [python, "-c", RUN, *plugin, "-q", f"--junitxml={xml}", *arguments]
        environment = {**os.environ, "SLAQ_SUITE_SEEN": str(seen)}
        if observed:
            paths = [str(ROOT), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        if not xml.exists():
            raise click.ClickException(f"pytest gave no result in {checkout}:\n{done.stderr}")
        observations = json.loads(seen.read_text()) if seen.exists() else {}
        return outcomes_of(ElementTree.parse(xml)), observations


def outcomes_of(report: Any) -> dict[str, str]:
    """Outcome of each test in a JUnit report; failed if any of its phases did."""
    found: dict[str, str] = {}
    for case in report.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        tags = {child.tag for child in case}
        bad = next((o for t, o in (("failure", "failed"), ("error", "error")) if t in tags), None)
        if bad or found.get(name) not in ("failed", "error"):
            found[name] = bad or ("skipped" if "skipped" in tags else "passed")
    return found


def compare(here: dict[str, str], baseline: dict[str, str]) -> dict[str, Any]:
    """Counts of both sides, and the tests that differ."""
    both = sorted(here.keys() & baseline.keys())
    return {
        "here": dict(Counter(here.values())),
        "baseline": dict(Counter(baseline.values())),
        "newly_failing": [t for t in both if here[t] not in GOOD and baseline[t] == "passed"],
        "newly_passing": [t for t in both if here[t] == "passed" and baseline[t] not in GOOD],
        "only_here": len(here.keys() - baseline.keys()),
        "only_in_baseline": len(baseline.keys() - here.keys()),
    }


@click.command()
@click.argument("checkouts", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--python", help="Interpreter of the baseline; this one without us by default.")
@click.option("--baseline", type=click.File(), help="Baseline: the JSON of an earlier run.")
@click.option("--pytest", "more", multiple=True, help="More arguments for pytest, as -k=kmeans.")
@json_option
def main(
    checkouts: tuple[str, ...], python: str | None, baseline: Any, more: tuple[str, ...],
    output: str | None,
) -> None:  # fmt: skip
    """Tests of dask-ml and dask-glm that fail with us and pass without."""
    earlier = json.load(baseline) if baseline else None
    result = {}
    for checkout in map(Path, checkouts):
        name = checkout.resolve().name
        if earlier is not None and name not in earlier:
            raise click.ClickException(f"the baseline has no {name}, only {', '.join(earlier)}")
        print(f"{name}: with repairs and instrumentation", file=sys.stderr, flush=True)
        here, observations = run_suite(checkout, observed=True, arguments=more)
        if earlier is not None:
            there = earlier[name]["outcomes"]["baseline"]
        else:
            print(f"{name}: baseline", file=sys.stderr, flush=True)
            there, _ = run_suite(checkout, python or sys.executable, observed=False, arguments=more)
        outcomes = {"here": here, "baseline": there}
        result[name] = {**compare(here, there), "observed": observations, "outcomes": outcomes}
    give(result, output, *(_text(name, row) for name, row in result.items()))
    sys.exit(any(row["newly_failing"] for row in result.values()))


def _text(name: str, row: dict[str, Any]) -> str:
    lines = [name]
    for side in ("here", "baseline"):
        counts = ", ".join(f"{row[side][k]} {k}" for k in sorted(row[side]))
        lines.append(f"  {side}: {counts or 'no test'}")
    lines.append(f"  losses reported: {row['observed'].get('losses', 0)}")
    lines += [f"  fails here, passes there: {test}" for test in row["newly_failing"]]
    lines += [f"  passes here, fails there: {test}" for test in row["newly_passing"]]
    if not row["newly_failing"]:
        lines.append("  no test fails here that passes there")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
