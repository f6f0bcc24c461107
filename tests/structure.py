"""What the source shows: circles of modules, and what it relies on in Dask without a promise."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from distributed import Client, Scheduler, Worker
from distributed.scheduler import ClientState, TaskState, WorkerState
from distributed.stealing import WorkStealing

#: Dask's objects, by what they are called in this package, and their classes.
THEIRS: dict[str, type] = {
    **dict.fromkeys(("scheduler", "_scheduler", "server"), Scheduler),
    **dict.fromkeys(("ts", "dep", "submitter"), TaskState),
    **dict.fromkeys(("ws", "before", "victim", "thief"), WorkerState),
    **dict.fromkeys(("client", "_client", "Client"), Client),
    **{"worker": Worker, "cs": ClientState, "stealing": WorkStealing},
    **dict.fromkeys(("pool", "executor", "comm", "PrometheusHandler"), object),
}
#: Tables of this package with the methods and handlers of Dask that it overrides.
TABLES = frozenset({"OVERRIDDEN", "SURROUNDED"})


def modules(folder: Path) -> dict[str, Path]:
    """Return the modules of a package by name."""
    paths = sorted(folder.rglob("*.py"))
    parts = {path: path.relative_to(folder.parent).with_suffix("").parts for path in paths}
    return {".".join(each).removesuffix(".__init__"): path for path, each in parts.items()}


def imports(folder: Path) -> dict[str, set[str]]:
    """Return what each module of a package imports of it, also for types alone or when called."""
    known = modules(folder)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        here: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                of = {f"{node.module}.{each.name}" for each in node.names}
                here |= {full if full in known else node.module for full in of}
            elif isinstance(node, ast.Import):
                here |= {each.name for each in node.names}
        found[name] = (here & known.keys()) - {name}
    return found


def circles(folder: Path) -> list[tuple[str, ...]]:
    """Return the largest sets of modules that all import each other, directly or by others."""
    graph = imports(folder)
    reached = {name: _reached(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in graph if other in reached[name] and name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return sorted(found, key=lambda circle: (-len(circle), circle))


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    """Return the modules that one imports, also by others; itself if it is in a circle."""
    found: set[str] = set()
    ahead = list(graph[name])
    while ahead:
        if (other := ahead.pop()) not in found:
            found.add(other)
            ahead.extend(graph[other])
    return found


def touch_points(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Return the names of Dask's that a package touches, and no documentation promises.

    By name: how it is touched (overridden, written, private or undocumented), and the files.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(folder.rglob("*.py")):
        for name, how in _touched(ast.parse(path.read_text())):
            if how:
                file = path.relative_to(folder).as_posix()
                found.setdefault(name, {}).setdefault(how, set()).add(file)
    return found


def _touched(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names of Dask in a module, and how it touches them."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if re.match(r"(dask|distr\w+)\b.*\._", module):
                yield module, "private"
            case ast.Assign(targets=[ast.Name(id=table)], value=value) if table in TABLES:
                shown = value.values if isinstance(value, ast.Dict) else ast.walk(value)
                for each in shown:
                    if isinstance(each, ast.Constant):
                        yield each.value, "overridden"
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=name))]):
                if _called(owner) == "handlers":
                    yield name, "overridden"
            case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(value=name), *_]):
                yield name, _how(_called(owner), name)
            case ast.Attribute(value=ast.Attribute(attr=name), attr="__code__"):
                yield name, "private"  # whose frame is looked for
            case ast.Attribute(value=owner, attr=name, ctx=context):
                yield name, _how(_called(owner), name, written=not isinstance(context, ast.Load))


@cache
def _how(owner: str, name: str, written: bool = False) -> str:
    """Return how an attribute is touched; empty if it is documented, or not one of Dask's."""
    theirs = THEIRS.get(owner)
    if theirs is None or name.startswith("__"):
        return ""
    source = _source(theirs)
    if name.startswith("_") and (not source or name in source):
        return "private"
    if not re.search(rf"\bself\.{name}\b|^    (async def |def )?{name}\b", source, re.M):
        return ""
    return "written" if written else "" if _is_documented(theirs, name, source) else "undocumented"


@cache
def _source(theirs: type) -> str:
    """Return the source of a class of Dask and of its bases, empty for other classes."""
    classes = [each for each in theirs.__mro__ if each.__module__.startswith("distributed")]
    return "".join(map(inspect.getsource, classes))


def _is_documented(theirs: type, name: str, source: str) -> bool:
    """Return whether a docstring, a comment ``#:``, or a line in that of the class is about it."""
    value = inspect.getattr_static(theirs, name, None)
    if inspect.isroutine(value) or isinstance(value, property):
        return bool(getattr(value, "__doc__", None))
    return re.search(rf"^ +#: .*\n(    #:.*\n)*    {name}\b|\*\*{name}\b", source, re.M) is not None


def _called(owner: ast.expr) -> str:
    """Return by which name an object is called."""
    return owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
