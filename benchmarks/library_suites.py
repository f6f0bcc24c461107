"""Library benchmark: the test suites of dask-ml and dask-glm with repairs and instrumentation.

Tests that pass in a baseline but not here are printed. The baseline is another interpreter with an
older Dask, the result of an earlier run, or by default the same interpreter without this package.
The suites come from checkouts that the user supplies; nothing is copied.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click

from benchmarks.common.results import give, json_option

__all__ = ["Run", "compare", "main", "run_suite"]

ROOT = Path(__file__).parents[1]
# Test the installed library: take the working directory off the path.
RUN = "import sys; sys.path.pop(0); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
GOOD = ("passed", "skipped")
STDERR = 2
WIDTH = 200  # maximum length of a failure's reason, in characters
OBSERVED = ("benchmarks.suites.observed",)
AS_JOBS = (*OBSERVED, "benchmarks.suites.jobs")
# Environment variables reach every scheduler that a suite starts, also in other processes. Epochs
# are short because tests last a second or two.
PLUGIN = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "dask_slaq", "DASK_SLAQ__EPOCH": "100ms"}


@dataclass(frozen=True)
class Run:
    """Result of running the tests of one checkout.

    Outcomes are ``passed``, ``failed``, ``error`` or ``skipped``, and reasons the starts of error
    messages. `seen` are notes of this project's pytest plugins.
    """

    outcomes: dict[str, str]
    reasons: dict[str, str]
    seen: dict[str, Any]


def run_suite(
    checkout: Path,
    python: str = sys.executable,
    *,
    plugins: tuple[str, ...] = (),
    arguments: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
) -> Run:
    """Run the tests of one checkout or unpacked source distribution.

    Plugins of pytest are `OBSERVED` for repairs and an `instrument` block around everything, and
    `AS_JOBS` for jobs as well. `settings` are environment variables. Raises click.ClickException if
    pytest wrote no result.
    """
    with tempfile.TemporaryDirectory() as folder:
        xml, seen = Path(folder, "junit.xml"), Path(folder, "seen.json")
        loaded = [argument for plugin in plugins for argument in ("-p", plugin)]
        # Show only pytest's progress, and on stderr: stdout may receive the result.
        command = [python, "-c", RUN, *loaded, "-q", "--no-summary", f"--junitxml={xml}"]
        environment = {**os.environ, **_settings(plugins), "SLAQ_SUITE_SEEN": str(seen)}
        environment |= settings or {}
        subprocess.run(
            [*command, *arguments], cwd=checkout, env=environment, stdout=STDERR, check=False
        )
        if not xml.exists():
            raise click.ClickException(f"pytest gave no result in {checkout}")
        report = ElementTree.parse(xml)
        noted = json.loads(seen.read_text()) if seen.exists() else {}
        return Run(_outcomes(report), _reasons(report), noted)


def _settings(plugins: tuple[str, ...]) -> dict[str, str]:
    """Return the environment variables that the pytest plugins need."""
    if not plugins:
        return {}
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return {**path, **PLUGIN} if plugins == AS_JOBS else path


def _name(case: Any) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _outcomes(report: Any) -> dict[str, str]:
    """Read the outcome of each test from a JUnit report. A test fails if any of its phases does."""
    found: dict[str, str] = {}
    for case in report.iter("testcase"):
        name, tags = _name(case), {child.tag for child in case}
        bad = next((o for t, o in (("failure", "failed"), ("error", "error")) if t in tags), None)
        if bad or found.get(name) not in ("failed", "error"):
            found[name] = bad or ("skipped" if "skipped" in tags else "passed")
    return found


def _reasons(report: Any) -> dict[str, str]:
    """Read the start of the error message of each failed test."""
    found: dict[str, str] = {}
    for case in report.iter("testcase"):
        for child in case:
            if child.tag in ("failure", "error"):
                found[_name(case)] = (child.get("message") or "").split("\n")[0][:WIDTH]
    return found


def compare(here: dict[str, str], baseline: dict[str, str]) -> dict[str, Any]:
    """Compare outcomes with those of the baseline, by test.

    A test of the baseline that did not run here counts as failing.
    """
    passed = sorted(test for test, outcome in baseline.items() if outcome == "passed")
    now = {test: here.get(test, "missing") for test in passed}
    return {
        "here": dict(Counter(here.values())),
        "baseline": dict(Counter(baseline.values())),
        "newly_failing": [t for t, outcome in now.items() if outcome not in GOOD],
        "newly_skipped": [t for t, outcome in now.items() if outcome == "skipped"],
        "newly_passing": sorted(
            t for t, o in here.items() if o == "passed" and baseline.get(t, "skipped") not in GOOD
        ),
        "only_here": len(here.keys() - baseline.keys()),
        "only_in_baseline": len(baseline.keys() - here.keys()),
    }


@click.command()
@click.argument("checkouts", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--python", help="Interpreter of the baseline; this interpreter by default.")
@click.option(
    "--baseline", type=click.File(), help="JSON of an earlier run of these tests, as baseline."
)
@click.option("--pytest", "more", multiple=True, help="Argument for pytest, such as -k=kmeans.")
@click.option("--jobs", is_flag=True, help="Run the plugin on every scheduler, and tests as jobs.")
@json_option
def main(
    checkouts: tuple[str, ...], python: str | None, baseline: Any, more: tuple[str, ...],
    jobs: bool, output: str | None,
) -> None:  # fmt: skip
    """Find tests of dask-ml and dask-glm that fail with this package but pass without it.

    The exit code is 1 if there are such tests, or if the plugin failed on a scheduler.
    """
    earlier = json.load(baseline) if baseline else None
    result = {}
    for checkout in map(Path, checkouts):
        name = checkout.resolve().name
        if earlier is not None and name not in earlier:
            raise click.ClickException(f"the baseline has no {name}, only {', '.join(earlier)}")
        _say(f"{name}: with repairs and instrumentation{', as jobs' * jobs}")
        here = run_suite(checkout, plugins=AS_JOBS if jobs else OBSERVED, arguments=more)
        if earlier is not None:
            there, why = (earlier[name][of]["baseline"] for of in ("outcomes", "reasons"))
        else:
            _say(f"{name}: baseline")
            run = run_suite(checkout, python or sys.executable, arguments=more)
            there, why = run.outcomes, run.reasons
        result[name] = {
            **compare(here.outcomes, there),
            "observed": here.seen,
            "outcomes": {"here": here.outcomes, "baseline": there},
            "reasons": {"here": here.reasons, "baseline": why},
        }
    give(result, output, *(_text(name, row) for name, row in result.items()))
    sys.exit(any(row["newly_failing"] or row["observed"].get("failed") for row in result.values()))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _text(name: str, row: dict[str, Any]) -> str:
    lines = [name]
    for side in ("here", "baseline"):
        counts = ", ".join(f"{row[side][k]} {k}" for k in sorted(row[side]))
        lines.append(f"  {side}: {counts or 'no test'}")
    lines += _seen(row["observed"])
    why = row["reasons"]["here"]
    for test in row["newly_failing"]:
        lines.append(f"  fails here, passes there: {test}: {why.get(test, 'missing')}")
    lines += [f"  skipped here, passes there: {test}" for test in row["newly_skipped"]]
    lines += [f"  passes here, fails there: {test}" for test in row["newly_passing"]]
    if not row["newly_failing"]:
        lines.append("  no test fails here that passes there")
    return "\n".join(lines)


def _seen(seen: dict[str, Any]) -> list[str]:
    """Format the notes of the pytest plugins, one line each."""
    lines = [f"  losses reported: {seen.get('losses', 0)}"]
    if "jobs" in seen:
        text = "jobs: {jobs}, tasks that were held: {held}"
        lines.append(f"  {text.format(**seen)}")
        lines += [f"  the plugin failed: {failure}" for failure in seen["failed"]]
    return lines + [f"  logged: {text}" for text in seen.get("warnings", ())]


if __name__ == "__main__":
    main()
