"""The law of docstrings: a public callable with several arguments says what each of them is."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dask_slaq"
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Bases whose methods have the signatures of another library, which documents them.
FOREIGN = {"SchedulerPlugin", "TaskStreamPlugin", "Command", "App", "MetaPathFinder"}
#: Commands: click documents each option.
COMMANDS = PACKAGE / "cli"
#: A package whose parts are read together: inside, a sentence is enough.
INSIDE = PACKAGE / "scheduler" / "pools"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def bases_of(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


@cache
def methods() -> dict[str, set[str]]:
    """Names of the methods of each class of the package."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                mine = {item.name for item in node.body if isinstance(item, Function)}
                found.setdefault(node.name, set()).update(mine)
    return found


def public_callables(
    tree: ast.Module | ast.ClassDef, prefix: str = "", inherited: Collection[str] = ()
) -> Iterator[tuple[str, Function, str]]:
    """Yield public functions of a module, and methods of its public classes that are new there.

    Each comes with the docstring of its class, which may explain arguments of all its methods.
    """
    about = (ast.get_docstring(tree) or "") if prefix else ""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            if node.name not in inherited:  # the base class explains them
                yield prefix + node.name, node, about
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            above = set().union(*(methods().get(base, set()) for base in bases_of(node)))
            if not bases_of(node) & FOREIGN:
                yield from public_callables(node, f"{node.name}.", above)


def arguments(function: Function) -> list[str]:
    given = function.args
    named = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls")]


def says_what_they_are(doc: str, about: str, names: list[str]) -> bool:
    """Whether a docstring has Parameters, refers to one that has, or all are named in sentences."""
    if re.search(r"^Parameters\n-+$", doc, re.M) or re.search(r"\b[Ss]ee\s+`", doc):
        return True
    return all(re.search(rf"\b{name}\b", f"{about}\n{doc}") for name in names)


def undocumented(path: Path) -> list[str]:
    """Public callables with several arguments whose docstring leaves some of them open."""
    found = []
    for name, function, about in public_callables(ast.parse(path.read_text())):
        doc, names = ast.get_docstring(function), arguments(function)
        # Without any docstring, a method has that of the protocol it implements.
        if doc is not None and len(names) > 1 and not says_what_they_are(doc, about, names):
            found.append(f"{name}({', '.join(names)})")
    return found


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(PACKAGE)) for p in MODULES])
def test_arguments_of_public_callables_are_documented(path):
    if not (path.is_relative_to(COMMANDS) or path.is_relative_to(INSIDE)):
        assert undocumented(path) == []


def test_what_is_not_documented_is_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        'def bad(a, b):\n    """Return the sum."""\n\ndef good(a, b):\n    """Add `a` to `b`."""\n'
    )
    assert undocumented(path) == ["bad(a, b)"]
