"""Tests on a copy of the tree: which lines each test executes, and which test catches a mutant.

Each run is a forked process that has the libraries loaded, so that it costs little more than its
tests. A mutant meets only tests that execute its line: first the quick ones of the files named
after its module, and others if it lives.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.mutants.changes import mutations

__all__ = ["Covering", "Tree", "catch"]

ROOT = Path(__file__).parents[2]
#: What the tests of the package need of the tree.
PARTS = ("dask_slaq", "tests", "benchmarks", "examples", "docs", "deploy", ".github", ".ci")
#: Seconds that the tests which a mutant meets first take without a change, and that all take which
#: it meets: a line that all of the package's tests execute meets the nearest only.
FIRST, MOST = 6.0, 40.0
#: A test that takes longer than this many seconds has caught the mutant: it hangs.
HANGS = 45
#: Seconds that a whole run may take besides what its tests took without a change, and their factor.
EXTRA, SLOWER = 60.0, 4.0


class Tree:
    """Copy of the package and its tests in `folder`, in which one module at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in PARTS:
            if (ROOT / part).exists():
                shutil.copytree(ROOT / part, folder / part)
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy2(path, folder / path.name)

    def change(self, module: str, number: int) -> None:
        """Put the mutation of that number into a module."""
        tree = ast.parse((ROOT / module).read_text())
        list(mutations(tree))[number].apply()
        self._write(module, ast.unparse(ast.fix_missing_locations(tree)))

    def restore(self, module: str) -> None:
        """Take the change back."""
        self._write(module, (ROOT / module).read_text())

    def _write(self, module: str, text: str) -> None:
        path = self.folder / module
        path.write_text(text)
        # Two changes within a second may have the same size, and so the same mark of time and size.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def test(
        self, arguments: Sequence[str], seconds: float, plugins: Sequence[object] = ()
    ) -> tuple[int | None, str]:
        """Run pytest in a process of its own. Returns its exit code and its output.

        The code is None if the run does not end within `seconds`.
        """
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        log = self.folder / "output.txt"
        process = os.fork()
        if not process:
            self._run(arguments, log, plugins)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                _kill_group(process)
                return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
            time.sleep(0.02)
        _kill_group(process)
        os.waitpid(process, 0)
        return None, log.read_text(errors="replace")

    def _run(self, arguments: Sequence[str], log: Path, plugins: Sequence[object]) -> None:
        """Run pytest, and leave the process. Called in the child."""
        code = 70
        try:
            os.setsid()
            os.chdir(self.folder)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            # The tree's own modules are those of the copy.
            for name in [n for n in sys.modules if n.split(".")[0] in ("benchmarks", "dask_slaq")]:
                del sys.modules[name]
            sys.path[:] = [str(self.folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.dont_write_bytecode = not plugins
            import pytest

            options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
            code = int(pytest.main([*options, "--timeout", str(HANGS), *arguments], [*plugins]))
        finally:
            sys.stdout.flush()
            os._exit(code)


def _kill_group(process: int) -> None:
    """End a run, and the processes that its tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def load_libraries() -> None:
    """Load what takes time to load, but nothing that reads the package or its configuration."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import distributed
    import hypothesis
    import numpy
    import pytest
    import scipy.optimize
    import scipy.special  # noqa: F401

    assert all((distributed, hypothesis, numpy, pytest))
    assert "dask_slaq" not in sys.modules


class Covering:
    """Which lines of the mutated modules each test executes, and how many seconds it takes.

    It is kept in a file of JSON lines, one per file of tests; those in it are not run again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tests: dict[str, dict[str, Any]] = {}
        self._files: set[str] = set()
        if path.exists():
            for line in path.read_text().splitlines():
                self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        self._files.add(row["file"])
        self.tests.update(row["tests"])

    def follow(self, tree: Tree, modules: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
        """Run the files of tests in `folders` that are not known. Yields the name of each."""
        found = [p for f in folders for p in sorted((tree.folder / f).rglob("test_*.py"))]
        for path in found:
            name = path.relative_to(tree.folder).as_posix()
            if name in self._files:
                continue
            lines = _Lines(tree.folder, modules)
            _, output = tree.test([name], 900, [lines])
            rows = tree.folder / "lines.json"
            if not rows.exists():
                raise RuntimeError(f"the lines of {name} were not followed: {output[-1000:]}")
            tests = json.loads(rows.read_text())
            rows.unlink()
            row = {"file": name, "tests": tests, "end": output.strip().splitlines()[-1:]}
            with self._path.open("a") as file:
                print(json.dumps(row), file=file)
            self._take(row)
            yield name

    def of(self, module: str, lines: Sequence[int]) -> list[str]:
        """Return the tests that execute one of the lines, those of the module itself first.

        Within each kind, the quickest are first.
        """
        stem, folder = Path(module).stem, Path(module).parent.relative_to("dask_slaq").as_posix()

        def key(name: str) -> tuple[int, float]:
            file = name.split("::")[0]
            near = 2 - (folder in file) - (stem in Path(file).stem)
            return near, self.tests[name]["seconds"]

        some = set(lines)
        found = [n for n, t in self.tests.items() if some & set(t["lines"].get(module, ()))]
        return sorted(found, key=key)


class _Lines:
    """Plugin of pytest that writes which lines each passing test executes, by module."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        self._folder, self._modules = folder, modules
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        from coverage import Coverage

        include = [str(self._folder / module) for module in self._modules]
        self._coverage = Coverage(data_file=None, config_file=False, include=include)
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if report.outcome == "failed":
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests: dict[str, Any] = {
            name: {"seconds": round(seconds, 3), "lines": {}}
            for name, seconds in self._seconds.items()
            if name not in self._failed
        }
        for path in data.measured_files():
            module = Path(path).relative_to(self._folder).as_posix()
            for line, names in data.contexts_by_lineno(path).items():
                for name in names:
                    if name in tests:
                        tests[name]["lines"].setdefault(module, []).append(line)
        tests = {name: test for name, test in tests.items() if test["lines"]}
        (self._folder / "lines.json").write_text(json.dumps(tests))


def catch(tree: Tree, covering: Covering, module: str, number: int) -> dict[str, Any]:
    """Put a mutation into a module, run the tests that execute its line, and take it back.

    Returns the row of the mutant; ``caught`` is the test that fails, or empty if it lives.
    """
    mutation = list(mutations(ast.parse((ROOT / module).read_text())))[number]
    tests = covering.of(module, [mutation.line])
    takes = list(accumulate(covering.tests[name]["seconds"] for name in tests))
    first, most = (max(bisect_right(takes, limit), 1) for limit in (FIRST, MOST))
    begin, caught = time.monotonic(), ""
    tree.change(module, number)
    try:
        for some in (tests[:first], tests[first:most]):
            if some and not caught:
                caught = _first_failure(tree, covering, some)
    finally:
        tree.restore(module)
    return {
        "module": module,
        "number": number,
        "line": mutation.line,
        "what": mutation.what,
        "tests": len(tests),
        "met": len(tests[:most]),
        "seconds": round(time.monotonic() - begin, 1),
        "caught": caught,
    }


def _first_failure(tree: Tree, covering: Covering, tests: Sequence[str]) -> str:
    usual = sum(covering.tests[name]["seconds"] for name in tests)
    code, output = tree.test(["-x", *tests], EXTRA + SLOWER * usual)
    if code is None:
        return "timeout"
    if code == 0:
        return ""
    lines = [x for x in output.splitlines() if x.startswith(("FAILED ", "ERROR tests"))]
    return lines[0].split(" - ")[0] if lines else f"exit code {code}"
