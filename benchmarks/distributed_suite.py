"""Compatibility benchmark: distributed's own tests with the plugin on every scheduler and without.

Every client is a job (`benchmarks.suites.preload`). In mode `alone`, Dask schedules its tasks as
usual; in mode `contended`, each task waits in the job's pool. A test that passes only without the
plugin runs again by itself on both sides. The user supplies the checkout; nothing is copied.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click

from benchmarks.common.results import give, json_option, table

__all__ = ["FILES", "MODES", "differences", "main"]

ROOT = Path(__file__).parents[1]
# Test the checkout, not this folder: take the working directory off the path.
RUN = "import sys; sys.path.pop(0); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
GOOD = ("passed", "skipped")
STDERR = 2
WIDTH = 200  # maximum length of a failure's reason, in characters
BASELINE, MODES = "baseline", ("alone", "contended")
TESTS = (
    "scheduler", "client", "worker", "active_memory_manager", "nanny", "priorities", "resources",
    "failed_workers", "steal", "worker_client", "actor", "variable", "queues", "events",
    "semaphore", "locks", "publish", "as_completed", "client_executor", "cancelled_state",
)  # fmt: skip
#: Tests of distributed that concern scheduling.
FILES = (
    *(f"distributed/tests/test_{name}.py" for name in TESTS),
    "distributed/diagnostics/tests/test_scheduler_plugin.py",
    "distributed/deploy/tests/test_adaptive.py",
    "distributed/shuffle/tests",
)
ARGUMENTS = ("-pno:cacheprovider", "-otimeout_method=signal", "--timeout=120")
# Tests that wait for plain Dask's exact behavior may hang. End them sooner than the usual 30 s.
PATIENCE = "15"
PLUGIN = {
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "benchmarks.suites.preload",
    "DASK_SLAQ__EPOCH": "100ms",
}


def run(checkout: Path, mode: str, tests: Iterable[str], *, quick: bool = False) -> dict[str, Any]:
    """Run tests of a checkout of distributed in a mode, in place of the installed package.

    Returns ``outcomes`` and ``reasons`` by test id, and ``notes`` of `benchmarks.suites.preload`.
    `quick` skips tests that start their own processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes, xml = Path(folder, "notes"), Path(folder, "junit.xml")
        paths = [str(checkout), str(ROOT), os.environ.get("PYTHONPATH", "")]
        settings = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "SLAQ_SUITE_PATIENCE": PATIENCE,
            "SLAQ_SUITE_QUICK": "1" * quick,
        }
        if mode != BASELINE:
            settings |= {**PLUGIN, "SLAQ_SUITE": mode, "SLAQ_SUITE_NOTES": str(notes)}
        arguments = (*ARGUMENTS, "-pbenchmarks.suites.pytest_plugin", *tests)
        # Show only pytest's progress, and on stderr: stdout may receive the result.
        command = [sys.executable, "-c", RUN, "-q", "--no-summary", f"--junitxml={xml}", *arguments]
        subprocess.run(
            command, cwd=checkout, env={**os.environ, **settings}, stdout=STDERR, check=False
        )
        if not xml.exists():
            raise click.ClickException(f"pytest gave no result in {checkout}")
        found = _read(checkout, ElementTree.parse(xml))
        lines = notes.read_text().splitlines() if notes.exists() else []
    return {**found, "notes": [json.loads(line) for line in lines]}


def _read(checkout: Path, report: Any) -> dict[str, dict[str, str]]:
    """Read outcomes and reasons from a JUnit report, by the test ids of pytest's command line.

    A test fails if any of its phases does. A reason is the start of the error message.
    """
    outcomes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for case in report.iter("testcase"):
        name = _id(checkout, f"{case.get('classname')}::{case.get('name')}")
        child = {child.tag: child for child in case}
        if (bad := child.get("failure", child.get("error"))) is not None:
            outcomes[name] = "failed" if "failure" in child else "error"
            reasons[name] = (bad.get("message") or "").split("\n")[0][:WIDTH]
        elif outcomes.get(name) not in ("failed", "error"):
            outcomes[name] = "skipped" if "skipped" in child else "passed"
    return {"outcomes": outcomes, "reasons": reasons}


def _id(checkout: Path, name: str) -> str:
    """Turn ``a.test_b.TestC::test_d`` into ``a/test_b.py::TestC::test_d``."""
    module, _, test = name.partition("::")
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        path = "/".join(parts[:count]) + ".py"
        if (checkout / path).exists():
            return "::".join([path, *parts[count:], test])
    return name


