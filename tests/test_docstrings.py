"""The law of docstrings: what people call is documented in full, and everything else in a sentence.

What people call is `dask_slaq.__all__`, and what the pages of docs/reference show.
"""

import ast
import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import dask_slaq
from dask_slaq.client import Job, Search

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dask_slaq"
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
SHOWN = [
    name
    for page in PAGES
    for name in re.findall(r"auto(?:class|function):: (\S+)", page.read_text())
]
#: Sections of numpydoc that are a manual. Returns and Raises may say more than a signature.
MANUAL = re.compile(r"^ *Parameters\n *-+$", re.M)


FACES = [*(getattr(dask_slaq, name) for name in dask_slaq.__all__), *map(resolve_name, SHOWN)]


def methods_of(face: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function, or a class and its own public methods."""
    yield face
    if inspect.isclass(face):
        yield from (
            value
            for name, value in vars(face).items()
            if inspect.isfunction(value) and (not name.startswith("_") or name == "__call__")
        )


def arguments(function: Callable[..., Any]) -> list[str]:
    try:
        given = inspect.signature(function).parameters
    except ValueError:  # an exception's
        return []
    if inspect.isclass(function) and issubclass(function, Enum):
        return []
    return [name for name in given if name not in ("self", "args", "kwargs")]


def source_of(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def test_what_people_call_says_what_each_argument_is():
    for face, function in ((each, method) for each in FACES for method in methods_of(each)):
        doc, names = inspect.getdoc(function) or "", arguments(function)
        about = f"{inspect.getdoc(face)}\n{doc}"
        elsewhere = re.search(r"\b[Ss]ee `|Create it with `", doc)
        if len(names) > 1 and function.__doc__ and not elsewhere:
            assert [n for n in names if not re.search(rf"\b{n}\b", about)] == [], function


#: Sections of each name in `dask_slaq.__all__`, but of those that have nothing to say there.
SECTIONS = {
    "Parameters": {"Pruned", "StopTraining", "TrialPruned"},
    "Returns": {"SlaqPlugin", "steps", "instrument"},
    "Raises": {"Pruned", "StopTraining", "TrialPruned", "resume", "trial", "waited"},
    "Examples": set(),
}


def has_section(function: Callable[..., Any], section: str) -> bool:
    return bool(re.search(rf"^{section}\n-+$", inspect.getdoc(function) or "", re.M))


@pytest.mark.parametrize("name", dask_slaq.__all__)
def test_public_names_have_a_full_docstring(name):
    face = getattr(dask_slaq, name)
    gives = getattr(face, "__annotations__", {}).get("return", "None") not in ("None", None)
    needed = {section for section, others in SECTIONS.items() if name not in others}
    if not arguments(face):
        needed -= {"Parameters"}
    if inspect.isclass(face) or not gives:
        needed -= {"Returns"}
    assert {section for section in needed if not has_section(face, section)} == set()


@pytest.mark.parametrize("kind", [Job, Search])
def test_methods_of_blocks_are_documented(kind):
    """Those without an example say where there is one."""
    for name, method in inspect.getmembers(kind, callable):
        if not name.startswith("_"):
            doc = inspect.getdoc(method) or ""
            assert has_section(method, "Examples") or re.search(r"`.+`", doc), name


def test_examples_of_public_names_run():
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    names = {name: getattr(dask_slaq, name) for name in dask_slaq.__all__} | {"slaq": dask_slaq}
    for name in dask_slaq.__all__:
        (test,) = finder.find(getattr(dask_slaq, name), name, globs=dict(names))
        assert test.examples and runner.run(test).failed == 0, name


def documented_inside() -> Iterator[str]:
    """Yield what nobody calls from outside, but that has a manual."""
    faces = {source_of(function) for face in FACES for function in methods_of(face)}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, node in definitions(ast.parse(path.read_text())):
            if MANUAL.search(ast.get_docstring(node) or "") and (module, name) not in faces:
                yield f"{module}.{name}"


def definitions(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")


def test_inside_a_sentence_is_enough():
    assert list(documented_inside()) == []
