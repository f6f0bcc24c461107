"""Mutation benchmark: small faults that are put into the package, and how many the tests catch.

Each mutant is the package with one change: a comparison, a bound, a condition, a statement that is
left out. It is caught if a test fails, or does not end. Those that live show what nobody tests, or
changes that make no difference.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.common.results import give, json_option

__all__ = ["main", "measure", "mutations"]

ROOT = Path(__file__).parents[1]
#: Modules that are mutated, and the tests that are to catch it, the fastest first.
AREAS = {
    "core/dispatch": ("tests/core/dispatch", "tests/scheduler/pools"),
    "core/promises.py": ("tests/core", "tests/scheduler/test_promises.py"),
    "core/trials": ("tests/core/trials", "tests/scheduler/trials"),
    "scheduler/pools": ("tests/scheduler/pools", "tests/scheduler"),
    "scheduler/requests": (
        *("tests/scheduler/test_validation.py", "tests/scheduler/test_steering.py"),
        *("tests/scheduler/test_who_may.py", "tests/scheduler"),
    ),
}
#: Operators and what takes their place.
INSTEAD: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,  # codespell:ignore
    ast.NotIn: ast.In,  # codespell:ignore
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
#: Functions and what takes their place.
OTHER = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutation(NamedTuple):
    """One change of a module; `apply` makes it in the tree from which it was found."""

    line: int
    what: str
    apply: Callable[[], None]


def mutations(tree: ast.Module) -> Iterator[Mutation]:
    """Yield the changes that can be made to a module. Annotations and docstrings are left out."""
    for node in _code(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for i, op in enumerate(node.ops):
                new = INSTEAD[type(op)]()
                yield _change(line, node.ops, i, new, f"{_name(op)} to {_name(new)}")
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in INSTEAD:
            new = INSTEAD[type(node.op)]()
            yield _set(line, node, "op", new, f"{_name(node.op)} to {_name(new)}")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield _set(line, node, "op", ast.UAdd(), "not left out")
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield _set(line, node, "value", value, f"{node.value} to {value}")
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            test = ast.Constant(False)
            yield _set(
                line, node, "test", test, f"condition {ast.unparse(node.test)[:60]} to False"
            )
        elif isinstance(node, ast.Return) and not _is_none(node.value):
            yield _set(line, node, "value", ast.Constant(None), "return None")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in OTHER:
            name: Any = node.func
            yield _set(line, name, "id", OTHER[name.id], f"{name.id} to {OTHER[name.id]}")
        body = getattr(node, "body", None)
        for i, statement in enumerate(body if isinstance(body, list) else ()):
            left_out = isinstance(statement, ast.AugAssign | ast.Delete) or (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            )
            if left_out:
                what = f"left out: {ast.unparse(statement)[:60]}"
                yield _change(statement.lineno, body, i, ast.Pass(), what)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module that are executed in functions, without annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    continue  # walked on its own
                yield from _inside(statement)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.AST) and name != "annotation" and not inner:
                yield from _inside(child)


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _change(line: int, where: list[Any], i: int, new: ast.AST, what: str) -> Mutation:
    def apply() -> None:
        where[i] = new

    return Mutation(line, what, apply)


def _set(line: int, node: ast.AST, field: str, new: object, what: str) -> Mutation:
    return Mutation(line, what, lambda: setattr(node, field, new))


def _modules(area: str) -> list[Path]:
    place = ROOT / "dask_slaq" / area
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _choose(seed: int, count: int) -> list[tuple[str, Path, int]]:
    """Return areas, modules and numbers of mutations, of each area as many as it has."""
    chance, sites = random.Random(seed), []
    for area in AREAS:
        for path in _modules(area):
            found = sum(1 for _ in mutations(ast.parse(path.read_text())))
            sites += [(area, path, i) for i in range(found)]
    return chance.sample(sites, min(count, len(sites)))


def _caught_by(folder: Path, tests: tuple[str, ...], seconds: float) -> str:
    """Return the test that fails first; ``"timeout"``, or empty if all pass."""
    for each in tests:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", each]
        try:
            done = subprocess.run(
                [*command, "--no-header", "--timeout", "60"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        if done.returncode:
            lines = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
            return lines[0].split(" - ")[0] if lines else f"exit code {done.returncode}"
    return ""


def measure(
    count: int = 200, seed: int = 0, seconds: float = 600.0, kept: Path | None = None
) -> list[dict[str, Any]]:
    """Make mutants and run the tests of their area on each.

    Parameters
    ----------
    count, seed : int
        How many, and which.
    seconds : float
        For how long the tests of one folder may run; a mutant that hangs them is caught.
    kept : Path, optional
        File of results as JSON lines. Those in it are not run again, and new ones are added.

    Returns
    -------
    list of dict
        By mutant: ``module``, ``line``, ``what``, ``caught`` (the test; empty if it lives).
    """
    known = {}
    if kept is not None and kept.exists():
        for text in kept.read_text().splitlines():
            row = json.loads(text)
            known[row["module"], row["number"]] = row
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("dask_slaq", "tests", "benchmarks", "examples", "docs"):
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        for part in ("pyproject.toml", "setup.cfg", "README.md", "CHANGELOG.md", "LICENSE"):
            if (ROOT / part).exists():
                shutil.copy(ROOT / part, folder / part)
        for area, path, number in _choose(seed, count):
            module = path.relative_to(ROOT).as_posix()
            row = known.get((module, number))
            if row is None:
                tree = ast.parse(path.read_text())
                mutation = list(mutations(tree))[number]
                mutation.apply()
                (folder / module).write_text(ast.unparse(ast.fix_missing_locations(tree)))
                caught = _caught_by(folder, AREAS[area], seconds)
                (folder / module).write_text(path.read_text())
                row = {
                    "module": module,
                    "number": number,
                    "line": mutation.line,
                    "what": mutation.what,
                    "caught": caught,
                }
                if kept is not None:
                    with kept.open("a") as file:
                        print(json.dumps(row), file=file)
            rows.append(row)
            told = row["caught"] or "LIVES"
            click.echo(f"{module}:{row['line']}: {row['what']}: {told}", err=True)
    return rows


@click.command()
@click.option("--count", default=200, show_default=True, help="Number of mutants.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--seconds", default=600.0, show_default=True, help="Limit for the tests of a folder."
)
@click.option(
    "--kept", type=click.Path(dir_okay=False, path_type=Path), help="File of results to go on with."
)
@json_option
def main(count: int, seed: int, seconds: float, kept: Path | None, output: str | None) -> None:
    """Count mutants of the package that its tests catch."""
    rows = measure(count, seed, seconds, kept)
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
    give({"areas": found, "alive": alive}, output, "\n".join(table))


if __name__ == "__main__":
    main()