def differences(here: dict[str, str], baseline: dict[str, str]) -> list[str]:
    """Find tests that pass in the baseline but not here, sorted.

    A test that did not run did not pass.
    """
    return sorted(
        test
        for test, outcome in baseline.items()
        if outcome == "passed" and here.get(test, "missing") != "passed"
    )


def again(checkout: Path, mode: str, tests: Sequence[str], times: int) -> dict[str, list[int]]:
    """Run tests again by themselves, with the plugin and without it.

    Returns the failures of each test: ``[with the plugin, in the baseline]``.
    """
    bad = {test: [0, 0] for test in tests}
    for _ in range(times if tests else 0):
        for side, how in enumerate((mode, BASELINE)):
            outcomes = run(checkout, how, tests)["outcomes"]
            for test in tests:
                bad[test][side] += outcomes.get(test, "missing") not in GOOD
    return bad


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--file", "files", multiple=True, help="Test file or folder; all by default.")
@click.option(
    "--mode", "modes", multiple=True, type=click.Choice(MODES), help="Mode; both by default."
)
@click.option("--baseline", type=click.File(), help="JSON of an earlier run with baselines.")
@click.option("--again", "times", default=1, help="How often to repeat tests that differ.")
@click.option("--quick", is_flag=True, help="Skip tests that start their own processes.")
@json_option
def main(
    checkout: Path, files: tuple[str, ...], modes: tuple[str, ...], baseline: Any, times: int,
    quick: bool, output: str | None,
) -> None:  # fmt: skip
    """Find tests of distributed that pass without the plugin but not with it.

    CHECKOUT is a checkout of dask/distributed at a supported version. The exit code is 1 if there
    are such tests, or if the plugin failed on a scheduler.
    """
    checkout = checkout.resolve()
    earlier = json.load(baseline)["files"] if baseline else {}
    result: dict[str, Any] = {}
    for file in files or FILES:
        row = result[file] = {BASELINE: earlier.get(file, {}).get(BASELINE)}
        if row[BASELINE] is None:
            row[BASELINE] = _run(checkout, BASELINE, file, quick)
        for mode in modes or MODES:
            row[mode] = _run(checkout, mode, file, quick)
            differ = differences(row[mode]["outcomes"], row[BASELINE]["outcomes"])
            row[mode]["differ"] = again(checkout, mode, differ, times)
        print(_row(file, row), file=sys.stderr, flush=True)
    whole = {"times": times, "files": result}
    give(whole, output, show(whole))
    sys.exit(any(_wrong(row[mode]) for row in result.values() for mode in MODES if mode in row))


def _run(checkout: Path, mode: str, file: str, quick: bool) -> dict[str, Any]:
    print(f"{file}: {mode}", file=sys.stderr, flush=True)
    return run(checkout, mode, [file], quick=quick)


def _problems(side: dict[str, Any]) -> list[str]:
    """Format the problems and warnings that the plugin noted, one line each."""
    said = ((n["test"], n.get("problem") or n.get("logged")) for n in side["notes"])
    return [f"{test}: {text}" for test, text in dict.fromkeys(said) if text]


def _wrong(side: dict[str, Any]) -> bool:
    return bool(side["differ"]) or any("problem" in note for note in side["notes"])


def _row(file: str, row: dict[str, Any]) -> list[str]:
    """Format one row of the table."""
    cells = [file.removeprefix("distributed/"), _counts(row[BASELINE]["outcomes"])]
    for mode in MODES:
        if mode in row:
            held = sum(note.get("held", 0) for note in row[mode]["notes"])
            cells += [_counts(row[mode]["outcomes"]), str(len(row[mode]["differ"])), str(held)]
        else:
            cells += ["", "", ""]
    return cells


def _counts(outcomes: dict[str, str]) -> str:
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    failed = sum(outcome not in GOOD for outcome in outcomes.values())
    return f"{passed}, {failed} failed" if failed else str(passed)


def show(result: dict[str, Any]) -> str:
    """Format the result as a table of counts, followed by one line per test that differs."""
    columns = [f"{mode}{what}" for mode in MODES for what in ("", " differ", " held")]
    head = ["tests", BASELINE, *columns]
    lines = [table(head, [_row(file, row) for file, row in result["files"].items()])]
    times = result["times"]
    for mode in MODES:
        for row in (row[mode] for row in result["files"].values() if mode in row):
            for test, (here, there) in row["differ"].items():
                often = f"again {here} of {times} times, {there} in the baseline"
                reason = row["reasons"].get(test, row["outcomes"].get(test, "missing"))
                lines.append(f"{mode}: {test} ({often}): {reason}")
            lines += [f"{mode}: {line}" for line in _problems(row)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
